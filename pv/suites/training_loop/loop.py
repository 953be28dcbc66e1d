"""A correct training loop in plain PyTorch, in one process. All claims of the suite hold for this loop.

It has four parts: the plan (order, rates, steps), checkpoints, a training step, and logs and evaluations. The mutants
of the suite are faults in its public functions, and in the functions of `network`.
"""

import copy
import math
import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.utils import clip_grad_norm_, get_total_norm
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader

from pv.suites.training_loop.job import HEAD_FACTOR, IGNORED, OPT_IN, Example, Job, Report, probe_of
from pv.suites.training_loop.network import OwnNetwork, logits_of
from pv.suites.training_loop.probe import token_loss


def order(examples: int, seed: int, epoch: int) -> list[int]:
    """Return the order of the examples in an epoch. Epochs count from 0."""
    # The text of the pair is the seed. With seed + epoch, neighbouring seeds would share their orders.
    return random.Random(repr((seed, epoch))).sample(range(examples), examples)


def crop_example(example: Example, crop: int | None) -> Example:
    """Return an example cut to its first `crop` tokens; the whole example if `crop` is None."""
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
    """Return the planned number of steps of a run, without an early stop."""
    return job.max_steps or job.epochs * len(epoch_windows(job, 0))


def remaining_windows(windows: list[Sequence[Sequence[int]]], taken: int) -> list[Sequence[Sequence[int]]]:
    """Return the windows of an epoch after the first `taken` ones, for which steps were taken before a cut."""
    return windows[taken:]


def remaining_epochs(job: Job, done: int) -> Iterator[list[Sequence[Sequence[int]]]]:
    """Yield the windows of every epoch that follow after `done` steps, one list per epoch, up to the last step."""
    per_epoch, planned = len(epoch_windows(job, 0)), planned_steps(job)
    while done < planned and per_epoch:
        # The position follows from the number of steps alone, so a checkpoint needs to store nothing else.
        epoch, taken = divmod(done, per_epoch)
        windows_left = remaining_windows(epoch_windows(job, epoch), taken)[: planned - done]
        yield windows_left
        done += len(windows_left)


def due(step: int, every: int) -> bool:
    """Return whether an action that runs every `every` steps is due after a step; never if `every` is 0."""
    return every > 0 and step % every == 0


def stop_requested(job: Job, step: int) -> bool:
    """Return whether the job asks the loop to stop after a step, as a callback would."""
    return step == job.stop_at


def rate_factor(job: Job, done: int, planned: int) -> float:
    """Return the factor of the rate in the step after `done` steps: linear warm-up, then linear decay to 0.

    With a constant schedule, the factor is 1 in every step, also during the warm-up.

    Args:
        job: The job, with its schedule and the steps of its warm-up.
        done: The number of steps done.
        planned: The number of planned steps.
    """
    if job.schedule == "constant":
        return 1.0
    if done < job.warmup:
        return done / job.warmup
    return max(0.0, (planned - done) / max(1, planned - job.warmup))


def update_best(best: tuple[float, int] | None, evaluation: tuple[int, float]) -> tuple[float, int] | None:
    """Return the smallest loss so far and its step. NaN never counts as the smallest.

    Args:
        best: The smallest loss before the evaluation and its step; None before the first evaluation.
        evaluation: The step and the loss of the evaluation, in this order.
    """
    # best <= new keeps the first of equal losses. Comparisons with NaN are always false, so NaN is tested first.
    if math.isnan(evaluation[1]) or (best is not None and best[0] <= evaluation[1]):
        return best
    return evaluation[1], evaluation[0]


def checkpoints_to_keep(saved: Iterable[int], keep: int | None, best: int | None) -> set[int | None]:
    """Return the steps of the checkpoints to keep: the `keep` newest and the best; all if `keep` is not set."""
    return {*sorted(saved)[-keep:], best} if keep else {*saved}


Batch = dict[str, Tensor]
Sums = tuple[float, int]
"""A loss in nats summed over the scored tokens, and their number."""


