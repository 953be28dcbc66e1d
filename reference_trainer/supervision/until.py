"""A supervised run: attempts that resume from the newest undamaged checkpoint, until the run has reached a step.

1. `find_problems` checks the settings before the first attempt.
2. An attempt starts the ranks with the elastic agent of torch. Every attempt has a new agent and a new store. Restarts
   by the agent are disabled, because they fail under gloo (pytorch/pytorch#135712).
3. After an attempt, `decision.py` decides whether the run is done, needs another attempt, or is given up.

`launch` makes one attempt, without retries. On several machines, the supervisor of the first machine decides, and the
other supervisors join its attempts; see `machines.py`.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from torch import distributed as dist
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousError, RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from reference_trainer import interrupts
from reference_trainer.config.settings import Settings
from reference_trainer.errors import first_line
from reference_trainer.pipeline.defaults import defaults_of
from reference_trainer.supervision.decision import Attempt, Ending, Verdict, is_repeated, verdict
from reference_trainer.supervision.heartbeat import (
    SAVED,
    Beat,
    call_periodically,
    claim_directory,
    first_failure,
    kill_ranks,
    kill_stale,
    watch_ranks,
)
from reference_trainer.supervision.heartbeat import (
    beats as read_beats,
)
from reference_trainer.supervision.machines import (
    EVERY_S,
    Announcement,
    Leader,
    Machines,
    following,
    is_replaced,
    leading,
    next_announcement,
)
from reference_trainer.supervision.progress import check_model, is_done, model_step, newest_undamaged_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a supervised run.

    Attributes:
        step: The step to reach; None for the planned end.
        max_retries: The largest number of attempts after the first one.
        max_idle: The run is given up after this number of attempts in a row that reached no further step.
        silent_s: The age of a heartbeat, in seconds, at which its rank is killed.
    """

    step: int | None
    max_retries: int
    max_idle: int
    silent_s: float


def find_problems(settings: Settings | None, step: int | None) -> list[str]:
    """Return the reasons why a run with `settings` cannot be supervised up to `step`, or to its planned end."""
    if settings is None:
        return ["missing the run after --, such as `-- distill --save-every 100`"]
    chosen = settings.flat(chosen=True)
    save_every = chosen.get("save_every", defaults_of(settings).get("save_every", settings.checkpoints.save_every))
    messages = list[str]()
    for name, reason in (("smoke", "saves nothing"), ("max_steps", "is --step here"), ("resume", "is automatic")):
        if settings.flat()[name] is not None:
            messages.append(f"--{name.replace('_', '-')} {reason}; leave it out")
    if not save_every:
        messages.append("--save-every is 0; expected a number of steps")
    elif step is not None and save_every > step:
        messages.append(f"--save-every is {save_every}, so no step before {step} is saved; expected at most {step}")
    return messages


EXIT_CODES = {Ending.FINISHED: 0, Ending.FAILED: 1, Ending.REFUSED: 2}


def launch(
    arguments: Sequence[str], *, ranks: int, report: Callable[[str], object], machines: Machines | None = None
) -> int:
    """Run a command in several processes, and return its exit code.

    The processes also end if this process is killed. A signal to this process is passed to the processes; the exit code
    is then `interrupts.SAVED` if the run has saved a checkpoint.

    Args:
        arguments: The arguments of the command.
        ranks: The number of processes on each machine.
        report: A function that is called with the reason of a failure.
        machines: The machines that run the command together; by default only this machine.

    Raises:
        KeyboardInterrupt: After a signal, if no checkpoint was saved.
    """
    with TemporaryDirectory(prefix="reference-trainer-") as beats:
        try:
            name = f"launch-{os.getpid()}"
            ending, reason = run_attempt(arguments, Path(beats), ranks=ranks, name=name, machines=machines)
        except KeyboardInterrupt:
            if (Path(beats) / SAVED).exists():
                return interrupts.SAVED
            raise
    if ending is not Ending.FINISHED:
        report(reason)
    return EXIT_CODES[ending]


