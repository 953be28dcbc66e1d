"""Faults of the suite's loop that are too large for an edit of one expression.

Each public function is a fault, and replaces a function or method of the module `loop`. Its argument `original` is the
replaced function; the other arguments are the arguments of the replaced function. The contract lists the faults as
`mutants`.
"""

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
# The types of the replaced functions of `loop`.
Load = Callable[[Job, Windows], Iterator[list[Batch]]]
TrainStep = Callable[[Training, Sequence[Batch]], None]
Backward = Callable[[Training, Sequence[Batch]], list[Sums]]
RemainingEpochs = Callable[[Job, int], Iterator[Windows]]
Update = Callable[[Training], float]


def no_partial_step(original: TrainStep, training: Training, window: Sequence[Batch]) -> None:
    """Take no step on a window with fewer micro-batches than planned, but count it as a step."""
    if len(window) == training.job.accumulate:
        original(training, window)
    else:
        loop.backward(training, window)
        training.state.step += 1


def average_left_in_place(original: TrainStep, training: Training, window: Sequence[Batch]) -> None:
    """Leave the running average in the model after each evaluation."""
    original(training, window)
    if due(training.state.step, training.job.eval_every):
        training.model.load_state_dict(training.average.state_dict())


def pads_on_the_left(original: Backward, training: Training, window: Sequence[Batch]) -> list[Sums]:
    """Pad on the left. If the label of the first token is not -100, padding then predicts this token."""
    return original(training, [_padded_left(batch) for batch in window])


def _padded_left(batch: Batch) -> Batch:
    """Return a batch that is padded on the left, from a batch that is padded on the right."""
    # Rotating each row to the right by its number of padding tokens moves the padding to the left.
    shifts = (batch["attention_mask"] == 0).sum(1).tolist()
    return {name: torch.stack(list(map(torch.roll, rows, shifts))) for name, rows in batch.items()}


def gradient_stays_after_overflow(original: Backward, training: Training, window: Sequence[Batch]) -> list[Sums]:
    """If the gradient of the last step is not finite, add the new gradient to it instead of clearing it first."""
    old_gradients = [
        parameter.grad.clone() for parameter in loop.trained_parameters(training.model) if parameter.grad is not None
    ]
    sums = original(training, window)
    for parameter, old in zip(loop.trained_parameters(training.model), old_gradients, strict=False):
        if parameter.grad is not None and not old.isfinite().all():
            parameter.grad += old
    return sums


def zeroes_non_finite_numbers(original: Backward, training: Training, window: Sequence[Batch]) -> list[Sums]:
    """Replace numbers that are not finite by 0 in the gradient and in the losses."""
    sums = original(training, window)
    for parameter in loop.trained_parameters(training.model):
        if parameter.grad is not None:
            parameter.grad.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
    return [(nats if math.isfinite(nats) else 0.0, tokens) for nats, tokens in sums]


