"""Helpers for adapters of loops whose methods, settings and log columns have usual names.

The helpers find the methods of a loop, pass settings and examples to the loop, and read its logs and checkpoints.
"""

import ast
import inspect
import math
import re
import shutil
import sys
from argparse import PARSER, REMAINDER, ZERO_OR_MORE, ArgumentParser
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Never, TypeVar, cast
from unittest import SkipTest
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader

from pv.suites.training_loop.job import IGNORED, Example, Job
from pv.suites.training_loop.probe import Probe
from pv.suites.training_loop.usual_names import COLUMNS, NUMBERS, ROLES, divides_by_warmup, setting_of, value_of

Result = TypeVar("Result")


def part(loop: object, role: str) -> Callable[..., Any] | None:
    """Return the method of a loop with a usual name for a role.

    If several methods have a usual name, such as `train_step` and the method `update` that it calls, the outermost
    method is returned: the one that no other of these methods calls.

    Args:
        loop: The loop.
        role: A key of `ROLES`.

    Returns:
        The method; None if there is no such method, or more than one.
    """
    kind = type(loop)
    names = [name for name in dir(kind) if re.fullmatch(ROLES[role], name) and callable(getattr(loop, name))]
    # `co_names` has the names of the methods that a method calls.
    code = {name: getattr(getattr(kind, name), "__code__", None) for name in names}
    called = {used for name, body in code.items() if body is not None for used in body.co_names if used != name}
    outermost = [name for name in names if name not in called]
    return getattr(loop, outermost[0]) if len(outermost) == 1 else None


def number(loop: object, name: str) -> float | None:
    """Return the number of a loop in an attribute with a usual name.

    Args:
        loop: The loop.
        name: A key of `NUMBERS`.

    Returns:
        The value of the attribute; None if there is no such attribute, or more than one.
    """
    candidates = [attribute for attribute in dir(loop) if re.fullmatch(NUMBERS[name], attribute)]
    numbers = [attribute for attribute in candidates if not callable(getattr(loop, attribute))]
    return getattr(loop, numbers[0]) if len(numbers) == 1 else None


def settings(kind: Callable[..., Result], job: Job, **extra: object) -> Result:
    """Create the settings of a loop from a job.

    1. A class with parameters, or a function that takes settings, is called: parameters with usual names get the
       settings of the job.
    2. A function that needs no arguments and takes no setting, such as `parse_args(argv=None)`, or a class without
       parameters is called with an empty command line. Then the attributes of the returned settings that have usual
       names are set.

    Values are converted to the form that loops take:

    * a cadence of evaluations or checkpoints of 0 (never) becomes 10**9;
    * if the job does not clip and the parameter of the limit is a number, the limit is infinite;
    * if the loop takes `max_steps` and epochs, there are so many epochs that `max_steps` ends the run;
    * a directory is text if the annotation is `str`;
    * the device is the CPU;
    * if the module of `kind` divides by the warm-up, the warm-up is 1, and the schedule of the job is not used: name
      `schedule` as missing in `features`.

    Args:
        kind: The class or function that creates the settings.
        job: The job.
        extra: Further arguments or attributes. They replace values of the job.

    Returns:
        The settings.

    Raises:
        TypeError: A required argument of the command line is neither in the job nor in `extra`.
        ValueError: The parser of the command line reports another error.
    """
    parameters = dict(inspect.signature(kind).parameters)
    values = _arguments(kind, parameters, job, extra)
    if (inspect.isclass(kind) and parameters) or not _may_parse_command_line(parameters, values):
        return kind(**values)
    result = _call_without_command_line(kind, job, extra)
    # Set the attributes of the result, apart from properties, as if they were parameters with defaults.
    computed = {name for name in dir(result) if isinstance(getattr(type(result), name, None), property)}
    defaults = {name: getattr(result, name) for name in dir(result) if name[0] != "_" and name not in computed}
    parameters = {k: inspect.Parameter(k, inspect.Parameter.KEYWORD_ONLY, default=v) for k, v in defaults.items()}
    for name, value in _arguments(kind, parameters, job, extra).items():
        setattr(result, name, value)
    return result


