"""Wrong versions of public functions: the faults that the contract declares."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any


@contextmanager
def modes_not_restored(module: Any) -> Iterator[None]:
    module.eval()
    yield


def best_forgotten(original: Any, self: Any, *arguments: Any) -> Any:
    run = original(self, *arguments)
    self.best.best = None
    return run


def saved_where_due(original: Any, self: Any, run: Any, metrics_length: int) -> Any:
    if not run.due:
        self.best.note(run.state.position.step, run.state.validation)
        return None
    return original(self, replace(run, evaluated=run.evaluated), metrics_length)


def any_metric_accepted(metric: str, accept_depth: int, **options: Any) -> None:
    """Wait for the first evaluation."""


def share_of_one_rank(original: Any, *arguments: Any, parallel: Any = None, **rest: Any) -> Any:
    if parallel is None:
        return original(*arguments, **rest)

    class Alone:
        rank, world_size = parallel.rank, parallel.world_size

        def sum_metrics(self, sums: Any) -> Any:
            return sums

        sum_counts = sum_metrics

    return original(*arguments, parallel=Alone(), **rest)


def nan_becomes_best(original: Any, self: Any, context: Any) -> Any:
    if self.best is None and self.metric in context.validation_metrics:
        value = context.validation_metrics[self.metric]
        if math.isnan(value):
            self.best = value
            return None
    return original(self, context)


def nan_ignored(original: Any, self: Any, context: Any) -> Any:
    return None if math.isnan(context.validation_metrics.get(self.metric, 0)) else original(self, context)


def prompts_crossed(original: Any, agreed: Any, scored: Any, segments: Any, depth: int) -> Any:
    return original(agreed | ~scored, scored | True, segments, depth)


def shares_of_batches(original: Any, agreed: Any, scored: Any, segments: Any, depth: int) -> Any:
    hits, trials = original(agreed, scored, segments, depth)
    return [hit / trial.clamp(min=1) for hit, trial in zip(hits, trials, strict=True)], [
        trial.clamp(max=1) for trial in trials
    ]


def one_more(original: Any, shares: Any) -> float:
    return float(original(shares)) + 1


def sum_of_shares(original: Any, shares: Any) -> float:
    return float(sum(shares))


def latest_for_best(original: Any, directory: Any, resume: Any, **options: Any) -> Any:
    return original(directory, type(directory)("latest") if str(resume) == "best" else resume, **options)


def sums_unchecked(sums: Any, owner: str) -> None:
    """Accept whatever an evaluation returns."""


def drafts_of_one_rank(original: Any, *arguments: Any, parallel: Any = None, accept_depth: int = 0, **rest: Any) -> Any:
    if parallel is None or not accept_depth:
        return original(*arguments, accept_depth=accept_depth, **rest)

    class Parallel:
        rank, world_size = parallel.rank, parallel.world_size

        def sum_metrics(self, numbers: Any) -> Any:
            return self.all_but_drafts(parallel.sum_metrics, numbers)

        def sum_counts(self, numbers: Any) -> Any:
            return self.all_but_drafts(parallel.sum_counts, numbers)

        def all_but_drafts(self, over_ranks: Any, numbers: Any) -> Any:
            summed = over_ranks(numbers.clone())
            summed[-accept_depth:] = numbers[-accept_depth:]
            return summed

    return original(*arguments, parallel=Parallel(), accept_depth=accept_depth, **rest)