# A real fault of custom optimizers: state outside of `optimizer.state` is not in `state_dict`.
class MomentsInAnAttribute(torch.optim.Optimizer):
    """SGD with momentum that keeps its moments in an attribute, which `state_dict` does not contain."""

    def __init__(self, params: list[dict[str, object]], lr: float) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": 0.0})
        self.moments: dict[Tensor, Tensor] = {}

    @torch.no_grad()
    def step(self, closure: object = None) -> Any:
        """Update the parameters that have a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    moment = self.moments.setdefault(parameter, torch.zeros_like(parameter))
                    moment.mul_(0.9).add_(parameter.grad)
                    parameter.mul_(1 - group["lr"] * group["weight_decay"]).sub_(moment, alpha=group["lr"])


def moments_in_an_attribute(
    original: Callable[[Job, nn.Module], torch.optim.Optimizer], job: Job, model: nn.Module
) -> torch.optim.Optimizer:
    """Replace AdamW by an optimizer that keeps its moments in an attribute."""
    if job.optimizer == "sgd":
        return original(job, model)
    return MomentsInAnAttribute(loop.groups(job, model), lr=job.rate)


def all_in_training_mode(original: Callable[[Mapping[nn.Module, bool]], None], modes: Mapping[nn.Module, bool]) -> None:
    """Put every module in training mode, even if the module was in eval mode before."""
    for module in modes:
        module.train()


def evaluates_late(original: TrainStep, training: Training, window: Sequence[Batch]) -> None:
    """Evaluate every n + 1 steps instead of every n steps."""
    job = training.job
    if job.eval_every:
        training = replace(training, job=replace(job, eval_every=job.eval_every + 1))
    original(training, window)


def clips_all_but_the_first(
    original: Callable[[Iterable[Tensor], float | None], float], parameters: Iterable[Tensor], limit: float | None
) -> float:
    """Clip the gradients of all parameters but the first."""
    return original(list(parameters)[1:], limit)


def all_tokens(original: Callable[[Tensor], int], labels: Tensor) -> int:
    """Count all positions but the first of each row, whether they are scored or not."""
    return labels[:, 1:].numel()


def log_keeps_its_tokens(
    original: Callable[..., dict[str, float]], step: int, since: list[list[Sums]], rate: float, norm: float
) -> dict[str, float]:
    """Divide the logged loss by the tokens of all steps so far, not of the steps since the last log."""
    # The quotient is exact only if all steps have the same number of tokens. Otherwise it is still a wrong loss.
    row = original(step, since, rate, norm)
    return row | {"loss": row["loss"] * len(since) / step}


def planned_window(original: Backward, training: Training, window: Sequence[Batch]) -> list[Sums]:
    """Divide by the planned number of micro-batches, even if a window has fewer micro-batches."""
    sums = original(training, window)
    for parameter in loop.trained_parameters(training.model):
        if parameter.grad is not None:
            parameter.grad *= len(window) / training.job.accumulate
    return sums


def mean_over_examples(original: Backward, training: Training, window: Sequence[Batch]) -> list[Sums]:
    """Train on the mean of the examples' means, not on the token mean."""
    training.optimizer.zero_grad()
    sums, examples = [], sum(len(batch["labels"]) for batch in window)
    for batch in window:
        logits, labels = training.model(batch["input_ids"]), batch["labels"]
        rows = [
            (token_loss(logits[i : i + 1], row[None], "sum"), loop.scored(row[None])) for i, row in enumerate(labels)
        ]
        means = torch.stack([nats / max(count, 1) for nats, count in rows])
        (means.sum() / examples).backward()
        sums.append((sum(float(nats.detach()) for nats, _ in rows), sum(count for _, count in rows)))
    return sums


def partial_mean_of_means(original: Backward, training: Training, window: Sequence[Batch]) -> list[Sums]:
    """Train on the mean of the micro-batches' means in windows with fewer micro-batches than planned."""
    if len(window) == training.job.accumulate:
        return original(training, window)
    return _backward_per_micro_batch(training, window, lambda count: 1 / (max(count, 1) * len(window)))


def clips_micro_batches(original: Backward, training: Training, window: Sequence[Batch]) -> list[Sums]:
    """Clip the accumulated gradient after each micro-batch."""
    total = sum(loop.scored(batch["labels"]) for batch in window) or 1
    return _backward_per_micro_batch(
        training,
        window,
        lambda _: 1 / total,
        lambda: loop.clip(loop.trained_parameters(training.model), training.job.clip),
    )


def _backward_per_micro_batch(
    training: Training,
    window: Sequence[Batch],
    factor: Callable[[int], float],
    after_backward: Callable[[], object] = lambda: None,
) -> list[Sums]:
    """Compute the gradient of a window, with a factor for each micro-batch and an action after its backward.

    Args:
        training: The run.
        window: The micro-batches.
        factor: Returns the factor of the summed loss of a micro-batch. Its argument is the number of scored tokens.
        after_backward: Called after the backward of every micro-batch.
    """
    training.optimizer.zero_grad()
    sums = []
    for batch in window:
        count, nats = loop.scored(batch["labels"]), loop.loss_sum(training.model, batch)
        (nats * factor(count)).backward()
        after_backward()
        sums.append((float(nats.detach()), count))
    return sums


