"""The decisions of a correct training loop: order of the rows, steps, rates, and which checkpoints stay."""

import math
import random
from collections.abc import Iterable, Iterator, Sequence

from pv.suites.training_loop.job import Example, Job


def order(examples: int, seed: int, epoch: int) -> list[int]:
    """Return the order of the examples in an epoch. Epochs count from 0."""
    # repr of the pair: seed + epoch would give neighbouring seeds the same orders.
    return random.Random(repr((seed, epoch))).sample(range(examples), examples)


def crop_example(example: Example, crop: int | None) -> Example:
    """Return the tokens of an example that are used."""
    return example.cropped(crop)


def batches(rows: Sequence[int], size: int) -> list[Sequence[int]]:
    """Return the micro-batches of an epoch; the last one may be smaller."""
    return [rows[i : i + size] for i in range(0, len(rows), size)]


def windows(epoch: Sequence[Sequence[int]], accumulate: int) -> list[Sequence[Sequence[int]]]:
    """Return the micro-batches of each optimizer step of an epoch; the last step may have fewer."""
    return [epoch[i : i + accumulate] for i in range(0, len(epoch), accumulate)]


def epoch_windows(job: Job, epoch: int) -> list[Sequence[Sequence[int]]]:
    """Return the row numbers of each micro-batch of each step of an epoch."""
    return windows(batches(order(len(job.train), job.seed, epoch), job.batch), job.accumulate)


def planned_steps(job: Job) -> int:
    """Return the number of steps of a run that is not stopped."""
    return job.max_steps or job.epochs * len(epoch_windows(job, 0))


def rest(windows: list[Sequence[Sequence[int]]], taken: int) -> list[Sequence[Sequence[int]]]:
    """Return the windows of an epoch that remain after the first `taken`."""
    return windows[taken:]


def remaining(job: Job, done: int) -> Iterator[list[Sequence[Sequence[int]]]]:
    """Yield the windows of each epoch that are left after `done` steps."""
    steps, planned = len(epoch_windows(job, 0)), planned_steps(job)
    while done < planned and steps:
        # The position follows from the number of steps alone, so a checkpoint needs to store nothing else.
        epoch, taken = divmod(done, steps)
        left = rest(epoch_windows(job, epoch), taken)[: planned - done]
        yield left
        done += len(left)


def due(step: int, every: int) -> bool:
    """Return whether an action with the cadence `every` is due after this step; 0 is never."""
    return every > 0 and step % every == 0


def stops(job: Job, step: int) -> bool:
    """Return whether a callback asks to stop after this step."""
    return step == job.stop_at


def factor(job: Job, done: int, planned: int) -> float:
    """Return the factor of the rate in the step after `done` steps: linear warm-up, then linear decay."""
    if job.schedule == "constant":
        return 1.0
    if done < job.warmup:
        return done / job.warmup
    return max(0.0, (planned - done) / max(1, planned - job.warmup))


def better(best: tuple[float, int] | None, evaluation: tuple[int, float]) -> tuple[float, int] | None:
    """Return the least loss and its step. NaN is never the least."""
    # best <= new keeps the first of equal losses; NaN compares false with everything, so ask for it first.
    if math.isnan(evaluation[1]) or (best is not None and best[0] <= evaluation[1]):
        return best
    return evaluation[1], evaluation[0]


def checkpoints_to_keep(saved: Iterable[int], keep: int | None, best: int | None) -> set[int | None]:
    """Return which checkpoints stay: the newest, and the best."""
    return {*sorted(saved)[-keep:], best} if keep else {*saved}