@dataclass(slots=True)
class State:
    """The counters and logs of a run, as they are stored in a checkpoint."""

    step: int = 0
    # The number of scored tokens since the start of the run.
    tokens: int = 0
    # The sums of the micro-batches of each step since the last log.
    unlogged: list[list[Sums]] = field(default_factory=list)
    # The smallest evaluation loss and its step.
    best: tuple[float, int] | None = None
    logs: list[dict[str, float]] = field(default_factory=list)
    evaluations: list[tuple[int, float]] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Training:
    """A job and the objects of its run, which change with every step. `restore` replaces only `state`."""

    job: Job
    model: nn.Module
    optimizer: Optimizer
    scheduler: LambdaLR
    scaler: GradScaler
    average: nn.Module
    state: State
    events: list[str]


Saved = dict[str, Any]
"""A checkpoint: the state of every part by its name."""
PARTS = ("model", "optimizer", "schedule", "scaler", "average", "random", "state")
"""The parts of a checkpoint."""


def checkpoints(directory: Path) -> dict[int, Path]:
    """Return the checkpoints on disk by step."""
    return {int(path.name.removeprefix("step-")): path for path in directory.glob("step-*")}


def refuse_later_checkpoints(directory: Path, step: int) -> None:
    """Raise FileExistsError if a directory has checkpoints of steps after `step`, the step count at the start of a run.

    Such checkpoints belong to another run. Rotation would keep these checkpoints instead of new ones, and `newest`
    would return one of them.
    """
    if later := sorted(saved for saved in checkpoints(directory) if saved > step):
        raise FileExistsError(
            f"{directory} holds checkpoints of the steps {', '.join(map(str, later))} of another run: this run "
            f"begins after step {step}; choose another directory, or remove these checkpoints"
        )


def save(training: Training) -> None:
    """Save a checkpoint under a temporary name, then rename it, so that no incomplete checkpoint is visible."""
    path = training.job.directory / f"step-{training.state.step}"
    # POSIX renames a directory atomically: a reader sees a complete checkpoint or none. The temporary path may exist
    # from a run that was killed. `begin` refuses a directory with a later checkpoint, so `path` exists only if another
    # run has saved this step since then.
    unfinished = partial_path(path)
    for folder in (unfinished, path):
        shutil.rmtree(folder, ignore_errors=True)
    unfinished.mkdir()
    write(snapshot(training), unfinished)
    unfinished.rename(path)


def partial_path(path: Path) -> Path:
    """Return the temporary path under which a checkpoint is written."""
    return path.with_name("partial-" + path.name)


def write(saved: Mapping[str, object], directory: Path) -> None:
    """Write every part of a checkpoint to its own file."""
    for name, value in saved.items():
        with (directory / f"{name}.pt").open("wb") as file:
            torch.save(value, file)


def read(directory: Path) -> Saved:
    """Read all parts of a checkpoint. Raise FileNotFoundError if one is missing."""
    return {name: torch.load(directory / f"{name}.pt", weights_only=True) for name in PARTS}


def snapshot(training: Training) -> Saved:
    """Return the state of all parts of the run that its remaining steps depend on."""
    return {
        "model": training.model.state_dict(),
        "optimizer": training.optimizer.state_dict(),
        "schedule": training.scheduler.last_epoch,
        "scaler": training.scaler.state_dict(),
        "average": training.average.state_dict(),
        # Without the random state, dropout would draw other numbers after a resume.
        "random": torch.get_rng_state(),
        "state": asdict(training.state),
    }


def restore(training: Training, saved: Saved) -> None:
    """Restore every part of a snapshot."""
    training.model.load_state_dict(saved["model"])
    training.optimizer.load_state_dict(saved["optimizer"])
    training.scheduler.last_epoch = saved["schedule"]
    training.scaler.load_state_dict(saved["scaler"])
    training.average.load_state_dict(saved["average"])
    torch.set_rng_state(saved["random"])
    training.state = State(**saved["state"])


def rotate(job: Job, best: tuple[float, int] | None) -> None:
    """Remove all checkpoints except those that `checkpoints_to_keep` returns."""
    # Rotation follows the complete save: a kill between the two leaves too many checkpoints, never too few.
    saved = checkpoints(job.directory)
    for step in saved.keys() - checkpoints_to_keep(saved, job.keep, best[1] if job.best and best else None):
        shutil.rmtree(saved[step])


def model_in(directory: Path) -> dict[str, Tensor]:
    """Return the state of the model in a checkpoint."""
    state: dict[str, Tensor] = read(directory)["model"]
    return state