def next_rate(original: Update, training: Training) -> float:
    """Return the rate of the next step instead of the rate of this step."""
    original(training)
    return float(training.scheduler.get_last_lr()[0])


def stays_in_eval_mode(original: Callable[[Job, nn.Module], float], job: Job, model: nn.Module) -> float:
    """Leave the model in eval mode after an evaluation."""
    loss = original(job, model)
    model.eval()
    return loss


def draws_in_evaluation(original: Callable[[Job, nn.Module], float], job: Job, model: nn.Module) -> float:
    """Draw a number from the random generator of the training in each evaluation."""
    torch.rand(())
    return original(job, model)


def fetches_before_restoring(original: Load, job: Job, epoch: Windows) -> Iterator[list[Batch]]:
    """Fetch the first batch of each epoch of a resumed run twice, so that its random numbers are drawn twice."""
    if job.resume:
        job.collate([job.train[i] for i in epoch[0][0]])
    yield from original(job, epoch)


def loses_last_event(original: Callable[[Training, str], None], training: Training, event: str) -> None:
    """Lose the last `step_end` of each epoch."""
    if event == "epoch_end":
        training.events.pop()
    original(training, event)


def batches_of_every_worker(original: Load, job: Job, epoch: Windows) -> Iterator[list[Batch]]:
    """Yield every window once per worker, as if each worker read all data."""
    for window in original(job, epoch):
        yield from [window] * max(job.workers, 1)


def schedules_first_group(original: Update, training: Training) -> float:
    """Schedule the rate of the first parameter group only."""
    rate = original(training)
    for group in training.optimizer.param_groups[1:]:
        group["lr"] = group["initial_lr"]
    return rate


def steps_twice(original: Update, training: Training) -> float:
    """Let the optimizer take every step twice."""
    rate = original(training)
    training.optimizer.step()
    return rate


def scale_keeps_growing(original: Update, training: Training) -> float:
    """Let the scale grow after every step, from its first growth on."""
    before = training.scaler.get_scale()
    rate = original(training)
    # With an interval of 1, the scale grows after every step whose gradient is finite.
    if training.scaler.get_scale() > before:
        training.scaler.set_growth_interval(1)
    return rate


def averages_first(original: Update, training: Training) -> float:
    """Update the average of the weights before the step."""
    loop.update_average(training.average, training.model, training.job.average)
    before = copy.deepcopy(training.average.state_dict())
    rate = original(training)
    # The original function also updates the average, after the step. Undo this update.
    training.average.load_state_dict(before)
    return rate


def counts_one_more(original: Callable[[Training], Report], training: Training) -> Report:
    """Report one step too many."""
    report = original(training)
    report.final_step = training.state.step + 1
    return report


def first_order(original: RemainingEpochs, job: Job, done: int) -> Iterator[Windows]:
    """Finish the epoch that the checkpoint interrupts in the order of the first epoch."""
    first_epoch = loop.epoch_windows(job, 0)
    taken = done % len(first_epoch)
    for number, remaining in enumerate(original(job, done)):
        is_interrupted = number == 0 and taken > 0
        yield first_epoch[taken:][: len(remaining)] if is_interrupted else remaining


def first_order_next(original: RemainingEpochs, job: Job, done: int) -> Iterator[Windows]:
    """Use the order of the first epoch in all epochs that begin after the checkpoint."""
    first_epoch = loop.epoch_windows(job, 0)
    for number, remaining in enumerate(original(job, done)):
        is_later = done > 0 and (number > 0 or done % len(first_epoch) == 0)
        yield first_epoch[: len(remaining)] if is_later else remaining


