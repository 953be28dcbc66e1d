"""Wrong versions of public functions: the faults that the contract declares."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from falsifiers.support.faults import changed_pass, scored_tokens


def _scaled(student: Any, factors: Sequence[float]) -> Any:
    """Return the student with the gradient of its k-th pass multiplied by the k-th factor."""
    rest = iter(factors)

    def forward(batch: Any) -> Any:
        factor = next(rest)
        return changed_pass(student.forward(batch), lambda gradient: gradient * factor)

    return SimpleNamespace(vocab_size=student.vocab_size, forward=forward)


def _rescaled(
    original: Any, teacher: Any, student: Any, batches: Any, *rest: Any, by: Callable[[int, int], float], **named: Any
) -> Any:
    """Multiply each gradient by by(scored tokens of its micro-batch, scored tokens of the window)."""
    counts = [scored_tokens(batch) for batch in batches]
    return original(teacher, _scaled(student, [by(count, sum(counts)) for count in counts]), batches, *rest, **named)


def means_averaged(original: Any, teacher: Any, student: Any, batches: Any, *rest: Any, **named: Any) -> Any:
    n = len(batches)
    return _rescaled(original, teacher, student, batches, *rest, by=lambda count, total: total / count / n, **named)


def means_summed(original: Any, *models: Any, **named: Any) -> Any:
    return _rescaled(original, *models, by=lambda count, total: total / count, **named)


def divided_by_tokens_again(original: Any, *models: Any, **named: Any) -> Any:
    return _rescaled(original, *models, by=lambda count, total: 1 / total, **named)


def padding_counted(original: Any, teacher: Any, student: Any, batches: Any, *rest: Any, **named: Any) -> Any:
    positions = max(sum(batch.labels[:, 1:].numel() for batch in batches), 1)
    return _rescaled(original, teacher, student, batches, *rest, by=lambda count, total: total / positions, **named)


def a_window_for_each_micro_batch(
    original: Any, teacher: Any, student: Any, batches: Any, *rest: Any, **named: Any
) -> Any:
    windows = [original(teacher, student, [batch], *rest, **named) for batch in batches]
    sums = {name: sum(window.sums[name] for window in windows) for name in windows[0].sums}
    counts = {name: sum(getattr(window, name) for window in windows) for name in ("count", "total", "sequences")}
    return replace(windows[0], sums=sums, **counts)


def own_tokens_are_the_divisor(original: Any, *models: Any, parallel: Any = None, **named: Any) -> Any:
    if parallel is None:
        return original(*models, **named)
    alone = SimpleNamespace(
        gradient_factor=parallel.gradient_factor, micro_batch=parallel.micro_batch, sum_counts=lambda counts: counts
    )
    parallel.sum_counts(torch.zeros(4, dtype=torch.int64))
    return original(*models, parallel=alone, **named)


def mean_of_means_in_a_window(original: Any, teacher: Any, student: Any, batches: Any, *rest: Any, **named: Any) -> Any:
    window = original(teacher, student, batches, *rest, **named)
    still = _scaled(student, [0.0] * len(batches))
    options = {name: value for name, value in named.items() if name == "metrics"}
    means = [original(teacher, still, [batch], *rest, **options).sums for batch in batches]
    counts = [scored_tokens(batch) for batch in batches]
    sums = {
        name: window.count * sum(mean[name] / count for mean, count in zip(means, counts, strict=True)) / len(batches)
        for name in window.sums
    }
    return replace(window, sums=sums)


def nothing_divided_by_nothing(
    original: Any, teacher: Any, student: Any, batches: Any, *rest: Any, **named: Any
) -> Any:
    nothing = not any((batch.labels[:, 1:] != -100).any() for batch in batches)
    factor = float("nan") if nothing else 1.0
    return original(teacher, _scaled(student, [factor] * len(batches)), batches, *rest, **named)


def open_epoch_left_open(original: Any, schedule: Any, position: Any, action: Any) -> Any:
    after = original(schedule, position, action)
    left = after is not None and after.stopping and after.event.name == "EPOCH_END"
    return replace(after, event=type(after.event).TRAIN_END) if left else after


def partial_window_dropped(original: Any, micro_batches: int, accumulation: int) -> int:
    full: int = original(micro_batches - accumulation + 1, accumulation)
    return max(full, 1)


def window_beyond_the_epoch(original: Any, schedule: Any, epoch_step: int) -> range:
    return range(original(schedule, epoch_step).start, schedule.accumulation * epoch_step + 1)


def multiples_saved_only(original: Any, schedule: Any, step: int) -> Any:
    return original(schedule, step) and step % schedule.save_every == 0


def cosine_of_another_horizon(original: Any, step: int, *, warmup: int, **rest: Any) -> Any:
    return original(max(step, 2 * step - warmup), warmup=warmup, **rest)


def warmup_off_by_one(original: Any, step: int, **rest: Any) -> Any:
    return original(step - 1, **rest)


def decay_over_the_whole_run(
    original: Any, step: int, *, total: int, shape: str = "cosine", decay: Any = None, **rest: Any
) -> Any:
    if shape == "wsd" and decay is not None:
        step = min(step, max(0, total - decay) + (step - max(0, total - decay)) * min(decay, total) // total)
    return original(step, total=total, shape=shape, decay=decay, **rest)
