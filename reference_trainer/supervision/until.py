"""A supervised run: attempts that resume from the newest whole checkpoint, until the run has reached a step.

1. `problems` says what keeps the run from being supervised, before torch is imported.
2. An attempt starts the ranks by torch's elastic agent, with an agent and a store of its own and without restarts: the
   agent's restarts fail under gloo (pytorch/pytorch#135712).
3. After an attempt, `decision.py` says whether the run is done, tried again or given up.

`launch` starts several processes on this machine once, without retries; with `Machines`, those of other machines join.
On several machines, one supervisor decides, and the others join its attempts; see `machines.py`.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import distributed as dist
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from reference_trainer import interrupts
from reference_trainer.config.settings import Settings
from reference_trainer.errors import OutputError, first_line
from reference_trainer.pipeline.defaults import defaults_of
from reference_trainer.supervision.decision import Attempt, Ending, Verdict, verdict
from reference_trainer.supervision.heartbeat import Beat, kill_stale, watched
from reference_trainer.supervision.machines import Announcement, Leader, Machines, following, next_announcement
from reference_trainer.supervision.progress import check_model, is_done, model_step, whole_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """step: what is to be reached, None for the planned end. silent_s: age of the heartbeat of a rank to be killed."""

    step: int | None
    max_retries: int
    max_idle: int
    silent_s: float


def problems(settings: Settings | None, step: int | None) -> list[str]:
    """Return everything that keeps a run with `settings` from being supervised up to `step`, or to its planned end."""
    if settings is None:
        return ["missing the run after --, such as `-- distill --save-every 100`"]
    chosen = settings.flat(chosen=True)
    save_every = chosen.get("save_every", defaults_of(settings).get("save_every", settings.checkpoints.save_every))
    messages = list[str]()
    for name, hint in (("smoke", "saves nothing"), ("max_steps", "is --step here"), ("resume", "is chosen here")):
        if settings.flat()[name] is not None:
            messages.append(f"--{name.replace('_', '-')} {hint}; leave it out")
    if not save_every:
        messages.append("--save-every is 0; expected a number of steps")
    elif step is not None and save_every > step:
        messages.append(f"--save-every is {save_every}, so no step before {step} is saved; expected at most {step}")
    return messages


EXIT_CODES = {Ending.FINISHED: 0, Ending.FAILED: 1, Ending.REFUSED: 2}
SAVED = "saved"
"""File beside the heartbeats: a rank has saved a checkpoint and left on request."""


def launch(
    arguments: Sequence[str], *, ranks: int, report: Callable[[str], object], machines: Machines | None = None
) -> int:
    """Run the command `arguments` in `ranks` processes, and return the exit code; what went wrong goes to `report`.

    machines: those that run it together, each with as many processes; by default this one. The processes end with this
    one, however it ends. After a signal, which they got too, it is that of a run which has saved a checkpoint; raise
    `KeyboardInterrupt` if it has not.
    """

    with TemporaryDirectory(prefix="reference-trainer-") as beats:
        try:
            name = f"launch-{os.getpid()}"
            ending, why = attempted(arguments, Path(beats), ranks=ranks, name=name, machines=machines)
        except KeyboardInterrupt:
            if (Path(beats) / SAVED).exists():
                return interrupts.SAVED
            raise
    if ending is not Ending.FINISHED:
        report(why)
    return EXIT_CODES[ending]


GRACE_S = 60
"""Seconds in which ranks have to save and leave after a signal, before they are killed."""
_REFUSED = 2
_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def attempted(
    arguments: Sequence[str], beats: Path, *, ranks: int, name: str, machines: Machines | None = None
) -> tuple[Ending, str]:
    """Run the command `arguments` in `ranks` processes, and return how it ended and in words why.

    beats: the directory of their heartbeats. name: of this attempt, used once. machines: as of `launch`. Raise
    `KeyboardInterrupt` after a signal to this process, which the ranks got too.
    """
    try:
        return _run_ranks(_config(ranks, name, machines), arguments, beats, ranks)
    except (RendezvousError, dist.DistError) as error:
        where = "" if machines is None else f" at {machines.endpoint}"
        return Ending.FAILED, f"the machines did not meet{where}: {first_line(error)}"


def _run_ranks(config: LaunchConfig, arguments: Sequence[str], beats: Path, ranks: int) -> tuple[Ending, str]:
    """Carry out `attempted`. Raise `RendezvousError` or `DistError` if the machines do not meet."""
    script = ["-m", "reference_trainer.cli.rank", str(os.getpid()), str(beats), *arguments]
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # what it logs is returned
    if ranks > 1:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does: every rank would use all cores
    with _handlers_restored():
        try:
            elastic_launch(config, sys.executable)(*script)
        except SignalException as error:
            raise KeyboardInterrupt from error
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            code = failure.exitcode
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            return Ending.REFUSED if code == _REFUSED else Ending.FAILED, f"rank {rank} ended with {how}"
    return Ending.FINISHED, "the run came to its end"


def _config(ranks: int, name: str, machines: Machines | None, join_s: int | None = None) -> LaunchConfig:
    # One machine needs no name that others can resolve.
    machines = machines or Machines(count=1, endpoint="localhost:0", run_id=name, address="127.0.0.1")
    known = LaunchConfig.__dataclass_fields__  # torch 2.8 has no `shutdown_timeout`
    patience: dict[str, Any] = {"shutdown_timeout": GRACE_S} if "shutdown_timeout" in known else {}
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
        **patience,
    )


@contextmanager
def _handlers_restored() -> Iterator[None]:
    """Restore the handlers of signals, which the agent replaces."""
    before = {number: signal.getsignal(number) for number in _HANDLED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


Launch = Callable[[Sequence[str], Path, str], tuple[Ending, str]]
"""Carry out an attempt, from its arguments, the directory of heartbeats and a name."""


def until(
    settings: Settings, arguments: Sequence[str], limits: Limits, *, launch: Launch, report: Callable[[str], object]
) -> Verdict:
    """Run `distill` with `arguments`, which give `settings`, again and again, and return how it ended.

    The run is done if its model is there, of a run that took `limits.step` steps, or came to its planned end. Progress
    goes to `report`. Raise `OutputError` if another supervisor has this output, `CheckpointError` if no checkpoint is
    whole, and `DriftError` if the model that is there was trained with other settings.
    """
    with _claimed(settings.run.out) as directory:
        for beat in kill_stale(directory):
            report(f"killed process {beat.pid}, which an earlier supervisor left")
        if is_done(settings.run.out, limits.step):
            check_model(settings.run.out, settings)
            report(f"done: step {model_step(settings.run.out)} is reached")
            return Verdict.DONE
        return _attempts(settings, arguments, limits, directory, launch, report)


def supervised(
    settings: Settings,
    arguments: Sequence[str],
    limits: Limits,
    *,
    ranks: int,
    report: Callable[[str], object],
    machines: Machines | None = None,
) -> Verdict:
    """Carry out `until` with `ranks` processes on each machine; the first machine decides."""
    if machines is None:

        def launch(command: Sequence[str], beats: Path, name: str) -> tuple[Ending, str]:
            return attempted(command, beats, ranks=ranks, name=name)

        return until(settings, arguments, limits, launch=launch, report=report)
    if machines.rank:
        return _follow(settings.run.out, limits, ranks, machines, report)
    leader = Leader(settings.run.out)

    def lead(command: Sequence[str], beats: Path, name: str) -> tuple[Ending, str]:
        run_id = f"{machines.run_id}-{name}"
        with leader.attempt(Announcement(run_id=run_id, arguments=tuple(command)), beats):
            return attempted(command, beats, ranks=ranks, name=name, machines=replace(machines, run_id=run_id))

    try:
        reached = until(settings, arguments, limits, launch=lead, report=report)
        leader.conclude(int(reached))
        return reached
    finally:
        leader.close()


JOIN_S = 15
"""Seconds in which a machine that follows has to meet the others; then it looks at the announcement again."""


def _follow(out: Path, limits: Limits, ranks: int, machines: Machines, report: Callable[[str], object]) -> Verdict:
    """Join every attempt that the first machine announces, until it announces its verdict."""

    def killed(beat: Beat) -> None:
        report(f"killed process {beat.pid} after step {beat.step}: stopped, or silent for {limits.silent_s:g} s")

    joined = ""
    with following(out, machines.rank) as beats:
        report(f"machine {machines.rank}: waits for the first machine")
        while (announced := next_announcement(out, joined)).verdict is None:
            kill_stale(beats)
            config = _config(ranks, announced.run_id, replace(machines, run_id=announced.run_id), join_s=JOIN_S)
            try:
                with watched(beats, limits.silent_s, killed):
                    _, why = _run_ranks(config, announced.arguments, beats, ranks)
            except (RendezvousError, dist.DistError):  # too late for this attempt, or the first machine was lost
                time.sleep(1)
                continue
            joined = announced.run_id
            report(f"machine {machines.rank}: {why}")
        kill_stale(beats)
    return Verdict(announced.verdict)


def _attempts(
    settings: Settings,
    arguments: Sequence[str],
    limits: Limits,
    directory: Path,
    launch: Launch,
    report: Callable[[str], object],
) -> Verdict:
    def killed(beat: Beat) -> None:
        report(f"killed process {beat.pid} after step {beat.step}: stopped, or silent for {limits.silent_s:g} s")

    before, made = whole_step(settings.run.out, report), list[Attempt]()
    while True:
        at = whole_step(settings.run.out, report)
        report(f"attempt {len(made) + 1}: {f'resumes from step {at}' if at else 'starts over'}")
        kill_stale(directory)
        with watched(directory, limits.silent_s, killed):
            ending, why = launch(
                _arguments(arguments, limits.step, at, again=bool(made)),
                directory,
                f"{os.getpid()}-{len(made)}",
            )
        # A model that is there although the attempt failed is of another run.
        ended = ending is Ending.FINISHED
        made.append(Attempt(ending, model_step(settings.run.out) if ended else whole_step(settings.run.out, report)))
        of = "" if limits.step is None else f" of {limits.step}"
        report(f"attempt {len(made)}: {why}; step {made[-1].reached}{of} is reached")
        next_ = verdict(limits.step, before, made, max_retries=limits.max_retries, max_idle=limits.max_idle)
        if next_ is not Verdict.RETRY:
            return next_


def _arguments(arguments: Sequence[str], step: int | None, at: int, *, again: bool) -> list[str]:
    """Return the arguments of an attempt, which may overwrite the trace and the model of an attempt before it."""
    resume = ["--resume", "latest"] if at else []
    force = ["--force"] if at or again else []
    limit = [] if step is None else ["--max-steps", str(step)]
    return ["distill", *arguments, *limit, *resume, *force]


@contextmanager
def _claimed(out: Path) -> Iterator[Path]:
    """Create and lock the directory of a supervisor beside the output; at the end no rank is left, and no file."""
    directory = out.resolve()
    directory = directory.with_name(f"{directory.name}.until")
    with ExitStack() as stack:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OutputError(f"another supervisor has locked {directory}; wait for its end") from error
        except OSError as error:
            raise OutputError(f"cannot lock {directory}: {error.strerror}; choose another --out") from error
        try:
            yield directory
        finally:
            kill_stale(directory)
            with suppress(OSError):  # a file of the user's may be there
                directory.rmdir()