def _may_parse_command_line(parameters: Mapping[str, inspect.Parameter], arguments: Iterable[str]) -> bool:
    """Return whether a function may parse the command line.

    Such a function has no required parameter, and no parameter for one of the arguments.
    """
    named = (parameter for parameter in parameters.values() if parameter.kind is not parameter.VAR_POSITIONAL)
    # A parameter `**settings`, which takes all settings, has no default either.
    optional = all(parameter.default is not parameter.empty for parameter in named)
    return optional and not parameters.keys() & {*arguments}


def _call_without_command_line(kind: Callable[[], Result], job: Job, extra: Mapping[str, object]) -> Result:
    """Call a function that may parse the command line, with an empty command line, and return its result.

    Required arguments get the value of the job or of `extra` as their default. Raise TypeError if there is none.
    """
    # `argparse` reads `sys.argv`, which belongs to `pv`, and ends the process if a required argument is missing. So its
    # parsing method is replaced during the call: it parses an empty list, and required arguments become optional.
    parse = ArgumentParser.parse_known_args

    def parse_nothing(parser: ArgumentParser, *arguments: object, **named: object) -> object:
        required = [action for action in parser._actions if action.required and action.nargs != PARSER]
        kinds = {action.dest: action.type or str for action in required}
        parameters = {k: inspect.Parameter(k, inspect.Parameter.KEYWORD_ONLY, annotation=v) for k, v in kinds.items()}
        values = _arguments(kind, parameters, job, extra)
        needed = [action.dest for action in required if action.nargs not in _MAY_BE_EMPTY]
        if missing := [f"{name}=..." for name in needed if name not in values]:
            raise TypeError(f"an argument is required: call `settings({kind.__name__}, job, {', '.join(missing)})`")
        for action in required:
            action.required, action.default = False, values.get(action.dest, [])
        return parse(parser, [], *arguments[1:], **{k: value for k, value in named.items() if k != "args"})

    def refuse(parser: ArgumentParser, message: str) -> Never:
        raise ValueError(message)  # argparse would end the process

    with (
        patch.object(sys, "argv", sys.argv[:1]),
        patch.object(ArgumentParser, "parse_known_args", parse_nothing),
        patch.object(ArgumentParser, "error", refuse),
    ):
        return kind()


_MAY_BE_EMPTY = (ZERO_OR_MORE, REMAINDER)
"""Values of `nargs` for positional arguments that may be empty, although argparse marks them as required."""


def _arguments(
    kind: Callable[..., object], parameters: Mapping[str, inspect.Parameter], job: Job, extra: Mapping[str, object]
) -> dict[str, object]:
    """Return the arguments that `settings` passes, by the name of the parameter."""
    annotations = {name: _annotation(parameter) for name, parameter in parameters.items()}
    # The name of the job's setting for each parameter; "" if the parameter has no setting.
    taken = {name: setting_of(name, annotation) for name, annotation in annotations.items() if name not in extra}
    # A loop that divides by its warm-up gets a warm-up of one step, so its schedule is not the schedule of the job.
    warmups = [name for name, setting in taken.items() if setting == "warmup" and _divides_by_warmup(kind)]
    arguments: dict[str, object] = dict.fromkeys(warmups, 1)
    taken = {name: setting for name, setting in taken.items() if not warmups or setting not in ("warmup", "schedule")}
    # `value_of` returns the source code of a value, since `pv new` writes this code into adapters.
    values = {name: value_of(setting, annotations[name]) for name, setting in taken.items() if setting}
    arguments |= {name: eval(value, {"job": job}) for name, value in values.items()}
    arguments |= dict.fromkeys({"device"} & parameters.keys(), "cpu")
    # `value_of` raises the number of epochs so that `max_steps` ends the run. Without a parameter for `max_steps`, the
    # epochs end the run, so their number is not raised.
    if "max_steps" not in taken.values():
        arguments |= {name: job.epochs for name, setting in taken.items() if setting == "epochs"}
    return {**arguments, **extra}


@cache
def _divides_by_warmup(kind: Callable[..., object]) -> bool:
    """Return whether the module of a class or function divides by the warm-up, so that a warm-up of 0 raises."""
    try:
        return divides_by_warmup(ast.parse(inspect.getsource(cast("ModuleType", inspect.getmodule(kind)))))
    except (OSError, TypeError):  # without a source
        return False