def best_model(training: Training) -> nn.Module | None:
    """Return a model with the weights of the best checkpoint; None if there is no such checkpoint."""
    best = training.state.best
    path = checkpoints(training.job.directory).get(best[1]) if best else None
    if path is None:
        return None
    model = copy.deepcopy(training.model)
    model.load_state_dict(model_in(path))
    return model


def load_windows(job: Job, epoch: Sequence[Sequence[Sequence[int]]]) -> Iterator[list[Batch]]:
    """Yield the batches of each window of an epoch. `epoch` has the row numbers by window and micro-batch.

    The loader has its own generator: without one, it would draw a seed from the default generator, and dropout would
    draw other numbers after a resume.
    """
    row_numbers: Any = [rows for window in epoch for rows in window]
    train: Any = [crop_example(example, job.crop) for example in job.train]
    draw = torch.Generator().manual_seed(job.seed)
    loader = DataLoader(
        train, batch_sampler=row_numbers, collate_fn=job.collate, num_workers=job.workers, generator=draw
    )
    loaded = iter(loader)
    for window in epoch:
        yield [next(loaded) for _ in window]


# A step.


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of a model that require a gradient."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def decay_of(parameter: Tensor, decay: float) -> float:
    """Return the weight decay of a parameter: only matrices have one."""
    return decay if parameter.ndim > 1 else 0.0


def groups(job: Job, model: nn.Module) -> list[dict[str, object]]:
    """Return the parameter groups of the optimizer.

    There is one group; with `job.groups`, a second group for the head; with `job.decay`, one group per parameter.
    """
    # Compare by identity: a tied head shares its parameter with the embedding.
    head = {id(parameter) for parameter in probe_of(model).head.parameters()} if job.groups else set()
    parameters = trained_parameters(model)
    head_rate = {"lr": job.rate * HEAD_FACTOR}
    if job.decay is not None:
        return [
            {"params": [p], "weight_decay": decay_of(p, job.decay), **(head_rate if id(p) in head else {})}
            for p in parameters
        ]
    body, of_head = ([p for p in parameters if (id(p) in head) is in_head] for in_head in (False, True))
    return [{"params": body}, *([{"params": of_head, **head_rate}] if of_head else [])]


def make_optimizer(job: Job, model: nn.Module) -> Optimizer:
    """Return the optimizer of the trained parameters."""
    kinds: dict[str, Callable[..., Optimizer]] = {"sgd": SGD, "adamw": AdamW}
    return kinds[job.optimizer](groups(job, model), lr=job.rate)


def make_scheduler(job: Job, optimizer: Optimizer) -> LambdaLR:
    """Return the schedule of the rate. It advances after every step that the scaler does not skip."""
    return LambdaLR(optimizer, lambda done: rate_factor(job, done, planned_steps(job)))


def scored(labels: Tensor) -> int:
    """Return the number of scored labels in [B, T]; the first label of a row is never scored."""
    return int((labels[:, 1:] != IGNORED).sum())


def loss_sum(model: nn.Module, batch: Batch) -> Tensor:
    """Return the cross-entropy in nats, summed over the scored tokens."""
    return token_loss(model(batch["input_ids"], batch["attention_mask"]), batch["labels"], "sum")


def training_loss(job: Job, model: nn.Module, batch: Batch) -> Tensor:
    """Return the summed cross-entropy of a micro-batch in training, with label smoothing if the job has it."""
    if not job.smoothing:
        return loss_sum(model, batch)
    logits = model(batch["input_ids"], batch["attention_mask"])
    return token_loss(logits, batch["labels"], "sum", job.smoothing)


def loss_factors(counts: Sequence[int]) -> list[float]:
    """Return the factor of the summed loss of each micro-batch of a window: 1 / scored tokens of the window.

    Args:
        counts: The scored tokens of each micro-batch. A window without scored tokens has the factor 1: its sum is 0.
    """
    return [1 / (sum(counts) or 1) for _ in counts]


