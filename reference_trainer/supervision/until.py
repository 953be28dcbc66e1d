"""A supervised run: attempts that resume from the newest whole checkpoint, until the run has reached a step."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from reference_trainer.config.settings import Settings
from reference_trainer.errors import OutputError
from reference_trainer.supervision.decision import Attempt, Ending, Verdict, verdict
from reference_trainer.supervision.heartbeat import Beat, kill_stale, watched
from reference_trainer.supervision.progress import check_model, is_done, model_step, whole_step
from reference_trainer.supervision.request import Limits

__all__ = ["Limits", "supervised", "until"]

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
    with _claimed(settings.out) as directory:
        for beat in kill_stale(directory):
            report(f"killed process {beat.pid}, which an earlier supervisor left")
        if is_done(settings.out, limits.step):
            check_model(settings.out, settings)
            report(f"done: step {model_step(settings.out)} is reached")
            return Verdict.DONE
        return _attempts(settings, arguments, limits, directory, launch, report)


def supervised(
    settings: Settings, arguments: Sequence[str], limits: Limits, *, ranks: int, report: Callable[[str], object]
) -> Verdict:
    """Carry out `until` with `ranks` processes."""
    from reference_trainer.supervision.attempts import attempted  # takes a while

    def launch(command: Sequence[str], beats: Path, name: str) -> tuple[Ending, str]:
        return attempted(command, beats, ranks=ranks, name=name)

    return until(settings, arguments, limits, launch=launch, report=report)


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

    before, made = whole_step(settings.out, report), list[Attempt]()
    while True:
        at = whole_step(settings.out, report)
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
        made.append(Attempt(ending, model_step(settings.out) if ended else whole_step(settings.out, report)))
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