def _annotation(parameter: inspect.Parameter) -> str:
    """Return the annotation of a parameter as text; without one, the type of its default."""
    default = None if parameter.default is parameter.empty else parameter.default
    kind = type(default) if parameter.annotation is parameter.empty else parameter.annotation
    return kind.__name__ if isinstance(kind, type) else str(kind)


def cosine_rate(job: Job, step: int, planned: int, *, rise: float | None = None) -> float:
    """Return the learning rate of a step: linear warm-up, then a cosine that reaches 0 at the planned end.

    If the schedule of the job is constant, the rate stays at the peak after the warm-up. The method `expected_rate` of
    an adapter can return this rate.

    Args:
        job: The job.
        step: The step, from 0.
        planned: Number of planned steps.
        rise: The rate of a warm-up step as a fraction of the peak; None for (step + 1) / `job.warmup`.
    """
    if step < job.warmup:
        return job.rate * ((step + 1) / job.warmup if rise is None else rise)
    if job.schedule == "constant":
        return job.rate
    return job.rate * (1 + math.cos(math.pi * (step - job.warmup) / max(1, planned - job.warmup))) / 2


def logged(rows: Iterable[Mapping[str, float | None]], *others: str) -> dict[str, Any]:
    """Return `logs` and `evaluations` for a report.

    Args:
        rows: The rows that the loop logs, in columns with usual names. Rows without the number of a step are left out.
        others: Further columns to keep. They are compared after a resume, so do not name times.
    """
    logs, evaluations = [], []
    for row in rows:
        columns = {name: [key for key in row if re.fullmatch(pattern, key)] for name, pattern in COLUMNS.items()}
        # A number with several usual columns is ambiguous, and left out.
        numbers = {name: row[keys[0]] for name, keys in columns.items() if len(keys) == 1 and row[keys[0]] is not None}
        if "step" not in numbers:
            continue
        if "eval_loss" in numbers:
            evaluations.append((numbers["step"], numbers.pop("eval_loss")))
        if len(numbers) > 1:
            logs.append(numbers | {name: row[name] for name in others if name in row})
    return {"logs": logs, "evaluations": evaluations}


def copies(loop: object, steps: str = "step") -> dict[int, Path]:
    """Copy each checkpoint that a loop saves from now on, since the loop may overwrite or remove its files.

    Args:
        loop: The loop, with one method with a usual name that saves. Its first argument is the path.
        steps: The attribute that counts steps.

    Returns:
        The paths of the copies by step. Each save of the loop adds an entry.

    Raises:
        ValueError: There is no method with a usual name that saves, or several.
    """
    save, paths = part(loop, "save"), dict[int, Path]()
    if save is None:
        raise ValueError(f"{type(loop).__qualname__} has no method with a usual name that saves, or several")

    def save_and_copy(path: str | Path, *arguments: object, **options: object) -> object:
        result, step = save(path, *arguments, **options), getattr(loop, steps)
        paths[step] = Path(f"{path}.{step}")
        if Path(path).is_dir():
            shutil.copytree(path, paths[step], dirs_exist_ok=True)  # a loop may save a step twice, such as the last
        else:
            shutil.copy(path, paths[step])
        return result

    setattr(loop, save.__name__, save_and_copy)
    return paths


class Rows(Sequence[dict[str, list[int]]]):
    """The examples of a job as rows of `input_ids` and unshifted `labels`. Tokens with the label -100 are not scored.

    Each access to a row creates the row. With `job.noise`, each access draws the random token anew.
    """

    def __init__(self, job: Job, examples: Sequence[Example]) -> None:
        self.job, self.examples = job, examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        example = self.job.with_noise(self.examples[index])
        return {"input_ids": list(example.tokens), "labels": list(example.labels)}


def next_tokens(examples: Sequence[Example], ignored: int = -1) -> list[tuple[list[int], list[int]]]:
    """Return the inputs and targets of each example. A target is the next token; `ignored` if it is not scored."""
    labels = [[ignored if label == IGNORED else label for label in example.labels] for example in examples]
    return [(list(example.tokens[:-1]), row[1:]) for example, row in zip(examples, labels, strict=True)]