GRACE_S = 60
"""Time in seconds that ranks have to save and exit after a signal, before they are killed; torch 2.8 has its own."""
_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Signals whose handlers the agent of torch replaces."""


def run_attempt(
    arguments: Sequence[str], beats: Path, *, ranks: int, name: str, machines: Machines | None = None
) -> tuple[Ending, str]:
    """Run a command in several processes. Return the kind of its ending, and the reason as a sentence.

    Args:
        arguments: The arguments of the command.
        beats: The directory of the heartbeats.
        ranks: The number of processes on each machine.
        name: A unique name of this attempt.
        machines: The machines that run the command together; by default only this machine.

    Raises:
        KeyboardInterrupt: After a signal to this process, which is passed to the ranks.
    """
    try:
        return _run_ranks(_config(ranks, name, machines), arguments, beats, ranks)
    except (RendezvousError, dist.DistError) as error:
        location = "" if machines is None else f" at {machines.endpoint}"
        return Ending.FAILED, f"the machines did not connect{location}: {first_line(error)}"


def _run_ranks(config: LaunchConfig, arguments: Sequence[str], beats: Path, ranks: int) -> tuple[Ending, str]:
    """Carry out `run_attempt`. Raise `RendezvousError` or `DistError` if the machines do not connect."""
    # A rank gets the process id of this supervisor, so that the rank can end with it, and the directory of heartbeats.
    script = ["-m", "reference_trainer.cli.rank", str(os.getpid()), str(beats), *arguments]
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # this function returns the reason
    if ranks > 1:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does; otherwise every rank would use all cores
    with _handlers_restored():
        try:
            elastic_launch(config, sys.executable)(*script)
        except SignalException as error:
            raise KeyboardInterrupt from error
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            code = failure.exitcode
            ending = Ending.REFUSED if code == EXIT_CODES[Ending.REFUSED] else Ending.FAILED
            cause = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            return ending, f"rank {rank} ended with {cause}"
    return Ending.FINISHED, "the run came to its end"


def _config(ranks: int, name: str, machines: Machines | None, join_s: int | None = None) -> LaunchConfig:
    """Return the configuration of torch's agent. join_s: timeout of the rendezvous in seconds; None for the default."""
    # A single machine needs no address that other machines can reach.
    machines = machines or Machines(count=1, endpoint="localhost:0", run_id=name, address="127.0.0.1")
    fields = LaunchConfig.__dataclass_fields__  # torch 2.8 has no `shutdown_timeout`
    timeout: dict[str, Any] = {"shutdown_timeout": GRACE_S} if "shutdown_timeout" in fields else {}
    return LaunchConfig(
        min_nodes=machines.count,
        max_nodes=machines.count,
        nproc_per_node=ranks,
        run_id=machines.run_id,
        rdzv_backend="c10d",
        rdzv_endpoint=machines.endpoint,
        rdzv_configs={} if join_s is None else {"join_timeout": join_s},
        local_addr=machines.address,
        max_restarts=0,
        logs_specs=DefaultLogsSpecs(),
        **timeout,
    )


