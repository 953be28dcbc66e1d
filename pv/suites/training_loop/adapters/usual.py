"""Finds the parts of a loop by their usual names, and hands settings and examples of a job to it as loops take them."""

import inspect
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from unittest import SkipTest

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pv.suites.training_loop.job import IGNORED, Example, Job
from pv.suites.training_loop.names import NUMBERS, ROLES, setting_of, takes_number
from pv.suites.training_loop.probe import Probe

Made = TypeVar("Made")
NEVER = 10**9
"""A cadence in steps that no run reaches."""


def part(loop: Any, role: str) -> Callable[..., Any] | None:
    """Return the method of a loop whose name is usual for a role of `ROLES`, and that no other such method calls.

    None if there is none, or several.
    """
    names = [each for each in dir(type(loop)) if re.fullmatch(ROLES[role], each) and callable(getattr(loop, each))]
    code = {each: getattr(getattr(type(loop), each), "__code__", None) for each in names}
    inner = {used for each, own in code.items() if own is not None for used in own.co_names if used != each}
    outer = [each for each in names if each not in inner]
    return getattr(loop, outer[0]) if len(outer) == 1 else None


def number(loop: Any, name: str) -> float | None:
    """Return the one attribute of a loop whose name is usual for a number of `NUMBERS`; None if there is none."""
    names = [each for each in dir(loop) if re.fullmatch(NUMBERS[name], each) and not callable(getattr(loop, each))]
    return getattr(loop, names[0]) if len(names) == 1 else None


def settings(kind: Callable[..., Made], job: Job, **own: Any) -> Made:
    """Return the settings of a loop: what its parameters, by their usual names, take of a job. own: all others.

    A cadence of 0, which is never, is given as `NEVER`, and no clipping as an infinite limit where a number is taken.
    As `max_steps` alone ends a run that has it, there are then enough epochs for a loop that takes both. A directory is
    given as text where the annotation says `str`.
    """
    parameters = inspect.signature(kind).parameters
    annotations = {name: str(each.annotation) for name, each in parameters.items()}
    taken = {name: setting_of(name, each) for name, each in annotations.items() if name not in own}
    given = {name: _value(job, setting, annotations[name]) for name, setting in taken.items() if setting}
    limits = [name for name, setting in taken.items() if setting == "clip" and _takes_number(parameters[name])]
    given |= dict.fromkeys(limits, job.clip or math.inf)
    if "max_steps" not in taken.values():
        given |= {name: job.epochs for name, setting in taken.items() if setting == "epochs"}
    return kind(**given, **own)


def _takes_number(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    named = "" if annotation is parameter.empty else getattr(annotation, "__name__", str(annotation))
    return takes_number(named, parameter.default)


def _value(job: Job, setting: str, annotation: str) -> Any:
    match setting:
        case "schedule":
            return job.schedule == "linear"
        case "decay":
            return job.decay or 0.0
        case "eval_every" | "save_every":
            return getattr(job, setting) or NEVER
        case "epochs":
            return max(job.epochs, job.max_steps or 0)
        case "directory" if "str" in annotation and "Path" not in annotation:
            return str(job.directory)
    return getattr(job, setting)


class Rows(Sequence[dict[str, list[int]]]):
    """The examples of a job as rows of `input_ids` and unshifted `labels`, -100 where none is scored.

    A row is made when it is taken: where the data of the job draw random numbers, they do so then.
    """

    def __init__(self, job: Job, examples: Sequence[Example]) -> None:
        self.job, self.examples = job, examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Rows(self.job, self.examples[index])
        example = self.job.drawn(self.examples[index])
        return {"input_ids": list(example.tokens), "labels": list(example.labels)}


def next_tokens(examples: Sequence[Example], ignored: int = -1) -> list[tuple[list[int], list[int]]]:
    """Return inputs and targets of each example: targets are the next tokens, `ignored` where none is scored."""
    labels = [[ignored if label == IGNORED else label for label in each.labels] for each in examples]
    return [(list(each.tokens[:-1]), row[1:]) for each, row in zip(examples, labels, strict=True)]


def classified(examples: Sequence[Example], shape: Sequence[int] = (1,)) -> list[tuple[Tensor, int]]:
    """Return an input and a label of each example, for a loop that lacks `sequences`.

    The input is a float tensor of the shape, such as an image, each element of which is the name of the example.
    """
    if any(len(each.tokens) > 2 for each in examples):
        raise SkipTest("the examples have several labels: name `sequences` in `without`")
    return [(torch.full(tuple(shape), float(each.name)), each.tokens[1]) for each in examples]


class Classifier(nn.Module):
    """The suite's model as a classifier of the inputs of `classified`: model(x) maps [B, ...] to logits [B, V]."""

    def __init__(self, probe: Probe) -> None:
        super().__init__()
        self.probe = probe

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.probe(x.flatten(1)[:, :1].round().long())[:, 0]
        return logits


class NextTokens(nn.Module):
    """The suite's model with the interface of nanoGPT's: model(x, y) returns logits [B, T, V] and a loss in nats.

    x, y: inputs and targets int64 [B, T], as of `next_tokens`. The loss is None without targets.
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