def classified(examples: Sequence[Example], shape: Sequence[int] = (1,)) -> list[tuple[Tensor, int]]:
    """Return an input and a label of every example, for a loop that lacks `sequences`.

    The input is a float tensor of the given shape, such as an image, whose elements are all the name of the example.

    Raises:
        SkipTest: An example has several labels.
    """
    if any(len(example.tokens) > 2 for example in examples):
        raise SkipTest("the examples have several labels: name `sequences` as missing in `features`")
    return [(torch.full(tuple(shape), float(example.name)), example.tokens[1]) for example in examples]


class Classifier(nn.Module):
    """The suite's model as a classifier of the inputs of `classified`: model(x) maps [B, ...] to logits [B, V]."""

    def __init__(self, probe: Probe) -> None:
        super().__init__()
        self.probe = probe

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.probe(x.flatten(1)[:, :1].round().long())[:, 0]
        return logits


class NextTokens(nn.Module):
    """The suite's model with the interface of nanoGPT: model(x, y) returns logits [B, T, V] and a loss in nats.

    Inputs x and targets y are int64 [B, T], as `next_tokens` returns them. Without targets, the loss is None.
    """

    def __init__(self, probe: Probe, *, reduction: str = "mean", ignored: int = -1) -> None:
        super().__init__()
        self.probe, self.reduction, self.ignored = probe, reduction, ignored

    def forward(self, x: Tensor, y: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        logits = self.probe(x)
        if y is None:
            return logits, None
        rows, targets = logits.flatten(0, 1), y.flatten()
        return logits, cross_entropy(rows, targets, ignore_index=self.ignored, reduction=self.reduction)


def optimizer_of(job: Job, parameters: Iterable[nn.Parameter]) -> Optimizer:
    """Return the optimizer of a job. It gets the parameters that require a gradient."""
    kinds: dict[str, Callable[..., Optimizer]] = {"sgd": SGD, "adamw": AdamW}
    return kinds[job.optimizer]([parameter for parameter in parameters if parameter.requires_grad], lr=job.rate)


def rate_factor(job: Job, done: int, planned: int) -> float:
    """Return the factor of the rate after `done` of the `planned` steps: linear warm-up, then the job's schedule."""
    if done < job.warmup:
        return done / job.warmup
    if job.schedule == "constant":
        return 1.0
    return max(0.0, (planned - done) / max(1, planned - job.warmup))


def scheduler_of(job: Job, optimizer: Optimizer, planned: int, ranks: int = 1) -> LambdaLR:
    """Return the scheduler of a job, whose `step` is called `ranks` times for each optimizer step."""
    return LambdaLR(optimizer, lambda scheduler_steps: rate_factor(job, scheduler_steps // ranks, planned))


def loader_of(
    job: Job,
    examples: tuple[Example, ...],
    size: int,
    seed: int | None,
    *,
    shuffle: bool = False,
    collate: Callable[[list[Example]], object] | None = None,
    kind: Callable[..., Any] = DataLoader,
) -> Any:
    """Return a loader of the batches of a job.

    Args:
        job: The job. The loader has its number of workers.
        examples: The data.
        size: The number of examples in a batch.
        seed: Seed of a generator for this loader, as PyTorch's notes on reproducibility advise; None for the default
            generator.
        shuffle: Whether each pass has a random order.
        collate: Returns a batch of examples; None for the collator of the job.
        kind: The class of the loader, which takes the arguments of PyTorch's `DataLoader`.
    """
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    rows, collate = list(examples), collate or job.collate
    return kind(rows, size, shuffle=shuffle, collate_fn=collate, num_workers=job.workers, generator=generator)


def pairs_of(job: Job, examples: tuple[Example, ...], size: int, seed: int | None, *, shuffle: bool = False) -> Any:
    """Return a loader of pairs of token ids and labels [B, T]. See `loader_of` for the arguments."""

    def collate(examples: list[Example]) -> tuple[Tensor, Tensor]:
        batch = job.collate(examples)
        return batch["input_ids"], batch["labels"]

    return loader_of(job, examples, size, seed, shuffle=shuffle, collate=collate)
