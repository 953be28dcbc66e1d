"""Run a job with a trainer, and record its steps.

The CPU time of a run is limited. A run is skipped if the adapter ignores a setting of the job.
"""

import itertools
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, ClassVar
from unittest import SkipTest

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from pv.suites.training_loop.features import LOGGED, missing_features
from pv.suites.training_loop.job import FEATURES, OPT_IN, Example, Job, Report, Trainer, probe_of, weights_of
from pv.suites.training_loop.oracle import START, Sums, sums
from pv.suites.training_loop.probe import MaskedRow, Step, start_recording

FIRST_S, LATER_S = 15.0, 3.0
"""Limits of the CPU time of a run in seconds. `FIRST_S` applies until a run reaches its limit, then `LATER_S` applies.

The slowest known loop needs about 1 s.
"""
STUCK_S = 3.0
"""Limit of the CPU time, in seconds, between two forwards of a run."""


class Unfinished(SkipTest):
    """A run reached a limit of its CPU time. Claims that need the run are undecided."""


class _Stop(BaseException):
    """Unwinds the trainer. It does not derive from Exception, so that handlers of the trainer do not catch it."""


@contextmanager
def limited(unfinished: Path, forwards: Callable[[], int]) -> Iterator[None]:
    """Limit the CPU time of a run inside the context, in total and since its last forward.

    Args:
        unfinished: A file that is created when a run reaches its limit. If it exists, later runs get less time.
        forwards: Returns the number of forwards of the run so far.

    Raises:
        Unfinished: The run has reached a limit.
    """
    # A signal interrupts the main thread only. In other threads, only the limit of the worker applies.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    clock = _Clock(LATER_S if unfinished.exists() else FIRST_S, forwards)
    before = signal.signal(signal.SIGPROF, clock.tick)
    signal.setitimer(signal.ITIMER_PROF, clock.interval, clock.interval)
    try:
        yield
    except _Stop:
        unfinished.touch()
        raise Unfinished(f"the run does not end: it was stopped after {clock}") from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


class _Clock:
    """Measures the CPU time of a run, in total and since its last forward."""

    def __init__(self, limit: float, forwards: Callable[[], int]) -> None:
        self.interval, self._limit, self._forwards = min(1.0, limit), limit, forwards
        self._total_s = self._idle_s = 0.0
        self._last_count = 0

    def __str__(self) -> str:
        idle = f", the last {self._idle_s:g} s without a forward" if self._idle_s >= STUCK_S else ""
        return f"{self._total_s:g} s of CPU time{idle}"

    def tick(self, *_: object) -> None:
        """Count an interval, and raise `_Stop` if the run is over a limit.

        Beyond the limit of the total time, every later tick raises `_Stop` again, since the trainer may catch the
        exception. Beyond `STUCK_S`, later ticks do so until the next forward.
        """
        count = self._forwards()
        self._total_s += self.interval
        # A loop without forwards, such as a loop that waits for a full batch, is stopped earlier than a slow loop.
        self._idle_s = self._idle_s + self.interval if count == self._last_count else 0.0
        self._last_count = count
        if self._total_s >= self._limit or (count and self._idle_s >= STUCK_S):
            raise _Stop


_DEFAULTS = {field.name: field.default for field in fields(Job)}

_SETTINGS = {
    "schedule": {"schedule", "warmup"},
    "warmup": {"warmup"},
    "optimizer": {"optimizer"},
    "cadence": {"eval_every", "save_every"},
    "eval_batch": {"eval_batch"},
    "log_every": {"log_every"},
}
"""The settings that an adapter need not read if its trainer does not have a feature, by feature."""
_FEATURES = {
    "eval_every": "cadence",
    "save_every": "cadence",
    "evaluated": "evaluate",
    "stop_at": "stop",
    "pad_multiple": "padding",
    "rate": "",  # all loops have a rate; the feature `rate` means that the rate is logged
}
"""The features of the settings whose feature has another name."""


class TrackedJob(Job):
    """A job that records which of its settings are read, including reads of its copies."""

    __slots__ = ()
    # Stored on the class, because an instance has only the slots of `Job`, and because copies must share the set.
    read: ClassVar[set[str]] = set()

    def __getattribute__(self, name: str) -> object:
        if name in _DEFAULTS:
            TrackedJob.read.add(name)
        return object.__getattribute__(self, name)


def track_reads(job: Job) -> TrackedJob:
    """Return a copy of a job that records which of its settings are read. Earlier records are cleared."""
    copy = TrackedJob(**{name: getattr(job, name) for name in _DEFAULTS})
    TrackedJob.read.clear()
    return copy


