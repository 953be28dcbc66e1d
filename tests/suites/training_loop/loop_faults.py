"""Replacements for parts of the loop, most of them faults: functions that `causes.yaml` names, beside mutants."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextlib import nullcontext as nullcontext  # named in causes.yaml
from dataclasses import replace
from functools import reduce
from itertools import chain, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.functional import cross_entropy

from pv.suites.training_loop import loop
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.job import IGNORED, Job, probe_of
from pv.suites.training_loop.loop import Training
from pv.suites.training_loop.probe import PAD, token_loss
from tests.suites.training_loop.planting import attack, planted

unpatched = SimpleNamespace(**vars(loop))
"""The functions of the loop before a fault replaces one."""
short_windows = {**loop.Loop.features, "short_windows": False}
backward, begin, log_row, loss_sum = loop.backward, loop.begin, loop.log_row, loop.loss_sum
update_average, network_loss = loop.update_average, loop.Loop.network_loss


@contextmanager
def faulty(faults: str) -> Iterator[Bench]:
    """Yield a bench of the loop with a mutant of the contract, or with `PART = FUNCTION, PART = FUNCTION`."""
    if "=" not in faults:
        yield planted(faults)
        return
    with pytest.MonkeyPatch.context() as patch:
        for part, function in (fault.split(" = ") for fault in faults.split(", ")):
            *owner, name = part.split(".")
            patch.setattr(reduce(getattr, owner, loop), name, globals()[function], raising=not owner)
        yield Bench(loop.Loop())


def refutation(fault: str, claim: str) -> str:
    """Return the message with which a claim is refuted by a fault."""
    with faulty(fault) as bench, pytest.raises(AssertionError) as error:
        attack(claim, bench)
    return str(error.value)


def labels_of_input_tokens(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    ids = batch["input_ids"]
    labels = ids[:, :-1].masked_fill(batch["labels"][:, 1:] == IGNORED, IGNORED)
    return cross_entropy(model(ids)[:, :-1].flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")


def labels_not_shifted(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    logits = model(batch["input_ids"]).flatten(0, 1)
    return cross_entropy(logits, batch["labels"].flatten(), ignore_index=IGNORED, reduction="sum")


def padding_of_shifted_labels_scored(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    ids, real = batch["input_ids"].clone(), batch["attention_mask"]
    ids[range(len(ids)), real.sum(1) - 1] = PAD
    labels = batch["labels"].masked_fill(real == 0, PAD)[:, 1:]
    logits = model(ids[:, :-1]).flatten(0, 1)
    return cross_entropy(logits, labels.flatten(), ignore_index=IGNORED, reduction="sum")


def of_losses(loss: Callable[[nn.Module, dict[str, Tensor], int], Tensor]) -> Callable[..., Any]:
    """Return a function that adds up the gradients of the losses of a window. They get its scored tokens, too."""

    def backward_(training: Training, window: Any) -> Any:
        training.optimizer.zero_grad()
        counts = [loop.scored(batch["labels"]) for batch in window]
        losses = [loss(training.model, batch, sum(counts)) for batch in window]
        sum(losses, torch.zeros(())).backward()
        return [(float(value.detach()), count) for value, count in zip(losses, counts, strict=True)]

    return backward_


def wide(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a batch that is padded to 16 tokens, whatever its rows."""
    missing = 16 - batch["input_ids"].shape[1]
    fills = {"input_ids": PAD, "attention_mask": 0, "labels": IGNORED}
    return {name: nn.functional.pad(batch[name], (0, missing), value=fill) for name, fill in fills.items()}


def token_mean_with_padding(model: nn.Module, batch: dict[str, Tensor], labels: Tensor) -> Tensor:
    return token_loss(model(batch["input_ids"]), labels.masked_fill(batch["attention_mask"] == 0, PAD))


padding_in_means = of_losses(lambda model, batch, _: token_mean_with_padding(model, batch, batch["labels"]) / 3)
all_tokens_in_means = of_losses(lambda model, batch, _: token_mean_with_padding(model, batch, batch["input_ids"]) / 3)
padding_of_fixed_width = of_losses(
    lambda model, batch, _: token_mean_with_padding(model, wide(batch), wide(batch)["labels"]) / 3
)
sums_over_fixed_width = of_losses(
    lambda model, batch, _: loss_sum(model, wide(batch)) / (3 * len(batch["labels"]) * 15)
)
sums_in_bfloat16 = of_losses(lambda model, batch, tokens: loss_sum(model, batch).bfloat16() / tokens)
logits_in_bfloat16 = of_losses(
    lambda model, batch, tokens: token_loss(model(batch["input_ids"]).bfloat16(), batch["labels"], "sum") / tokens
)


def sums_averaged(counts: Sequence[int]) -> list[float]:
    return [1 / len(counts) for _ in counts]


