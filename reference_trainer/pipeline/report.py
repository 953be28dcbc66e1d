"""The result and the manifest of a run, and the lines that report about the run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from reference_trainer.config.settings import FIELDS, Settings
from reference_trainer.distillation.metrics import derive_metrics
from reference_trainer.distillation.step import MetricSum
from reference_trainer.models.placement import device_name
from reference_trainer.pipeline import smoke
from reference_trainer.plan.rates import learning_rate, warmup_steps
from reference_trainer.plan.schedule import Event, Schedule
from reference_trainer.storage.export import versions
from reference_trainer.training.evaluation import EVALUATED_SUMS, SHARES
from reference_trainer.training.state import TrainResult, TrainState


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillResult:
    """The result of a distillation.

    Attributes:
        train: The result of the training loop.
        output: The directory of the model; None for a smoke run.
        held_back: Sums on held-back rows, by the names of `evaluate`; empty for a smoke run.
        checks: The checks of a smoke run; else empty.
        student: The trained model.
        teacher: The frozen model; an empty module if its outputs come from a server or from files.
        unit: The unit of the data, "byte" or "token".
    """

    train: TrainResult
    output: Path | None
    held_back: dict[str, MetricSum]
    checks: tuple[smoke.Check, ...]
    student: nn.Module
    teacher: nn.Module
    unit: str = "byte"

    @property
    def go(self) -> bool:
        """Return whether every check of a smoke run passed; True for other runs."""
        return all(check.passed for check in self.checks)


def result_lines(
    train: TrainResult, held_back: Mapping[str, MetricSum], output: Path | None, unit: str = "byte"
) -> tuple[str, ...]:
    """Return a line about the run, one line for each held-back metric, and a line with the output directory.

    The elapsed time counts as at least one nanosecond. The losses in `EVALUATED_SUMS` are printed in nats per `unit` of
    the data; all other metrics, such as perplexities and shares, are printed without a unit.
    """
    first, last = train.initial_loss, train.final_loss
    losses = "no token was scored" if first is None else f"distillation loss {first:.4f} to {last:.4f}"
    ended = ", stopped by a callback" if train.stopped else ""
    return (
        f"{train.steps_completed} steps in {train.elapsed_s:.1f}s ({train.steps_per_s:.2f} step/s, "
        f"{train.tokens / max(train.elapsed_s, 1e-9):,.0f} {unit}s/s): {losses}{ended}",
        *(
            f"held-back {name}: {value:.4f}{_suffix(name, held_back, unit)}"
            for name, value in derive_metrics(held_back).items()
        ),
        f"wrote {output}",
    )


def _suffix(name: str, held_back: Mapping[str, MetricSum], unit: str) -> str:
    """Return the text after the value of a metric: its unit, and the number of tokens."""
    if name not in held_back:  # derived: a perplexity, or the length of accepted drafts
        return ""
    count = held_back[name].count
    if name not in EVALUATED_SUMS:
        return f" over {count}"
    over = f" over {count} {unit}s"
    return over if name in SHARES else f" nats per {unit}{over}"


def manifest(
    settings: Settings, device: torch.device, result: TrainResult, held_back: Mapping[str, MetricSum], **fields: object
) -> dict[str, object]:
    """Return the manifest as a JSON object. fields: further values by name, such as digests.

    A number that is not finite becomes the string "NaN", "Infinity" or "-Infinity", because JSON has no such numbers.
    """
    content = {
        "schema": "reference-trainer/manifest/1",
        "settings": settings.json_values(),
        "seed": settings.run.seed,
        **fields,
        "versions": versions(),
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "result": {
            **asdict(result),
            "throughput_steps_per_s": result.steps_per_s,
            "throughput_tokens_per_s": result.tokens / max(result.elapsed_s, 1e-9),
        },
        "held_back": {name: {"sum": total.sum, "count": total.count} for name, total in held_back.items()},
    }
    return {name: _json_value(value) for name, value in content.items()}


def describe_optimizer(optimizer: torch.optim.Optimizer, modules: Mapping[str, nn.Module]) -> dict[str, object]:
    """Describe an optimizer as a JSON object: its name, and the parameter names and options of each parameter group.

    The learning rate is left out, because it depends on the step.

    Args:
        optimizer: The optimizer.
        modules: The modules that contain the parameters, by the prefix of the parameter names.
    """
    names = {
        parameter: f"{module}.{name}" for module in modules for name, parameter in modules[module].named_parameters()
    }
    groups = [
        {"parameters": [names.get(parameter, "of no module") for parameter in group["params"]], **_options(group)}
        for group in optimizer.param_groups
    ]
    return {"name": type(optimizer).__name__, "groups": groups}


def _options(group: Mapping[str, object]) -> dict[str, object]:
    """Return the options of a parameter group that are numbers, strings, tuples or None."""
    plain = (bool, int, float, str, tuple, type(None))
    return {
        name: option for name, option in group.items() if name not in ("params", "lr") and isinstance(option, plain)
    }


def _json_value(value: object) -> object:
    """Return a value in which a string replaces each number that is not finite."""
    if isinstance(value, Mapping):
        return {name: _json_value(item) for name, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)
    return value


def find_unreachable(settings: Settings, schedule: Schedule) -> list[str]:
    """Return a line for each setting that differs from its default and needs more steps or batches than the run has."""
    planned, batches = schedule.planned_steps, schedule.micro_batches or schedule.steps_per_epoch
    total = planned if settings.run.smoke is not None else schedule.total_steps  # a smoke run is cut short on purpose
    warmup = warmup_steps(settings.schedule.warmup, planned)
    rate = learning_rate(planned, peak=settings.optimizer.lr, warmup=warmup, total=planned)
    # The setting, its largest value with a full effect, the unit, and the effect of a larger value.
    limits = (
        ("warmup", planned, "steps", f"the learning rate reaches {rate:.3g} instead of {settings.optimizer.lr:g}"),
        ("lr_decay", planned, "steps", "the learning rate falls as soon as it has reached its peak"),
        ("anneal_warmup", planned, "steps", "no loss weight reaches its start value"),
        ("max_steps", planned, "steps", "the run ends before; set epochs for a longer run"),
        ("eval_every", total, "steps", "nothing is evaluated before the end of the run"),
        ("accumulate", batches, "batches in an epoch", "a step accumulates all of them"),
    )
    return [
        f"settings: {name} is {value} and the run has {limit} {unit}: {effect}"
        for name, limit, unit, effect in limits
        if (value := settings.flat()[name]) is not None and value > limit and value != FIELDS[name].default
    ]


def teacher_note(settings: Settings, steps: int) -> str | None:
    """Return a line if the user chose a warm-up longer than the training of the teacher; None in a smoke run.

    steps: the number of steps of that training.
    """
    is_reported = settings.schedule.warmup != FIELDS["warmup"].default and settings.run.smoke is None
    if not is_reported or settings.schedule.warmup <= steps:
        return None
    warmup = warmup_steps(settings.schedule.warmup, steps)
    rate = learning_rate(steps, peak=settings.optimizer.lr, warmup=warmup, total=steps)
    reached = f"the learning rate reaches {rate:.3g} instead of {settings.optimizer.lr:g}"
    return f"warmup is {settings.schedule.warmup} and the training has {steps} steps: {reached}"


def student_notes(settings: Settings, student: nn.Module) -> list[str]:
    """Return a line for each property of a student that probably prevents the training that the settings request."""
    lines = []
    if not student.training:
        lines.append("trains in eval mode, without dropout; return model.train() to train with it")
    other_dtypes = {str(parameter.dtype) for parameter in student.parameters()} - {"torch.float64"}
    if settings.run.dtype == "float64" and other_dtypes:
        lines.append(f"has parameters of {', '.join(sorted(other_dtypes))}; return model.double() to train in float64")
    # Skip parameters on the meta device, whose values are loaded later.
    loaded = [parameter for parameter in student.parameters() if not parameter.is_meta]
    # Count the weights that a step would leave unchanged.
    trained = [parameter.detach() for parameter in loaded if parameter.requires_grad]
    unchanged = [(parameter.dtype, int(_immovable(parameter, settings.optimizer.lr).sum())) for parameter in trained]
    if settings.student.weights == "bfloat16":  # a step changes the float32 masters of bfloat16 weights
        unchanged = [(dtype, number) for dtype, number in unchanged if dtype != torch.bfloat16]
    share = sum(number for _, number in unchanged) / max(1, sum(parameter.numel() for parameter in trained))
    if share > 1 / 2:
        dtypes = {dtype for dtype, number in unchanged if number}
        names = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        remedy = (
            "choose a larger lr"
            if dtypes <= {torch.float32, torch.float64}
            else "return model.float(), and use --dtype bfloat16 to compute in bfloat16"
        )
        lines.append(
            f"a step with the learning rate {settings.optimizer.lr:g} leaves {share:.0%} of the weights unchanged by "
            f"rounding ({names}); {remedy}"
        )
    return [f"student: {line}" for line in lines]


def _immovable(weights: Tensor, rate: float) -> Tensor:
    """Return a mask of the weights to which `rate` is too small to be added or subtracted, because of rounding.

    A step of Adam changes a weight by about `rate` at most.
    """
    return (weights + rate == weights) & (weights - rate == weights)


def resume_note(resumed: TrainState, schedule: Schedule) -> str | None:
    """Return a line with the reason why a resumed run takes no further step; None if the run takes one."""
    position = resumed.position
    if position.stopping:
        return (
            f"a callback had stopped the run at step {position.step}, so it takes no further step; to continue the "
            "training, use --rewind --resume with an earlier checkpoint, or begin a new run with --init-from"
        )
    if position.step >= schedule.total_steps or position.event is Event.TRAIN_END:
        return f"the run had ended with step {position.step}, so it takes no further step"
    return None