def refuse_unread(job: Job, missing: Collection[str] = ()) -> None:
    """Check that the adapter has read, since `track_reads`, every setting of a job that differs from its default.

    Settings without an effect need not be read:

    1. all settings in a resumed run, which may have no steps left;
    2. `epochs` if `max_steps` is set;
    3. `evaluated` and `eval_batch` in a run that never evaluates;
    4. `log_every` of a trainer that logs no number;
    5. the settings of missing features, such as `schedule` and `optimizer`.

    Args:
        job: The job that was run.
        missing: Features that the trainer does not have.

    Raises:
        SkipTest: A setting was not read. The text says what to do.
    """
    if job.resume is not None:
        return
    without_effect = set[str]().union(*(settings for feature, settings in _SETTINGS.items() if feature in missing))
    if job.max_steps is not None:
        without_effect.add("epochs")
    if not job.eval_every:
        without_effect |= {"evaluated", "eval_batch"}
    if set(LOGGED) <= set(missing):
        without_effect.add("log_every")
    changed = {name for name, value in _DEFAULTS.items() if value is not MISSING and getattr(job, name) != value}
    if unread := sorted(changed - without_effect - TrackedJob.read):
        hints = (f"job.{name}: use it{_alternative(name)}" for name in unread)
        raise SkipTest(f"the adapter does not read {'; '.join(hints)}")


def feature_of(setting: str) -> str:
    """Return the feature of a setting of a job; a name that is not in `FEATURES` if all loops have the setting."""
    return _FEATURES.get(setting, setting)


def _alternative(setting: str) -> str:
    """Return advice for an adapter whose loop does not have a setting; "" if all loops have the setting."""
    if setting == "seed":
        return ", as by `torch.manual_seed(job.seed)` for a loop without a seed parameter"
    feature = feature_of(setting)
    if feature not in FEATURES:
        return ""
    schedule = " (for another schedule: read it, and define `expected_rate`)" if setting == "schedule" else ""
    # An opt-in feature is tried only if `features` says True.
    hint = f"leave `{feature}` out of `features`" if feature in OPT_IN else f"name `{feature}` as missing in `features`"
    return f"{schedule}, or {hint}"


_RUN_SEEDS = itertools.count(1000)
"""Seeds of the default generator, a new one before each run; see `observe`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The report of a trainer together with the recorded steps.

    Fields without a comment are documented in `Report`. Names of examples are their first tokens.
    """

    job: Job
    steps: tuple[Step, ...]
    # For each forward in eval mode, the names of its examples.
    evaluated: tuple[tuple[int, ...], ...]
    # The number of forwards in eval mode before the first step and the first forward in training mode with gradients.
    initial_evaluations: int
    # The names in each forward in eval mode while gradients were enabled.
    eval_with_grad: tuple[tuple[int, ...], ...]
    # The names in each forward in training mode while gradients were disabled.
    train_without_grad: tuple[tuple[int, ...], ...]
    # The names in each forward in training mode with gradients that no step followed.
    leftover: tuple[tuple[int, ...], ...]
    # The rows of forwards in training mode that were called with a mask [B, T] of zeros and ones, not only zeros.
    masked: tuple[MaskedRow, ...]
    # The largest number of tokens of a row in training mode.
    width: int
    # The weights, and their running average, at the end of the run.
    weights: Mapping[str, Tensor]
    average: Mapping[str, Tensor]
    # The weights of the best checkpoint; {} if none is reported.
    best_weights: Mapping[str, Tensor]
    # Whether the average and the weights have the same storage.
    shared: bool
    # Whether embedding and head are one parameter at the end of the run.
    tied: bool
    logs: tuple[Mapping[str, float], ...]
    evaluations: tuple[tuple[int, float], ...]
    events: tuple[str, ...]
    checkpoints: Mapping[int, Path]
    final_step: int | None
    best: int | None
    # The number of steps before the checkpoint from which the run was resumed.
    done: int = 0
    # The number of processes and threads that the run started.
    started: int = 0

    def before(self, k: int) -> Mapping[str, Tensor]:
        """Return the weights before the step at index k, by name.

        In a resumed run, the weights before the first step are recorded by the first forward in training mode. The
        result is {} if there is no such forward.
        """
        if k:
            return self.steps[k - 1].weights
        if self.job.resume is None:
            return START
        return self.steps[0].weights_before if self.steps else {}

    def sums(self, k: int, names: Iterable[int] | None = None, smoothing: float = 0.0) -> Sums:
        """Return the sums over examples at the weights before the step at index k.

        Args:
            k: The index of the step.
            names: The names of the examples; None for the examples of the step.
            smoothing: The label smoothing.
        """
        return sums(self.before(k), self.examples(self.steps[k].names if names is None else names), smoothing)

    def batch_sums(self, k: int) -> list[Sums]:
        """Return the sums of each micro-batch of the step at index k."""
        return [self.sums(k, batch) for batch in self.steps[k].batches]

    def examples(self, names: Iterable[int]) -> list[Example]:
        """Return the examples with these names, cropped to `job.crop` tokens."""
        return [example.cropped(self.job.crop) for example in self.uncropped(names)]

    def uncropped(self, names: Iterable[int]) -> list[Example]:
        """Return the examples with these names, not cropped. Raise SkipTest for a name that no example has."""
        by_name = {example.name: example for example in (*self.job.train, *self.job.evaluated)}
        names = list(names)
        if unknown := [name for name in names if name not in by_name]:
            raise SkipTest(
                f"a row of the model's input begins with the token {unknown[0]}, which is the name of no example: "
                "pass the rows unchanged, without an additional first token"
            )
        return [by_name[name] for name in names]

    @property
    def order(self) -> list[tuple[int, ...]]:
        """Return the names of the examples of each step."""
        return [step.names for step in self.steps]


