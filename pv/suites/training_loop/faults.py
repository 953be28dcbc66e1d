"""Faults of the suite's loop that no edit of one expression makes. `original` is the replaced function."""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pv.suites.training_loop import loop
from pv.suites.training_loop.job import Job, Report, probe_of
from pv.suites.training_loop.loop import Batch, Loop, Saved, State, Sums, Training, due
from pv.suites.training_loop.probe import token_loss

Windows = list[Sequence[Sequence[int]]]
Loads = Callable[[Job, Windows], Iterator[list[Batch]]]


def no_partial_step(
    original: Callable[[Training, Sequence[Batch]], None], training: Training, window: Sequence[Batch]
) -> None:
    """Take no step after a window with fewer micro-batches than the others."""
    if len(window) == training.job.accumulate:
        original(training, window)
    else:
        loop.backward(training, window)
        training.state.step += 1


def average_left_in_place(
    original: Callable[[Training, Sequence[Batch]], None], training: Training, window: Sequence[Batch]
) -> None:
    """Leave the running average, which is evaluated, in the model."""
    original(training, window)
    if due(training.state.step, training.job.eval_every):
        training.model.load_state_dict(training.average.state_dict())


def pads_on_the_left(
    original: Callable[[Training, Sequence[Batch]], list[Sums]], training: Training, window: Sequence[Batch]
) -> list[Sums]:
    """Pad on the left, so that the padding predicts a first label that is set."""
    return original(training, [_padded_left(batch) for batch in window])


def _padded_left(batch: Batch) -> Batch:
    missing = (batch["attention_mask"] == 0).sum(1).tolist()
    return {name: torch.stack(list(map(torch.roll, rows, missing))) for name, rows in batch.items()}


def gradient_stays_after_overflow(
    original: Callable[[Training, Sequence[Batch]], list[Sums]], training: Training, window: Sequence[Batch]
) -> list[Sums]:
    """Add to a gradient that is not finite, in place of clearing it."""
    kept = [parameter.grad.clone() for parameter in loop.trained(training.model) if parameter.grad is not None]
    sums = original(training, window)
    for parameter, old in zip(loop.trained(training.model), kept, strict=False):
        if parameter.grad is not None and not old.isfinite().all():
            parameter.grad += old
    return sums


def zeroes_what_is_not_finite(
    original: Callable[[Training, Sequence[Batch]], list[Sums]], training: Training, window: Sequence[Batch]
) -> list[Sums]:
    """Replace what is not finite in the gradient and in the losses by 0."""
    sums = original(training, window)
    for parameter in loop.trained(training.model):
        if parameter.grad is not None:
            parameter.grad.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
    return [(nats if math.isfinite(nats) else 0.0, tokens) for nats, tokens in sums]