@contextmanager
def _handlers_restored() -> Iterator[None]:
    """Restore the handlers of `_HANDLED` at the end of the context."""
    before = {number: signal.getsignal(number) for number in _HANDLED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


Launch = Callable[[Sequence[str], Path, str], tuple[Ending, str]]
"""A function that runs an attempt as `run_attempt` does, from `arguments`, `beats` and `name`."""


def until(
    settings: Settings, arguments: Sequence[str], limits: Limits, *, launch: Launch, report: Callable[[str], object]
) -> Verdict:
    """Make attempts to run `distill` until the run is done or given up, and return the verdict.

    The run is done if its output has a model that was trained for `limits.step` steps, or up to its planned end.

    Args:
        settings: The settings of the run.
        arguments: The arguments of `distill` with these settings.
        limits: When to give up.
        launch: A function that runs one attempt.
        report: A function that is called with lines about the progress.

    Raises:
        OutputError: Another supervisor uses this output, or a damaged checkpoint cannot be renamed.
        CheckpointError: Checkpoints exist, but all are damaged.
        DriftError: The existing model was trained with other settings.
    """
    out = settings.run.out.resolve()
    directory = out.with_name(f"{out.name}.until")
    with claim_directory(directory, f"another supervisor has locked {directory}; wait for its end"):
        for beat in kill_stale(directory):
            report(f"killed process {beat.pid}, which an earlier supervisor left")
        if is_done(settings.run.out, limits.step):
            check_model(settings.run.out, settings)
            report(f"done: step {model_step(settings.run.out)} is reached")
            return Verdict.DONE
        return _attempts(settings, arguments, limits, directory, launch, report)


def supervise(
    settings: Settings,
    arguments: Sequence[str],
    limits: Limits,
    *,
    ranks: int,
    report: Callable[[str], object],
    machines: Machines | None = None,
) -> Verdict:
    """Call `until` with attempts of `ranks` processes on each machine. Other machines than the first only join them."""
    if machines is None:

        def launch(command: Sequence[str], beats: Path, name: str) -> tuple[Ending, str]:
            return run_attempt(command, beats, ranks=ranks, name=name)

        return until(settings, arguments, limits, launch=launch, report=report)
    if machines.rank:
        return _follow(settings.run.out, limits, ranks, machines, report)
    with leading(settings.run.out) as leader:
        reached = until(settings, arguments, limits, launch=_lead(leader, machines, ranks, report), report=report)
        leader.conclude(int(reached))
    return reached


def _lead(leader: Leader, machines: Machines, ranks: int, report: Callable[[str], object]) -> Launch:
    """Return a function that runs an attempt on several machines, and ends the attempt if a machine is lost."""

    def lead(command: Sequence[str], beats: Path, name: str) -> tuple[Ending, str]:
        rendezvous = replace(machines, run_id=f"{machines.run_id}-{name}")
        reported: list[int] = []

        # Called periodically in a thread. Repeat the kill, because it does not reach a rank without a heartbeat yet.
        def end_if_lost() -> None:
            nonlocal reported
            lost = leader.lost_machines(rendezvous.run_id)
            if not lost:
                return
            if lost != reported:
                reported = lost
                report(f"machine {', '.join(map(str, lost))} was lost and came back: this attempt ends")
            kill_ranks(beats)
            if not read_beats(beats):  # the machines may still be waiting for each other, or for the lost machine
                _close(_config(ranks, name, rendezvous))

        leader.announce(Announcement(run_id=rendezvous.run_id, arguments=tuple(command)))
        with call_periodically(end_if_lost, EVERY_S / 4):
            return run_attempt(command, beats, ranks=ranks, name=name, machines=rendezvous)

    return lead


def _close(config: LaunchConfig) -> None:
    """Close the rendezvous of `config`, so that the agent of this machine stops waiting for other machines."""
    parameters = RendezvousParameters(
        backend=config.rdzv_backend,
        endpoint=config.rdzv_endpoint,
        run_id=config.run_id,
        min_nodes=config.min_nodes,
        max_nodes=config.max_nodes,
        local_addr=config.local_addr,
    )
    with suppress(RendezvousError, dist.DistError):
        get_rendezvous_handler(parameters).set_closed()


JOIN_S = 15
"""Timeout of the rendezvous of a follower, in seconds; after the timeout, the follower reads the announcement again."""


def _follow(out: Path, limits: Limits, ranks: int, machines: Machines, report: Callable[[str], object]) -> Verdict:
    """Join every attempt that the first machine announces, until it announces its verdict; return the verdict."""
    with following(out, machines.rank) as (mark, beats):
        report(f"machine {machines.rank}: waits for the first machine")
        while (announcement := next_announcement(out, mark.joined)).verdict is None:
            attempt_id = announcement.run_id

            # The default value keeps the present id, because the loop changes the variable.
            def end_if_replaced(attempt_id: str = attempt_id) -> None:
                if is_replaced(out, attempt_id):
                    kill_ranks(beats)

            kill_stale(beats)
            mark.join(attempt_id)
            config = _config(ranks, attempt_id, replace(machines, run_id=attempt_id), join_s=JOIN_S)
            try:
                with _watch(beats, limits, report), call_periodically(end_if_replaced, EVERY_S / 4):
                    _, reason = _run_ranks(config, announcement.arguments, beats, ranks)
            except (RendezvousError, dist.DistError):  # this machine was too late, or the first machine was lost
                mark.leave(connected=False)
                time.sleep(1)
                continue
            mark.leave(connected=True)
            report(f"machine {machines.rank}: {reason}")
    return Verdict(announcement.verdict)


def _watch(beats: Path, limits: Limits, report: Callable[[str], object]) -> AbstractContextManager[None]:
    """Return a context in which ranks without a recent heartbeat are killed and reported."""

    def report_killed(beat: Beat) -> None:
        report(f"killed process {beat.pid} after step {beat.step}: stopped, or silent for {limits.silent_s:g} s")

    return watch_ranks(beats, limits.silent_s, report_killed)


def _attempts(
    settings: Settings,
    arguments: Sequence[str],
    limits: Limits,
    directory: Path,
    launch: Launch,
    report: Callable[[str], object],
) -> Verdict:
    """Make attempts until `verdict` is not RETRY; see `until`."""
    step_before = newest_undamaged_step(settings.run.out, report)
    attempts: list[Attempt] = []
    run = uuid4().hex[:8]  # not the process id, which may be the same after a restart of a container
    while True:
        # 1. Run an attempt from the newest undamaged checkpoint.
        start = newest_undamaged_step(settings.run.out, report)
        report(f"attempt {len(attempts) + 1}: " + (f"resumes from step {start}" if start else "starts over"))
        kill_stale(directory)
        with _watch(directory, limits, report):
            command = _arguments(arguments, limits.step, start, again=bool(attempts))
            ending, reason = launch(command, directory, f"{run}-{len(attempts)}")
        # 2. Determine the ending of the attempt, and the step that the run has reached.
        failure = first_failure(directory) if ending is Ending.FAILED else None
        if failure is not None and failure.is_input:
            ending = Ending.REFUSED
        if ending is Ending.FINISHED:
            reached = model_step(settings.run.out)
        else:  # after a failure, an existing model is from an earlier run
            reached = newest_undamaged_step(settings.run.out, report)
        error = None if failure is None else (failure.type, failure.message, failure.step)
        attempts.append(Attempt(ending, reached, error))
        target = "" if limits.step is None else f" of {limits.step}"
        report(f"attempt {len(attempts)}: {reason}; step {reached}{target} is reached")
        # 3. Decide.
        decision = verdict(limits.step, step_before, attempts, max_retries=limits.max_retries, max_idle=limits.max_idle)
        if decision is Verdict.RETRY:
            continue
        if failure is not None and (ending is Ending.REFUSED or is_repeated(attempts)):
            when = f"after step {failure.step}" if failure.step else "before its first step"
            cause = "the input was refused" if ending is Ending.REFUSED else "two attempts ended with the same error"
            report(
                f"not tried again: {cause}, {when}: {failure.type}: {failure.message}; "
                "correct the cause and run the same command again"
            )
        return decision


def _arguments(arguments: Sequence[str], step: int | None, start: int, *, again: bool) -> list[str]:
    """Return the arguments of an attempt that starts at step `start`; --force overwrites files of earlier attempts."""
    resume = ["--resume", "latest"] if start else []
    force = ["--force"] if start or again else []
    limit = [] if step is None else ["--max-steps", str(step)]
    return ["distill", *arguments, *limit, *resume, *force]