def divided_by_tokens_of_all_steps(training: Training, window: Any) -> Any:
    """Divide by the scored tokens of all steps since the start, or since a resume."""
    with pytest.MonkeyPatch.context() as patch:
        before = training.state.tokens if training.job.resume is None else 0
        patch.setattr(loop, "loss_factors", lambda counts: [1 / (before + sum(counts) or 1) for _ in counts])
        return backward(training, window)


def trained_in_eval_mode(training: Training, window: Any) -> Any:
    training.model.eval()
    return backward(training, window)


def gradients_in_bfloat16(training: Training, window: Any) -> Any:
    losses, hooks = [], []
    for leaf in training.model.parameters():
        hooks.append(leaf.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", p.grad.bfloat16().double())))
    losses = backward(training, window)
    for hook in hooks:
        hook.remove()
    return losses


def smoothed(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    logits, labels = model(batch["input_ids"])[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten()
    return cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum", label_smoothing=0.1)


def slightly_off(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return loss_sum(model, batch) * (1 + 1e-3)


kept: list[Any] = []


def micro_batches_used_again(training: Training, window: Any) -> Any:
    kept[:] = [*kept, *window] if training.state.step else window
    return backward(training, kept)


def gradient_kept_in_part(training: Training, window: Any) -> Any:
    losses, earlier = backward(training, window), getattr(training.model, "earlier", {})
    for name, parameter in training.model.named_parameters():
        parameter.grad = earlier[name] = parameter.grad + earlier[name] / 2 if name in earlier else parameter.grad
    vars(training.model)["earlier"] = earlier
    return losses


def average_updated_in_backward(training: Training, window: Any) -> Any:
    for _ in window if training.average else ():
        update_average(training.average, training.model, training.job.average)
    return backward(training, window)


def not_averaged(mean: Any, model: nn.Module, decay: float | None) -> None:
    """Leave the average to another part of the loop."""


def average_updated_before_steps(training: Training, window: Any) -> Any:
    with torch.no_grad():
        for _ in window[1:] if training.average else ():
            loop.update_average(training.average, training.model, training.job.average)
    return backward(training, window)


def clipped_by_largest(parameters: Iterable[Tensor], limit: float | None) -> float:
    return float(nn.utils.clip_grad_norm_(parameters, limit or math.inf, norm_type=math.inf))


def clipped_by_tensor(parameters: Iterable[Tensor], limit: float | None) -> float:
    return [float(nn.utils.clip_grad_norm_([parameter], limit or math.inf)) for parameter in parameters][-1]


def clipped_by_element(parameters: Iterable[Tensor], limit: float | None) -> float:
    nn.utils.clip_grad_value_(parameters, limit or math.inf)
    return 0.0


def begun(change: Callable[[Training], object]) -> Callable[[Job], Training]:
    """Return a function that begins a training and changes it."""

    def begin_(job: Job) -> Training:
        change(training := begin(job))
        return training

    return begin_


average_shared = begun(lambda training: setattr(training, "average", training.model))
seeded_again = begun(lambda training: torch.manual_seed(training.job.seed))
scaler_always_on = begun(
    lambda training: setattr(training, "scaler", GradScaler("cpu", init_scale=1024.0, growth_interval=2000))
)
scale_hardly_growing = begun(lambda training: training.scaler.set_growth_interval(2000))


def warm(decay: float | None, done: int) -> float:
    return min(decay or 0.0, (1 + done) / (10 + done))


@torch.no_grad()
def average_warming_up(mean: Any, model: nn.Module, decay: float | None) -> None:
    mean.updates = getattr(mean, "updates", -1) + 1
    for mean_weight, new in zip(mean.parameters(), model.parameters(), strict=True):
        mean_weight.copy_(torch.lerp(new, mean_weight, warm(decay, mean.updates)))


def warm_decay(self: Any, job: Job, done: int) -> float:
    return warm(job.average, done)


def decay_applied_twice(training: Training) -> float:
    for group in training.optimizer.param_groups:
        for weight in group["params"]:
            weight.data *= 1 - group["lr"] * group["weight_decay"]
    return float(unpatched.update(training))


def rates_times(by: float) -> Callable[[Job, Any], Any]:
    """Return a function that makes a scheduler, by whose factors the rates after a resume are a little different."""

    def make_scheduler(job: Job, optimizer: Any) -> Any:
        factor, planned = by if job.resume else 1.0, unpatched.planned_steps(job)
        return torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda done: unpatched.rate_factor(job, done, planned) * factor
        )

    return make_scheduler


rates_rounded, rates_off = rates_times(1 + 2**-51), rates_times(1 + 1e-7)


def warmup_from_above_zero(job: Job, done: int, planned: int) -> float:
    return (done + 1) / job.warmup if done < job.warmup else unpatched.rate_factor(job, done, planned)


def rate_by_micro_batches(job: Job, done: int, planned: int) -> float:
    return warmup_from_above_zero(job, min(done * job.accumulate, planned), planned)


def position_doubled(job: Job, done: int, planned: int) -> float:
    return unpatched.rate_factor(job, min(2 * done, planned), planned)


def warmup_of_100_steps(job: Job, done: int, planned: int) -> float:
    return unpatched.rate_factor(replace(job, warmup=max(job.warmup, 100)), done, planned)


def planned_by_micro_batches(job: Job, done: int, planned: int) -> float:
    return unpatched.rate_factor(job, done, planned * job.accumulate)


def nan_losses_filtered(step: int, since: Any, rate: float, norm: float) -> dict[str, float]:
    """Log as `logging_nan_inf_filter` of transformers does."""
    total = 0.0
    for done, window in enumerate(since):
        nats, tokens = (sum(part) for part in zip(*window, strict=True))
        total += nats / tokens if tokens else total / (done + 1)
    return {"step": step, "loss": total / len(since), "rate": rate, "norm": norm}


def loss_reset_with_the_epoch(step: int, since: Any, rate: float, norm: float) -> dict[str, float]:
    return log_row(step, since[-((step - 1) % 4 + 1) :], rate, norm)


def loss_of_the_epoch(step: int, since: Any, rate: float, norm: float) -> dict[str, float]:
    kept[:] = [*(kept if (step - 1) % 4 else []), *since]
    return log_row(step, kept, rate, norm)


def batches_taken_for_examples(job: Job, done: int) -> Any:
    """Go on in the cut epoch after as many examples as there were batches."""
    steps = len(unpatched.epoch_windows(job, 0))
    for epoch in range(done // steps, job.epochs):
        rows = unpatched.order(len(job.train), job.seed, epoch)
        start = done % steps * job.accumulate if epoch == done // steps else 0
        yield unpatched.windows(unpatched.batches(rows[start:], job.batch), job.accumulate)


def data_from_the_start(job: Job, done: int) -> Any:
    """Take the steps that are left on the data of the first ones."""
    steps = islice(chain.from_iterable(unpatched.remaining_epochs(job, 0)), unpatched.planned_steps(job) - done)
    yield list(steps)


def fixed_batches_shuffled(job: Job, done: int) -> Any:
    batches = unpatched.batches(range(len(job.train)), job.batch)
    for epoch in range(job.epochs):
        yield unpatched.windows(
            [batches[i] for i in unpatched.order(len(batches), 2 * job.seed, epoch)], job.accumulate
        )


def epoch_counted_late(job: Job, done: int) -> Any:
    """Count the epochs of a checkpoint before the one that ends is counted."""
    steps = len(unpatched.epoch_windows(job, 0))
    return unpatched.remaining_epochs(job, max(0, done - steps) if done % steps == 0 else done)


def next_epoch_in_place_of_window(job: Job, done: int) -> Any:
    """Leave out incomplete windows, and take as many steps as planned."""
    size = job.batch * job.accumulate
    full, planned, epoch = len(job.train) // size * size, unpatched.planned_steps(job), 0
    while done < planned:
        rows = unpatched.order(len(job.train), job.seed, epoch)[:full]
        yield unpatched.windows(unpatched.batches(rows, job.batch), job.accumulate)[: planned - done]
        done, epoch = done + full // size, epoch + 1


def other_order_with_workers(job: Job, done: int) -> Any:
    """Draw the order of the first epoch from another seed where there are workers."""
    epochs = unpatched.remaining_epochs(job, done)
    if job.workers:
        next(epochs)
        yield next(unpatched.remaining_epochs(replace(job, seed=1000), done))
    yield from epochs


def other_order_after_resume(job: Job, done: int) -> Any:
    return unpatched.remaining_epochs(replace(job, seed=job.seed + 99 * bool(done)), done)


def examples_again_after_resume(job: Job, done: int) -> Any:
    """Draw from a seed with which examples from before the cut are used again."""
    return unpatched.remaining_epochs(replace(job, seed=job.seed + 1000 * bool(done)), done)


def schedule_advanced_again(training: Training, saved: Any) -> None:
    """Restore the schedule, and then also take the steps before the cut."""
    unpatched.restore(training, saved)
    for _ in range(training.state.step):
        training.scheduler.step()


def ties(job: Job) -> Training:
    """Begin a training of a loop that ties its weights itself, and unties them when it loads."""
    training = begin(replace(job, tied=True))
    if job.resume:
        head = probe_of(training.model).head
        head.weight = nn.Parameter(head.weight.detach().clone())
    return training


@torch.no_grad()
def weights_off(training: Training, saved: Any) -> None:
    unpatched.restore(training, saved)
    for parameter in (*training.model.parameters(), *training.average.parameters()):
        parameter.mul_(1 + 1e-7)


def flags_ignored(self: Any, network: nn.Module, rows: Any, *, checkpointing: bool, autocast: bool) -> Tensor:
    return network_loss(self, network, rows, checkpointing=False, autocast=False)


def read_last_by_name(path: Path) -> dict[str, Any]:
    return unpatched.read(max(path.parent.glob("step-*"), key=str))


def refuse_nothing(directory: Path, step: int) -> None:
    """Begin a run in a directory with checkpoints of later steps."""