# A real fault of custom optimizers: state outside of `optimizer.state` is not in `state_dict`.
class MomentsInAnAttribute(torch.optim.Optimizer):
    """SGD with momentum, which it keeps where no `state_dict` has it."""

    def __init__(self, params: list[dict[str, object]], lr: float) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": 0.0})
        self.moments: dict[Tensor, Tensor] = {}

    @torch.no_grad()
    def step(self, closure: object = None) -> Any:
        """Update the parameters that have a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    moment = (
                        self.moments.setdefault(parameter, torch.zeros_like(parameter)).mul_(0.9).add_(parameter.grad)
                    )
                    parameter.mul_(1 - group["lr"] * group["weight_decay"]).sub_(moment, alpha=group["lr"])


def moments_in_an_attribute(
    original: Callable[[Job, nn.Module], torch.optim.Optimizer], job: Job, model: nn.Module
) -> torch.optim.Optimizer:
    """Keep the moments of the optimizer in an attribute."""
    if job.optimizer == "sgd":
        return original(job, model)
    return MomentsInAnAttribute(loop.groups(job, model), lr=job.rate)


def all_in_training_mode(original: Callable[[Mapping[nn.Module, bool]], None], modes: Mapping[nn.Module, bool]) -> None:
    """Put every module in training mode, also those that were not."""
    for module in modes:
        module.train()


def evaluates_late(
    original: Callable[[Training, Sequence[Batch]], None], training: Training, window: Sequence[Batch]
) -> None:
    """Evaluate every n + 1 steps."""
    every = training.job.eval_every
    original(replace(training, job=replace(training.job, eval_every=every and every + 1)), window)


def clips_all_but_the_first(
    original: Callable[[Iterable[Tensor], float | None], float], parameters: Iterable[Tensor], limit: float | None
) -> float:
    """Clip the gradient without its first parameter."""
    return original(list(parameters)[1:], limit)


def all_tokens(original: Callable[[Tensor], int], labels: Tensor) -> int:
    """Count all positions that have a token before them."""
    return labels[:, 1:].numel()


def log_keeps_its_tokens(
    original: Callable[..., dict[str, float]], step: int, since: list[list[Sums]], rate: float, norm: float
) -> dict[str, float]:
    """Divide by the tokens of all steps, as if each had as many."""
    row = original(step, since, rate, norm)
    return row | {"loss": row["loss"] * len(since) / step}


def planned_window(
    original: Callable[[Training, Sequence[Batch]], list[Sums]], training: Training, window: Sequence[Batch]
) -> list[Sums]:
    """Divide by the planned number of micro-batches."""
    sums = original(training, window)
    _scale(training, len(window) / training.job.accumulate)
    return sums


def _scale(training: Training, by: float) -> None:
    for parameter in loop.trained(training.model):
        if parameter.grad is not None:
            parameter.grad *= by


def mean_over_examples(
    original: Callable[[Training, Sequence[Batch]], list[Sums]], training: Training, window: Sequence[Batch]
) -> list[Sums]:
    """Average the means of the examples."""
    training.optimizer.zero_grad()
    sums, examples = [], sum(len(batch["labels"]) for batch in window)
    for batch in window:
        logits, labels = training.model(batch["input_ids"]), batch["labels"]
        rows = [
            (token_loss(logits[i : i + 1], row[None], "sum"), loop.scored(row[None])) for i, row in enumerate(labels)
        ]
        (torch.stack([nats / max(count, 1) for nats, count in rows]).sum() / examples).backward()
        sums.append((sum(float(nats.detach()) for nats, _ in rows), sum(count for _, count in rows)))
    return sums


def partial_mean_of_means(
    original: Callable[[Training, Sequence[Batch]], list[Sums]], training: Training, window: Sequence[Batch]
) -> list[Sums]:
    """Average the means of the micro-batches where the window has fewer of them than planned."""
    if len(window) == training.job.accumulate:
        return original(training, window)
    return _each(training, window, lambda count: 1 / (max(count, 1) * len(window)), lambda: None)


def clips_micro_batches(
    original: Callable[[Training, Sequence[Batch]], list[Sums]], training: Training, window: Sequence[Batch]
) -> list[Sums]:
    """Clip after each micro-batch."""
    total = sum(loop.scored(batch["labels"]) for batch in window) or 1
    return _each(
        training, window, lambda _: 1 / total, lambda: loop.clip(loop.trained(training.model), training.job.clip)
    )


def _each(
    training: Training, window: Sequence[Batch], factor: Callable[[int], float], then: Callable[[], object]
) -> list[Sums]:
    """Compute the gradient with a factor for each micro-batch by its scored tokens, and act after each."""
    training.optimizer.zero_grad()
    sums = []
    for batch in window:
        count, nats = loop.scored(batch["labels"]), loop.loss_sum(training.model, batch)
        (nats * factor(count)).backward()
        then()
        sums.append((float(nats.detach()), count))
    return sums


def next_rate(original: Callable[[Training], float], training: Training) -> float:
    """Return the rate of the next step."""
    original(training)
    return float(training.scheduler.get_last_lr()[0])


def stays_in_eval_mode(original: Callable[[Job, nn.Module], float], job: Job, model: nn.Module) -> float:
    """Leave the model in eval mode."""
    loss = original(job, model)
    model.eval()
    return loss


def draws_in_evaluation(original: Callable[[Job, nn.Module], float], job: Job, model: nn.Module) -> float:
    """Draw from the random numbers of the training."""
    torch.rand(())
    return original(job, model)


def fetches_before_restoring(original: Loads, job: Job, epoch: Windows) -> Iterator[list[Batch]]:
    """Fetch the first batch of a resumed run twice: before the random state is restored, and after."""
    if job.resume:
        job.collate([job.train[i] for i in epoch[0][0]])
    yield from original(job, epoch)


def loses_last_event(original: Callable[[Training, str], None], training: Training, event: str) -> None:
    """Lose the end of the last step of an epoch."""
    if event == "epoch_end":
        training.events.pop()
    original(training, event)


def batches_of_every_worker(original: Loads, job: Job, epoch: Windows) -> Iterator[list[Batch]]:
    """Let every worker read all data."""
    for window in original(job, epoch):
        yield from [window] * max(job.workers, 1)


def schedules_first_group(original: Callable[[Training], float], training: Training) -> float:
    """Schedule the rate of the first parameter group only."""
    rate = original(training)
    for group in training.optimizer.param_groups[1:]:
        group["lr"] = group["initial_lr"]
    return rate


def steps_twice(original: Callable[[Training], float], training: Training) -> float:
    """Let the optimizer take every step twice."""
    rate = original(training)
    training.optimizer.step()
    return rate


def scale_keeps_growing(original: Callable[[Training], float], training: Training) -> float:
    """Let the scale grow after every step, once it has grown."""
    before = training.scaler.get_scale()
    rate = original(training)
    if training.scaler.get_scale() > before:
        training.scaler.set_growth_interval(1)
    return rate


def averages_first(original: Callable[[Training], float], training: Training) -> float:
    """Update the average of the weights before the step."""
    loop.average(training.average, training.model, training.job.average)
    before = copy.deepcopy(training.average.state_dict())
    rate = original(training)
    training.average.load_state_dict(before)
    return rate


def counts_one_more(original: Callable[[Training], Report], training: Training) -> Report:
    """Report one step too many."""
    count = original(training)
    count.final_step = training.state.step + 1
    return count


def first_order(original: Callable[[Job, int], Iterator[Windows]], job: Job, done: int) -> Iterator[Windows]:
    """Go on with the order of the first epoch in the epoch that was cut."""
    for number, left in enumerate(original(job, done)):
        whole = loop.epoch_windows(job, 0)
        cut = done % len(whole) if number == 0 else 0
        yield whole[cut:][: len(left)] if cut else left


def first_order_next(original: Callable[[Job, int], Iterator[Windows]], job: Job, done: int) -> Iterator[Windows]:
    """Go on with the order of the first epoch in the epochs after the one that was cut."""
    whole = loop.epoch_windows(job, 0)
    for number, left in enumerate(original(job, done)):
        follows = done and (number or done % len(whole) == 0)
        yield whole[: len(left)] if follows else left


def loses_an_epoch(original: Callable[[Job, int], Iterator[Windows]], job: Job, done: int) -> Iterator[Windows]:
    """Take one epoch less if an epoch ended with the step of the checkpoint."""
    skipped = done > 0 and done % len(loop.epoch_windows(job, 0)) == 0
    yield from list(original(job, done))[skipped:]


def place_in_full_windows(original: Callable[[Job, int], Iterator[Windows]], job: Job, done: int) -> Iterator[Windows]:
    """Compute the place of a cut as if the last window of every epoch were full."""
    epoch = loop.epoch_windows(job, 0)
    full, taken = divmod(done * job.accumulate, sum(map(len, epoch)))
    yield from original(job, full * len(epoch) + taken // job.accumulate)


def steps_after_the_end(original: Callable[[Job, int], Iterator[Windows]], job: Job, done: int) -> Iterator[Windows]:
    """Take another epoch when a finished run is resumed."""
    yield from original(job, done)
    if job.resume and done == loop.planned_steps(job):
        yield loop.epoch_windows(job, 0)


def decay_from_the_first_step(original: Callable[[Job, int, int], float], job: Job, done: int, planned: int) -> float:
    """Count the decay from the first step."""
    if job.schedule == "constant" or done < job.warmup:
        return original(job, done, planned)
    return max(0.0, (planned - done) / planned)


def draws_in_save(original: Callable[[Training], None], training: Training) -> None:
    """Draw a random number."""
    torch.rand(())
    original(training)


def saves_late(original: Callable[[Training], None], training: Training) -> None:
    """Save no checkpoint where the first one is due."""
    if training.state.step > training.job.save_every:
        original(training)


def counts_an_epoch_at_the_end(original: Callable[[Training], Saved], training: Training) -> Saved:
    """Count one epoch too many at the end of the run."""
    saved, job = original(training), training.job
    if saved["state"]["step"] == loop.planned_steps(job):
        saved["state"]["step"] += len(loop.epoch_windows(job, 0))
    return saved


def half_a_checkpoint(original: Callable[[Loop, Job], Report], self: Loop, job: Job) -> Report:
    """Save under the final name, and load whatever parts exist."""
    written: dict[str, object] = {
        "save": _save_in_place,
        "restore": _restore_what_is_there,
        "read": _read_what_is_there,
    }
    # A checkpoint without its state begins at step 0, which later checkpoints beside it would refuse.
    written["refuse_later_checkpoints"] = lambda directory, step: None
    vars(loop).update(written)
    return original(self, job)


def _read_what_is_there(directory: Path) -> Saved:
    return {path.stem: torch.load(path, weights_only=True) for path in directory.glob("*.pt")}


def _save_in_place(training: Training) -> None:
    path = training.job.directory / f"step-{training.state.step}"
    path.mkdir(exist_ok=True)
    loop.write(loop.snapshot(training), path)


def _restore_what_is_there(training: Training, saved: Saved) -> None:
    if "model" in saved:
        training.model.load_state_dict(saved["model"])
    if "optimizer" in saved:
        training.optimizer.load_state_dict(saved["optimizer"])
    training.scheduler.last_epoch = saved.get("schedule", 0)
    training.state = State(**saved.get("state", {}))


def restores_one_rate(original: Callable[[Training, Saved], None], training: Training, saved: Saved) -> None:
    """Give every parameter group the rate of the first."""
    original(training, saved)
    for group in training.optimizer.param_groups:
        group["lr"] = training.optimizer.param_groups[0]["lr"]


def unties(original: Callable[[Training, Saved], None], training: Training, saved: Saved) -> None:
    """Untie the head: load its weights into a new parameter."""
    original(training, saved)
    for model in (training.model, training.average):
        head = probe_of(model).head
        head.weight = nn.Parameter(head.weight.detach().clone())
