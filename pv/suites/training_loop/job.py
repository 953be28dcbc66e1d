"""The interface of an adapter: the job that it runs, the report that it returns, and the features that it declares."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from pv.suites.training_loop.probe import PAD, TEXT, Probe, recorder

HEAD_FACTOR = 0.1
"""Learning rate of the head's parameter group, relative to the rate of the other parameters."""
IGNORED = -100
"""The label of a token that is not scored."""


@dataclass(frozen=True, slots=True)
class Example:
    """A training or evaluation example: one row of the data.

    Attributes:
        tokens: Token ids. The first token is the name of the example and is never scored.
        labels: One label per token, unshifted: labels[i] belongs to tokens[i].
    """

    tokens: tuple[int, ...]
    labels: tuple[int, ...]

    @property
    def name(self) -> int:
        return self.tokens[0]

    @property
    def scored(self) -> int:
        """Return the number of scored tokens. The first label does not count, since no position predicts it."""
        return sum(label != IGNORED for label in self.labels[1:])

    def cropped(self, length: int | None) -> "Example":
        """Return the first `length` tokens with their labels; the whole row if `length` is None."""
        return Example(self.tokens[:length], self.labels[:length])


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The settings of a run, in terms that every trainer has. None, 0 and False mean that a setting is not used.

    Attributes:
        directory: The directory for the files of the run. The bench sets it.
        train: The training examples.
        evaluated: The evaluation examples.
        batch: Number of examples in a micro-batch of one process.
        accumulate: Number of micro-batches per optimizer step.
        epochs: Number of passes over the training examples.
        max_steps: Number of optimizer steps after which the run ends, independent of `epochs`.
        optimizer: `sgd` or `adamw`.
        rate: The learning rate at the peak of the schedule.
        schedule: `constant`, or `linear` to 0.
        warmup: Number of steps in which the rate rises to the peak. The first of them has the rate 0, or the peak
            divided by `warmup`.
        clip: Limit of the norm of a gradient, for clipping.
        seed: Seed of all random numbers.
        dropout: The dropout probability of the model.
        frozen: Whether the embedding is not trained.
        log_every: Number of optimizer steps between logs.
        eval_every: Number of optimizer steps between evaluations.
        eval_batch: Number of examples in a batch of an evaluation.
        save_every: Number of optimizer steps between checkpoints.
        keep: Number of checkpoints that are kept.
        best: Whether the checkpoint with the smallest evaluation loss is kept as well.
        resume: The checkpoint to resume from, a path of `Report.checkpoints`.
        stop_at: The step after which a callback asks the trainer to stop.
        pad_multiple: Rows are padded to a multiple of this length.
        noise: Whether one token of every row is drawn from PyTorch's default generator, like an augmentation.
        workers: Number of processes of the data loader.
        groups: Whether the head is a parameter group with `HEAD_FACTOR` times the rate of the other parameters.
        decay: Weight decay of matrices. Biases have no weight decay.
        scaler: Whether a gradient scaler scales the loss.
        average: Decay of the running average of the weights: the fraction of the old average that a step keeps. The
            average starts with the initial weights.
        smoothing: Label smoothing in training: the fraction of the target that is spread over all tokens.
        crop: Largest number of tokens of a row. Later tokens are cut off.
        tied: Whether embedding and head share their weights. The method `model` applies this setting and the next ones.
        nan_evaluations: The evaluations in which the model returns NaN, by their number from 0.
        overflows: The forwards in training mode whose gradient is infinite, by their number from 0. A resumed run has
            none.
        not_finite: Pairs of the number, from 0, of a forward in training mode and its loss, NaN or infinity. A resumed
            run has none.
    """

    directory: Path = field(default_factory=Path)
    train: tuple[Example, ...]
    evaluated: tuple[Example, ...] = ()
    batch: int = 2
    accumulate: int = 1
    epochs: int = 1
    max_steps: int | None = None
    optimizer: str = "sgd"
    rate: float = 0.5
    schedule: str = "constant"
    warmup: int = 0
    clip: float | None = None
    seed: int = 1
    dropout: float = 0.0
    frozen: bool = False
    log_every: int = 1
    eval_every: int = 0
    eval_batch: int = 2
    save_every: int = 0
    keep: int | None = None
    best: bool = False
    resume: Path | None = None
    stop_at: int | None = None
    pad_multiple: int | None = None
    noise: bool = False
    workers: int = 0
    groups: bool = False
    decay: float | None = None
    scaler: bool = False
    average: float | None = None
    smoothing: float = 0.0
    tied: bool = False
    nan_evaluations: tuple[int, ...] = ()
    overflows: tuple[int, ...] = ()
    not_finite: tuple[tuple[int, float], ...] = ()
    crop: int | None = None

    def model(self) -> Probe:
        """Return the model to train. Call it once per run."""
        # Call `_nan_forwards` only if necessary: the settings that it reads count as read by the adapter.
        broken = self._nan_forwards() if self.nan_evaluations else []
        overflows, not_finite = ((), ()) if self.resume else (self.overflows, self.not_finite)
        probe = Probe(
            dropout=self.dropout,
            frozen=self.frozen,
            tied=self.tied,
            broken=broken,
            overflows=overflows,
            not_finite=dict(not_finite),
        )
        return recorder().watch(probe)

    def _nan_forwards(self) -> list[int]:
        """Return the forwards of the evaluations in `nan_evaluations`, by their number from 0 among all evaluations."""
        batches = -(-len(self.evaluated) // self.eval_batch)
        return [evaluation * batches + batch for evaluation in self.nan_evaluations for batch in range(batches)]

    def collate(self, examples: list[Example]) -> dict[str, Tensor]:
        """Return `input_ids`, `attention_mask` and unshifted `labels` as int64 tensors [B, T], padded on the right."""
        return padded([self.with_noise(example) for example in examples], self.pad_multiple or 1)

    def with_noise(self, example: Example) -> Example:
        """Return the example as the data set returns it: with `noise`, the second token is drawn at random."""
        if not self.noise:
            return example
        first, _, *rest = example.tokens
        return Example((first, int(torch.randint(*TEXT, ())), *rest), example.labels)


def padded(examples: list[Example], multiple: int = 1) -> dict[str, Tensor]:
    """Return the examples as a batch of int64 tensors [B, T], padded on the right; T is a multiple of `multiple`."""
    width = -(-max(len(example.tokens) for example in examples) // multiple) * multiple

    def rows(values: list[tuple[int, ...]], fill: int) -> Tensor:
        return torch.tensor([[*row, *[fill] * (width - len(row))] for row in values])

    return {
        "input_ids": rows([example.tokens for example in examples], PAD),
        "attention_mask": rows([(1,) * len(example.tokens) for example in examples], 0),
        "labels": rows([example.labels for example in examples], IGNORED),
    }


@dataclass(slots=True, kw_only=True)
class Report:
    """The facts about a run that only the trainer knows.

    Attributes:
        model: The trained model, which is or contains `job.model()`.
        logs: Rows with `step` and the logged numbers among `loss`, `rate`, `norm` and `tokens`. In a resumed run, rows
            may begin after the checkpoint.
        evaluations: Pairs of a step and a loss.
        events: The names of events in the order in which they occur: `train_begin`, `epoch_begin`, `step_begin`,
            `step_end`, `epoch_end`, `log`, `evaluate`, `save`, `train_end`.
        checkpoints: The paths, by step, of the checkpoints that exist at the end of the run.
        final_step: The number of steps that the trainer has counted.
        best: The step of the checkpoint that the trainer calls the best.
        best_model: A model with the weights that were evaluated for the best checkpoint.
        average: A model with the running average of the weights.
    """

    model: nn.Module
    logs: list[dict[str, float]] = field(default_factory=list)
    evaluations: list[tuple[int, float]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    checkpoints: dict[int, Path] = field(default_factory=dict)
    final_step: int | None = None
    best: int | None = None
    best_model: nn.Module | None = None
    average: nn.Module | None = None


# The comments complete the sentence: a trainer with this feature ...
OPT_IN = frozenset(
    {
        "autocast",  # computes the loss of its network in bfloat16
        "average",  # keeps a running average of the weights
        "best_model",  # returns the weights of the best checkpoint
        "best_step",  # names the step of the best checkpoint
        "checkpointing",  # recomputes activations of its network in the backward pass
        "crop",  # cuts long rows
        "decay",  # has a weight decay that excludes biases
        "end",  # has an end token
        "finite",  # refuses a loss that is NaN or infinite
        "frozen_eval",  # trains with the frozen parts of its network in eval mode
        "network",  # creates its own network, see `WithNetwork`
        "network_evaluation",  # evaluates its network
        "network_loss",  # computes a loss of its network
        "network_optimizer",  # creates an optimizer of its network
        "newest",  # finds the checkpoint to resume from
        "scaler",  # has a gradient scaler
        "smoothing",  # smooths labels in training
        "ties",  # of several equal losses, calls the first one the best
        "tokens",  # logs the number of scored tokens
    }
)
"""Features that a trainer has only if `features` of its adapter says True, or by an attribute, see `ATTRIBUTES`."""
ATTRIBUTES = frozenset({"end", "newest"})
"""Features of `OPT_IN` that an attribute of the same name declares: `end`, the id of a token, or `newest(folder)`."""
FEATURES = OPT_IN | {
    "accumulate",  # takes a step on several micro-batches
    "best",  # keeps the best checkpoint
    "cadence",  # evaluates and saves every n steps, not only at the end of an epoch
    "clip",  # clips gradients
    "epochs",  # makes passes over the data
    "eval_batch",  # has a batch size for evaluations
    "evaluate",  # evaluates
    "events",  # calls callbacks for the run and for epochs
    "freeze",  # freezes the embedding
    "gaps",  # accepts unscored tokens anywhere, not only at the start of a row
    "groups",  # has parameter groups
    "history",  # continues the logs of a resumed run
    "keep",  # rotates checkpoints
    "lengths",  # accepts rows of unequal length
    "log_every",  # logs every n steps
    "loss",  # logs the loss
    "masks",  # accepts unscored tokens
    "max_steps",  # ends after a number of steps
    "noise",  # accepts data that draw random numbers
    "norm",  # logs the norm of gradients
    "optimizer",  # has SGD and AdamW
    "padding",  # pads rows to a multiple
    "ranks",  # runs in two processes
    "rate",  # logs the learning rate
    "save",  # saves checkpoints
    "schedule",  # has a linear schedule
    "sequences",  # predicts several tokens of an example
    "short_windows",  # ends the last window of an epoch with the epoch
    "step_events",  # calls callbacks for steps
    "stop",  # can be stopped by a callback
    "tied",  # accepts a model with tied weights
    "warmup",  # has a linear warm-up
    "workers",  # loads data in worker processes
}
"""All features that an adapter may name in `features`; docs/adapters.md explains them."""


class Trainer(Protocol):
    """An adapter. It translates a job into the documented settings of a trainer, and corrects no mistakes of it.

    Attributes:
        features: Maps a feature to True if the trainer has the feature; otherwise to the reason, or to False without a
            reason. Without an entry, the trainer has a feature of `ATTRIBUTES` if the adapter has the attribute, no
            other feature of `OPT_IN`, and all features outside `OPT_IN`, except those that need a missing feature. The
            mapping extends the mappings of the base classes.
        tolerance: Relative tolerance of gradients. It must be larger if the trainer computes in a lower precision.
        not_claimed: Optional. Maps the id of a claim that the trainer does not make to the reason, with a reference to
            the documentation of the trainer.
    """

    @property
    def features(self) -> Mapping[str, bool | str]: ...
    @property
    def tolerance(self) -> float: ...

    def run(self, job: Job) -> Report: ...


def probe_of(model: nn.Module) -> Probe:
    """Return the probe that a model is or contains. Raise TypeError if there is none."""
    probe = next((module for module in model.modules() if isinstance(module, Probe)), None)
    if probe is None:
        raise TypeError(f"the model of the report, {type(model).__qualname__}, has no job.model() in it")
    return probe


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return copies of the probe's parameters by name."""
    named = dict(probe_of(model).named_parameters())
    return {name: parameter.detach().clone() for name, parameter in named.items()}