def backward(training: Training, window: Sequence[Batch]) -> list[Sums]:
    """Compute the gradient of the token mean of a window, and return the sums of its micro-batches."""
    # Count the tokens of the whole window first, since the loss of every micro-batch is divided by their number. A mean
    # of the micro-batches' means would weight the tokens of short micro-batches more.
    training.optimizer.zero_grad()
    counts = [scored(batch["labels"]) for batch in window]
    sums = []
    for batch, count, factor in zip(window, counts, loss_factors(counts), strict=True):
        nats = training_loss(training.job, training.model, batch)
        training.scaler.scale(nats * factor).backward()
        sums.append((float(nats.detach()), count))
    return sums


def refuse_not_finite(window: Sequence[Sums], step: int) -> None:
    """Raise FloatingPointError if the loss of a micro-batch is NaN or infinite: the step would damage all weights."""
    for number, (nats, _) in enumerate(window, 1):
        if not math.isfinite(nats):
            raise FloatingPointError(f"the loss of micro-batch {number} of step {step} is {nats}")


def clip(parameters: Iterable[Tensor], limit: float | None) -> float:
    """Scale the gradient to a norm of at most `limit`, if there is a limit. Return the norm before."""
    # clip_grad_norm_ without a finite limit would divide inf by inf: one infinite gradient would become NaN everywhere.
    if limit is None:
        return float(get_total_norm(parameter.grad for parameter in parameters if parameter.grad is not None))
    return float(clip_grad_norm_(parameters, limit))


def update(training: Training) -> float:
    """Update the weights, then their average and the rate. Return the rate of this update."""
    rate, scale = float(training.optimizer.param_groups[0]["lr"]), training.scaler.get_scale()
    training.scaler.step(training.optimizer)
    training.scaler.update()
    # A skipped step does not count: neither the average nor the schedule advances.
    if not is_skipped(scale, training.scaler):
        update_average(training.average, training.model, training.job.average)
        training.scheduler.step()
    return rate


def is_skipped(scale: float, scaler: GradScaler) -> bool:
    """Return whether a scaler skipped the step: it reduces its scale if the gradient overflows."""
    return scaler.get_scale() < scale


@torch.no_grad()
def update_average(average: nn.Module, model: nn.Module, decay: float | None) -> None:
    """Update the running average of the weights of a model. With the decay None, the average equals the weights."""
    for parameter, new in zip(average.parameters(), model.parameters(), strict=True):
        parameter.copy_(moving_average(parameter, new, decay or 0.0))


def moving_average(old: Tensor, new: Tensor, decay: float) -> Tensor:
    """Return the exponential moving average: `decay` times the old average plus (1 - decay) times the new weights."""
    return decay * old + (1 - decay) * new


def train_step(training: Training, window: Sequence[Batch]) -> None:
    """Take one optimizer step, then log, evaluate and save if due."""
    job, state = training.job, training.state
    note(training, "step_begin")
    # The order matters: backward, check, unscale, clip, step, schedule, then logs, evaluation and checkpoint.
    state.unlogged.append(backward(training, window))
    refuse_not_finite(state.unlogged[-1], state.step + 1)
    # Clipping needs the unscaled gradient: divide it by the loss scale first.
    if job.scaler:
        training.scaler.unscale_(training.optimizer)
    norm = clip(trained_parameters(training.model), job.clip)
    rate = update(training)
    state.step += 1
    state.tokens += tokens_of(state.unlogged[-1])
    if due(state.step, job.log_every):
        state.logs.append(log_row(state.step, state.unlogged, rate, norm) | {"tokens": state.tokens})
        state.unlogged = []
        note(training, "log")
    if due(state.step, job.eval_every):
        state.evaluations.append((state.step, evaluate(job, training.model)))
        state.best = update_best(state.best, state.evaluations[-1])
        note(training, "evaluate")
    if due(state.step, job.save_every):
        save(training)
        rotate(job, state.best)
        note(training, "save")
    note(training, "step_end")


def note(training: Training, event: str) -> None:
    """Call the callbacks of an event. The only callback adds the event to a list."""
    training.events.append(event)


# Logs and evaluations.


def tokens_of(window: Sequence[Sums]) -> int:
    """Return the scored tokens of the micro-batches of a window."""
    return sum(tokens for _, tokens in window)


def token_mean(sums: Sequence[Sums]) -> float:
    """Return the mean over all tokens; 0 if there are none."""
    return sum(nats for nats, _ in sums) / max(sum(tokens for _, tokens in sums), 1)