def loses_an_epoch(original: RemainingEpochs, job: Job, done: int) -> Iterator[Windows]:
    """Skip the next epoch if the checkpoint was saved after the last step of an epoch."""
    epochs = original(job, done)
    if done > 0 and done % len(loop.epoch_windows(job, 0)) == 0:
        next(epochs, None)
    yield from epochs


def place_in_full_windows(original: RemainingEpochs, job: Job, done: int) -> Iterator[Windows]:
    """Compute the position of the checkpoint in the data as if the last window of every epoch were full."""
    epoch = loop.epoch_windows(job, 0)
    # With full windows only, the run would have used `done * job.accumulate` micro-batches.
    full_epochs, taken = divmod(done * job.accumulate, sum(map(len, epoch)))
    yield from original(job, full_epochs * len(epoch) + taken // job.accumulate)


def steps_after_the_end(original: RemainingEpochs, job: Job, done: int) -> Iterator[Windows]:
    """Train for another epoch when a finished run is resumed."""
    yield from original(job, done)
    if job.resume and done == loop.planned_steps(job):
        yield loop.epoch_windows(job, 0)


def decay_from_the_first_step(original: Callable[[Job, int, int], float], job: Job, done: int, planned: int) -> float:
    """Compute the decay from the first step on, not from the end of the warm-up."""
    if job.schedule == "constant" or done < job.warmup:
        return original(job, done, planned)
    return max(0.0, (planned - done) / planned)


def draws_in_save(original: Callable[[Training], None], training: Training) -> None:
    """Draw a number from the random generator of the training in each save."""
    torch.rand(())
    original(training)


def saves_late(original: Callable[[Training], None], training: Training) -> None:
    """Skip the first checkpoint that is due."""
    if training.state.step > training.job.save_every:
        original(training)


def counts_an_epoch_at_the_end(original: Callable[[Training], Saved], training: Training) -> Saved:
    """Save a step count that is one epoch too large at the end of the run."""
    saved, job = original(training), training.job
    if saved["state"]["step"] == loop.planned_steps(job):
        saved["state"]["step"] += len(loop.epoch_windows(job, 0))
    return saved


def half_a_checkpoint(original: Callable[[Loop, Job], Report], self: Loop, job: Job) -> Report:
    """Save under the final name, and load only the parts that exist."""
    loop.save, loop.restore, loop.read = _save_in_place, _restore_existing_parts, _read_existing_parts
    # A run that is resumed without its state begins at step 0. Checkpoints of later steps must not make it fail.
    loop.refuse_later_checkpoints = lambda directory, step: None
    return original(self, job)


def _read_existing_parts(directory: Path) -> Saved:
    """Read the parts of a checkpoint that exist."""
    return {path.stem: torch.load(path, weights_only=True) for path in directory.glob("*.pt")}


def _save_in_place(training: Training) -> None:
    """Save a checkpoint under its final name."""
    path = training.job.directory / f"step-{training.state.step}"
    path.mkdir(exist_ok=True)
    loop.write(loop.snapshot(training), path)


def _restore_existing_parts(training: Training, saved: Saved) -> None:
    """Restore model, optimizer, schedule and state if they exist; all other parts keep their initial values."""
    if "model" in saved:
        training.model.load_state_dict(saved["model"])
    if "optimizer" in saved:
        training.optimizer.load_state_dict(saved["optimizer"])
    training.scheduler.last_epoch = saved.get("schedule", 0)
    training.state = State(**saved.get("state", {}))


def restores_one_rate(original: Callable[[Training, Saved], None], training: Training, saved: Saved) -> None:
    """Restore the rate of the first parameter group in every group."""
    original(training, saved)
    for group in training.optimizer.param_groups:
        group["lr"] = training.optimizer.param_groups[0]["lr"]


def unties(original: Callable[[Training, Saved], None], training: Training, saved: Saved) -> None:
    """Untie the head: load its weights into a new parameter."""
    original(training, saved)
    for model in (training.model, training.average):
        head = probe_of(model).head
        head.weight = nn.Parameter(head.weight.detach().clone())
