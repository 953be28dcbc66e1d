"""Evaluations during a run: their metrics, and the best step by one of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from reference_trainer.distillation.metrics import EVALUATED, derived
from reference_trainer.distillation.providers import evaluating
from reference_trainer.distillation.step import MetricSum
from reference_trainer.errors import SettingError
from reference_trainer.storage.retention import Best, update_best
from reference_trainer.training.evaluation import evaluated_names
from reference_trainer.training.randomness import own_generators

__all__ = ["BestTracker", "check_metric", "check_sums", "evaluation", "evaluation_mode"]


@contextmanager
def evaluation_mode(modules: Iterable[nn.Module], device: torch.device) -> Iterator[None]:
    """Run the block with the modules in eval mode and without a graph.

    Their flags and the default generators of the CPU and of `device` are restored afterwards, also after an exception.
    """
    with ExitStack() as stack:
        stack.enter_context(own_generators(device))
        stack.enter_context(torch.no_grad())
        for module in modules:
            stack.enter_context(evaluating(module))
        yield


def check_sums(sums: Mapping[str, MetricSum], owner: str) -> None:
    """Raise `SettingError` unless `sums` is what an `evaluate` returns: `MetricSum` of Python numbers, by name."""
    if not isinstance(sums, Mapping):
        raise SettingError(f"{owner}.evaluate returned {type(sums).__name__}; expected a dict of MetricSum")
    for name, total in sums.items():
        if not isinstance(total, MetricSum) or type(total.sum) not in (float, int) or type(total.count) is not int:
            raise SettingError(
                f"{owner}.evaluate returned {total!r} for {name!r}; expected MetricSum(sum: float, count: int)"
            )


def evaluation(sums: Mapping[str, MetricSum]) -> dict[str, float]:
    """Return the metrics of an evaluation, by their names with the prefix `eval/`; empty if no token was scored."""
    return {f"{EVALUATED}{name}": value for name, value in derived(sums).items()}


def check_metric(metric: str, accept_depth: int, *, whole: bool = True, user: str = "best_metric") -> None:
    """Raise `SettingError` for a metric that `training.evaluation.evaluate` does not measure to this depth.

    whole: whether the teacher has every logit. user: the setting or callback that looks at the metric.
    """
    known = evaluation({name: MetricSum(0.0, 1) for name in evaluated_names(accept_depth, whole=whole)})
    if metric not in known:
        raise _unknown(metric, known, user, "" if whole else " with top-k outputs of a teacher")


def _unknown(metric: str, known: Iterable[str], user: str, where: str = "") -> SettingError:
    names = ", ".join(sorted(known))
    return SettingError(f"unknown metric {metric!r} for {user!r}{where} (choose from {names})")


@dataclass(slots=True, kw_only=True)
class BestTracker:
    """The best evaluated step so far, by `metric`, such as `eval/hard_loss`; mode and min_delta: see `update_best`.

    A resumed run begins with the best that its checkpoint recorded.
    """

    metric: str
    mode: str
    min_delta: float
    best: Best | None = None

    def note(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Note the metrics of an evaluation, and return whether the step is the best so far.

        Without metrics it is not: nothing was scored. Raise `SettingError` if only the metric is missing.
        """
        if not metrics:
            return False
        if self.metric not in metrics:
            raise _unknown(self.metric, metrics, "best_metric")
        before = self.best
        score = metrics[self.metric]
        self.best = update_best(before, step=step, score=score, mode=self.mode, min_delta=self.min_delta)
        return self.best is not before