def observe(trainer: Trainer, job: Job) -> Run:
    """Run a job from an arbitrary random state, since a reproducible trainer must set all seeds itself.

    Raises:
        SkipTest: The adapter ignores a setting of the job, the run does not end, or the weights change although no step
            of an optimizer of torch is observed.
        TypeError: The adapter returns no report.
    """
    # A different seed before every run: a trainer that does not seed itself gives different runs.
    torch.manual_seed(next(_RUN_SEEDS))
    recorded = start_recording()
    # A hook after the step, since a closure may compute the gradient inside the step.
    handle = register_optimizer_step_post_hook(recorded.note_step)
    try:
        with limited(job.directory.with_name("unfinished"), lambda: recorded.forwards), _counted_starts() as started:
            report = trainer.run(track_reads(job))
    except Unfinished as error:
        hint = "" if job.max_steps else "; if the loop counts only steps, name `epochs` as missing in `features`"
        raise Unfinished(f"{error}{hint}") from None
    finally:
        handle.remove()
    if not isinstance(report, Report):
        raise TypeError(f"{type(trainer).__qualname__}.run(job) returned {report!r:.80}: expected a Report")
    refuse_unread(job, missing_features(trainer))
    probe = probe_of(report.model)
    # An update rule outside of torch.optim calls no hook, so no step is recorded.
    if not recorded.steps and job.resume is None and not _is_start(weights_of(report.model)):
        raise SkipTest("the weights change, but no torch.optim.Optimizer takes a step: other steps are not recorded")
    return Run(
        job=job,
        steps=tuple(recorded.steps),
        evaluated=tuple(recorded.evaluated),
        initial_evaluations=recorded.initial_evaluations,
        eval_with_grad=tuple(recorded.eval_with_grad),
        train_without_grad=tuple(recorded.train_without_grad),
        leftover=tuple(recorded.pending),
        masked=tuple(recorded.masked),
        width=recorded.width,
        weights=weights_of(report.model),
        average=weights_of(report.average) if report.average is not None else {},
        best_weights=weights_of(report.best_model) if report.best_model is not None else {},
        shared=report.average is not None and _storage(report.average) == _storage(report.model),
        tied=probe.head.weight is probe.embed.weight,
        logs=tuple(report.logs),
        evaluations=tuple(report.evaluations),
        events=tuple(report.events),
        checkpoints=dict(report.checkpoints),
        final_step=report.final_step,
        best=report.best,
        started=len(started),
    )


@contextmanager
def _counted_starts() -> Iterator[list[object]]:
    """Yield a list that gets the type of every process and thread that is started inside the context.

    Such processes and threads are, for example, the workers of a data loader.
    """
    started: list[object] = []

    def counting(start: Callable[..., object]) -> object:
        def start_and_count(self: object) -> None:
            started.append(type(self))
            start(self)

        return start_and_count

    originals: list[tuple[Any, Any]] = [(kind, kind.start) for kind in (BaseProcess, threading.Thread)]
    try:
        for kind, start in originals:
            kind.start = counting(start)
        yield started
    finally:
        for kind, start in originals:
            kind.start = start


def _storage(model: nn.Module) -> int:
    """Return the memory address of the weights of the head."""
    return probe_of(model).head.weight.data_ptr()


def _is_start(weights: Mapping[str, Tensor]) -> bool:
    """Return whether weights equal the initial weights, up to rounding to float32."""
    return all(torch.allclose(weight.double(), START[name], rtol=1e-6) for name, weight in weights.items())
