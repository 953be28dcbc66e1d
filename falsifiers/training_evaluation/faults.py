"""Wrong versions of public functions: the faults that the contract `training-evaluation` declares."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any


@contextmanager
def generators_not_restored(device: Any) -> Iterator[None]:
    """Restore no generator."""
    yield


@contextmanager
def modes_not_restored(module: Any) -> Iterator[None]:
    """Leave every submodule in eval mode."""
    module.eval()
    yield


def with_a_graph(original: Any, evaluate: Any, *rest: Any) -> Any:
    """Evaluate with gradients enabled."""
    import torch

    def enabled() -> Any:
        with torch.enable_grad():
            return evaluate()

    return original(enabled, *rest)


_last: list[Any] = []


def metrics_of_the_last_time(original: Any, sums: Any) -> Any:
    """Return the metrics of the evaluation before, if there was one."""
    _last.append(original(sums))
    return _last[-2] if len(_last) > 1 else _last[-1]


def second_line(self: Any, context: Any) -> None:
    """Write a line of its own."""
    from reference_trainer.training.metrics_file import line

    if context.validation_metrics:
        self._length += self._file.write(line(context))


def best_forgotten(original: Any, self: Any, *given: Any) -> Any:
    """Begin without a best."""
    run = original(self, *given)
    self.best.best = None
    return run


def saved_where_due(original: Any, self: Any, run: Any, metrics_length: int) -> Any:
    """Track the best, and save due steps only."""
    if not run.due:
        self.best.note(run.state.position.step, run.state.validation)
        return None
    return original(self, replace(run, evaluated=run.evaluated), metrics_length)


def unknown_metric_ignored(original: Any, self: Any, step: int, metrics: Any) -> Any:
    """Return False for a metric that is not there."""
    return original(self, step, metrics) if self.metric in metrics else False


def any_metric_accepted(metric: str) -> None:
    """Wait for the first evaluation."""


def losses_alone(original: Any, metric: str) -> None:
    """Know the losses, and none of the metrics that are derived from them."""
    from reference_trainer.errors import SettingError

    original(metric)
    if metric.endswith("perplexity"):
        raise SettingError(metric)


def share_of_one_rank(original: Any, *given: Any, parallel: Any = None, **rest: Any) -> Any:
    """Sum over the batches of this rank."""
    if parallel is None:
        return original(*given, **rest)

    class Alone:
        rank, world_size = parallel.rank, parallel.world_size

        def sum_metrics(self, sums: Any) -> Any:
            return sums

        sum_counts = sum_metrics

    return original(*given, parallel=Alone(), **rest)


def first_values(original: Any, settings: Any) -> Any:
    """Give every value without its end."""
    ends = [name for name, _ in settings if name.endswith("_end")]
    return original(settings.model_copy(update=dict.fromkeys(ends)))


def any_evaluation_accepted(sums: Any, owner: str) -> None:
    """Accept whatever an evaluation returns."""
