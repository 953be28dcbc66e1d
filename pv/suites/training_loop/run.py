"""Run a job, and return the report of the trainer together with the recorded steps."""

import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest import SkipTest

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from pv.suites.training_loop.features import missing_features
from pv.suites.training_loop.job import Example, Job, Report, Trainer, probe_of, weights_of
from pv.suites.training_loop.limit import Unfinished, limited
from pv.suites.training_loop.oracle import START
from pv.suites.training_loop.recording import Masked, Step, record
from pv.suites.training_loop.unused_settings import refuse_unread, track_reads

_DISTURBANCE = itertools.count(1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The report of a trainer together with the recorded steps. Fields without a comment are those of `Report`."""

    job: Job
    steps: tuple[Step, ...]
    # The names of the examples in every forward in eval mode.
    evaluated: tuple[tuple[int, ...], ...]
    # The number of forwards in eval mode before the first one in training mode.
    early: int
    # The names in forwards in eval mode with gradients.
    graded: tuple[tuple[int, ...], ...]
    # The names in forwards in training mode without gradients.
    untrained: tuple[tuple[int, ...], ...]
    # The names in forwards in training mode that no step followed.
    leftover: tuple[tuple[int, ...], ...]
    # The rows that had a mask in forwards in training mode.
    masked: tuple[Masked, ...]
    # The largest number of tokens of a row in training mode.
    width: int
    # The weights, and their running average, at the end of the run.
    weights: Mapping[str, Tensor]
    average: Mapping[str, Tensor]
    # The weights of the best checkpoint; {} if none is reported.
    best_weights: Mapping[str, Tensor]
    # Whether the average has the storage of the weights.
    shared: bool
    # Whether embedding and head are one parameter at the end.
    tied: bool
    logs: tuple[Mapping[str, float], ...]
    evaluations: tuple[tuple[int, float], ...]
    events: tuple[str, ...]
    checkpoints: Mapping[int, Path]
    final_step: int | None
    best: int | None
    # The number of steps before the cut of a resumed run.
    done: int = 0
    # The number of processes and threads that the run started.
    started: int = 0

    def before(self, k: int) -> Mapping[str, Tensor]:
        """Return the weights before the step at index k; {} for a resumed run whose first weights were not recorded."""
        if k:
            return self.steps[k - 1].weights
        return START if self.job.resume is None else self.steps[0].first if self.steps else {}

    def named(self, names: Iterable[int]) -> list[Example]:
        """Return the examples with these names, cropped to `job.crop` tokens."""
        return [example.cropped(self.job.crop) for example in self.whole(names)]

    def whole(self, names: Iterable[int]) -> list[Example]:
        """Return the examples with these names, before they are cropped."""
        by_name, names = {example.name: example for example in (*self.job.train, *self.job.evaluated)}, list(names)
        if unknown := [name for name in names if name not in by_name]:
            raise SkipTest(
                f"a row that the model is given begins with the token {unknown[0]}, which is the name of no example: "
                "hand the rows over as they are, without a token of the loop's own before them"
            )
        return [by_name[name] for name in names]

    @property
    def order(self) -> list[tuple[int, ...]]:
        """Return the names in each step."""
        return [step.names for step in self.steps]


def observe(trainer: Trainer, job: Job) -> Run:
    """Run a job from an arbitrary random state: a trainer that claims reproducibility must seed what it uses.

    Raise SkipTest if the adapter ignores a setting of the job, if the run does not end, or if its steps are not seen.
    """
    # A different seed before every run: a trainer that does not seed itself gives different runs.
    torch.manual_seed(next(_DISTURBANCE))
    recorded = record()
    # After the step, since a closure may compute the gradient inside it.
    handle = register_optimizer_step_post_hook(recorded.note_step)
    try:
        with limited(job.directory.with_name("unfinished"), lambda: recorded.forwards), _counted_starts() as started:
            report = trainer.run(track_reads(job))
    except Unfinished as error:
        hint = "" if job.max_steps else "; if the loop counts steps alone, name `epochs` as missing in `features`"
        raise Unfinished(f"{error}{hint}") from None
    finally:
        handle.remove()
    if not isinstance(report, Report):
        raise TypeError(f"{type(trainer).__qualname__}.run(job) returned {report!r:.80}: expected a Report")
    refuse_unread(job, missing_features(trainer))
    probe = probe_of(report.model)
    # Custom update rules outside of torch.optim leave no step to judge.
    if not recorded.steps and job.resume is None and not _is_start(weights_of(report.model)):
        raise SkipTest("the weights change, but no torch.optim.Optimizer takes a step: only those are seen")
    return Run(
        job=job,
        steps=tuple(recorded.steps),
        evaluated=tuple(recorded.evaluated),
        early=recorded.early,
        graded=tuple(recorded.graded),
        untrained=tuple(recorded.untrained),
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
    """Yield a list to which every process or thread that is started inside is added, such as data loader workers."""
    started: list[object] = []

    def counted(start: Any) -> Any:
        def count(self: object) -> None:
            started.append(type(self))
            start(self)

        return count

    kept: list[tuple[Any, Any]] = [(kind, kind.start) for kind in (BaseProcess, threading.Thread)]
    try:
        for kind, start in kept:
            kind.start = counted(start)
        yield started
    finally:
        for kind, start in kept:
            kind.start = start


def _storage(model: nn.Module) -> int:
    return probe_of(model).head.weight.data_ptr()


def _is_start(weights: Mapping[str, Tensor]) -> bool:
    return all(torch.allclose(weight.double(), START[name], rtol=1e-6) for name, weight in weights.items())
