"""Wrong versions of functions of `plan`. They do not import the loop, which would import the unchanged plan."""

from collections.abc import Callable, Iterator, Sequence

from pv.suites.training_loop import plan
from pv.suites.training_loop.job import Job

Windows = list[Sequence[Sequence[int]]]


def first_order(original: Callable[[Job, int], Iterator[Windows]], job: Job, done: int) -> Iterator[Windows]:
    """Go on with the order of the first epoch in the epoch that was cut."""
    for number, left in enumerate(original(job, done)):
        whole = plan.epoch_windows(job, 0)
        cut = done % len(whole) if number == 0 else 0
        yield whole[cut:][: len(left)] if cut else left


def first_order_next(original: Callable[[Job, int], Iterator[Windows]], job: Job, done: int) -> Iterator[Windows]:
    """Go on with the order of the first epoch in the epochs after the one that was cut."""
    whole = plan.epoch_windows(job, 0)
    for number, left in enumerate(original(job, done)):
        follows = done and (number or done % len(whole) == 0)
        yield whole[: len(left)] if follows else left


def loses_an_epoch(original: Callable[[Job, int], Iterator[Windows]], job: Job, done: int) -> Iterator[Windows]:
    """Take one epoch less if an epoch ended with the step of the checkpoint."""
    skipped = done > 0 and done % len(plan.epoch_windows(job, 0)) == 0
    yield from list(original(job, done))[skipped:]


def place_in_full_windows(original: Callable[[Job, int], Iterator[Windows]], job: Job, done: int) -> Iterator[Windows]:
    """Compute the place of a cut as if the last window of every epoch were full."""
    epoch = plan.epoch_windows(job, 0)
    full, taken = divmod(done * job.accumulate, sum(map(len, epoch)))
    yield from original(job, full * len(epoch) + taken // job.accumulate)


def steps_after_the_end(original: Callable[[Job, int], Iterator[Windows]], job: Job, done: int) -> Iterator[Windows]:
    """Take another epoch when a finished run is resumed."""
    yield from original(job, done)
    if job.resume and done == plan.planned_steps(job):
        yield plan.epoch_windows(job, 0)


def decay_from_the_first_step(original: Callable[[Job, int, int], float], job: Job, done: int, planned: int) -> float:
    """Count the decay from the first step."""
    if job.schedule == "constant" or done < job.warmup:
        return original(job, done, planned)
    return max(0.0, (planned - done) / planned)