def log_row(step: int, unlogged: Sequence[Sequence[Sums]], rate: float, norm: float) -> dict[str, float]:
    """Return a row of the log: the token mean since the last row, and the rate and gradient norm of the step.

    Args:
        step: The number of the step.
        unlogged: The sums of the micro-batches of each step since the last row.
        rate: The learning rate of the step.
        norm: The norm of the gradient before clipping.
    """
    return {
        "step": step,
        "loss": token_mean([batch for window in unlogged for batch in window]),
        "rate": rate,
        "norm": norm,
    }


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model in eval mode inside the context. Restore the mode of every module and the random state afterwards."""
    # The mode of every module is stored: a frozen part may be in eval mode while other parts are in training mode.
    modes = {module: module.training for module in model.modules()}
    with torch.random.fork_rng(devices=[]):
        model.eval()
        try:
            yield
        finally:
            restore_modes(modes)


def restore_modes(modes: Mapping[nn.Module, bool]) -> None:
    """Restore the mode of every module, so that a frozen part stays in eval mode."""
    for module, mode in modes.items():
        module.training = mode


def evaluation_sums(job: Job, model: nn.Module) -> list[Sums]:
    """Return the sums of each batch of the evaluation."""
    with evaluating(model), torch.no_grad():
        rows = [[job.evaluated[i] for i in part] for part in batches(range(len(job.evaluated)), job.eval_batch)]
        collated = [job.collate(part) for part in rows]
        return [(float(loss_sum(model, batch)), scored(batch["labels"])) for batch in collated]


def evaluate(job: Job, model: nn.Module) -> float:
    """Return the evaluation loss: the mean over all scored tokens of `job.evaluated`."""
    return token_mean(evaluation_sums(job, model))


class Loop(OwnNetwork):
    """The adapter of this loop."""

    features: Mapping[str, bool | str] = {**dict.fromkeys(OPT_IN, True), "ranks": "it runs on one process"}
    tolerance = 1e-9
    end = 2

    def network_optimizer(self, network: nn.Module) -> Optimizer:
        """Return the optimizer of a network."""
        return make_optimizer(Job(directory=Path(), train=(), optimizer="adamw", decay=0.1), network)

    def evaluate_network(self, network: nn.Module) -> None:
        """Evaluate a network."""
        with evaluating(network):
            logits_of(network, [[1, 2]])

    def newest(self, directory: Path) -> Path | None:
        """Return the newest checkpoint in a directory; None if there is none."""
        saved = checkpoints(directory)
        return saved[max(saved)] if saved else None

    def run(self, job: Job) -> Report:
        """Run the job, from the checkpoint `job.resume` if there is one."""
        training = begin(job)
        note(training, "train_begin")
        for epoch in remaining_epochs(job, training.state.step):
            note(training, "epoch_begin")
            for window in load_windows(job, epoch):
                train_step(training, window)
                # A stop ends the epoch first, so that its `epoch_end` is called too.
                if stop_requested(job, training.state.step):
                    break
            note(training, "epoch_end")
            if stop_requested(job, training.state.step):
                break
        note(training, "train_end")
        return report(training)


def begin(job: Job) -> Training:
    """Create the objects of a run; restore their state from the checkpoint `job.resume` if there is one."""
    torch.manual_seed(job.seed)
    model = job.model()
    # The optimizer is created after the model is complete: later parameters would not be trained.
    optimizer = make_optimizer(job, model)
    scheduler = make_scheduler(job, optimizer)
    training = Training(
        job=job,
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        # A short interval, so that the scale grows several times in the few steps of a job.
        scaler=GradScaler("cpu", enabled=job.scaler, growth_interval=4),
        average=copy.deepcopy(model),
        state=State(),
        events=[],
    )
    if job.resume:
        restore(training, read(job.resume))
    # Check after the restore, which sets the number of steps.
    refuse_later_checkpoints(job.directory, training.state.step)
    return training


def report(training: Training) -> Report:
    """Return the report of a run: its model, logs, evaluations, events and checkpoints."""
    state = training.state
    return Report(
        model=training.model,
        logs=state.logs,
        evaluations=state.evaluations,
        events=training.events,
        checkpoints=checkpoints(training.job.directory),
        final_step=state.step,
        best=state.best[1] if state.best else None,
        best_model=best_model(training),
        average=training.average,
    )
