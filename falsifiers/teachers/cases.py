"""Two vocabularies and the step between them; settings that teachers depend on, and the teacher of a run."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

import reference_trainer
from falsifiers.support.cases import StepCase
from falsifiers.support.steps import RecordingStudent
from falsifiers.support.strategies import HALVES, POSITIVE_WEIGHTS, TEMPERATURES, tensors
from reference_trainer.distillation import providers

TOKENS = 3
"""Rows of each table: tokens are 0, 1 and 2, in both vocabularies."""


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Tables of a teacher [K, V] and a student [K, W], tokens and labels [B, T], and the arguments of a step."""

    teacher: Tensor
    student: Tensor
    tokens: Tensor
    labels: Tensor
    settings: dict[str, float]

    def but(self, **changes: Any) -> Self:
        return replace(self, **changes)

    @property
    def sizes(self) -> tuple[int, int]:
        return self.teacher.shape[1], self.student.shape[1]

    def resized(self, vocab_size: int) -> StepCase:
        """Return the step's case with both tables cut to this size, or continued with -inf."""
        student, teacher = (table_of(table, vocab_size) for table in (self.student, self.teacher))
        return StepCase(self.tokens, self.labels, student, teacher, **self.settings)

    def step(self, subject: Any, mode: str, device: str = "cpu") -> tuple[Any, Tensor]:
        """Return the result of a step in this mode, and the gradient that the student got, on the CPU."""
        learner = RecordingStudent(self.student.to(device))
        teacher, student = subject.share_vocabulary(providers.FixtureTeacher(self.teacher.to(device)), learner, mode)
        batch = providers.Batch(tokens=self.tokens.to(device), labels=self.labels.to(device))
        result = providers.kd_step(teacher, student, batch, **self.settings)
        gradients = [gradient for done in learner.passes for gradient in done.gradients]
        assert len(gradients) == 1, f"the student got {len(gradients)} gradients in one step"
        expected = [*self.tokens.shape, self.student.shape[1]]
        assert list(gradients[0].shape) == expected, (
            f"{mode}, sizes {self.sizes}: the student got a gradient of shape {list(gradients[0].shape)}; expected "
            f"{expected}, its own vocabulary"
        )
        return result, gradients[0].cpu()


def table_of(table: Tensor, vocab_size: int) -> Tensor:
    """Return the first columns of a table; missing ones are -inf."""
    missing = max(vocab_size - table.shape[1], 0)
    return torch.cat((table[:, :vocab_size], torch.full((len(table), missing), -math.inf, dtype=table.dtype)), 1)


@st.composite
def pairs(draw: st.DrawFn, larger: str) -> Pair:
    """Draw tables, of which `larger` ("teacher" or "student") has one to four more columns; labels are in both."""
    common = draw(st.integers(TOKENS, 5))
    wide = common + draw(st.integers(1, 4))
    sizes = {"teacher": common, "student": common, larger: wide}
    tables = {name: draw(tensors((TOKENS, size), HALVES, torch.float64)) for name, size in sizes.items()}
    B, T = draw(st.integers(1, 2)), draw(st.integers(2, 4))
    tokens = draw(st.lists(st.integers(0, TOKENS - 1), min_size=B * T, max_size=B * T))
    labels = draw(st.lists(st.sampled_from([*range(common), -100]), min_size=B * T, max_size=B * T))
    labels[1] = draw(st.integers(0, common - 1))
    settings = {
        "temperature": draw(TEMPERATURES),
        "ce_weight": draw(POSITIVE_WEIGHTS),
        "kd_weight": draw(POSITIVE_WEIGHTS),
    }
    return Pair(
        **tables,
        tokens=torch.tensor(tokens).reshape(B, T),
        labels=torch.tensor(labels).reshape(B, T),
        settings=settings,
    )


CPU = torch.device("cpu")
TEXT = torch.arange(60, dtype=torch.uint8)
WEIGHTS, CONFIG, MANIFEST = "model.safetensors", "config.json", "manifest.json"

# Every setting that a trained teacher depends on, with two values.
DEPENDS = {"batch_size": (2, 3), "dtype": ("float32", "bfloat16"), "length": (8, 9), "lr": (3e-3, 4e-3), "seed": (0, 1)}
DEPENDS |= {"warmup": (1, 11), "teacher_layers": (1, 2), "teacher_steps": (2, 21), "teacher_width": (16, 32)}
DEPENDS |= {"documents": ("pad", "pack"), "separator": ("--", ".")}


def settings_of(cache: Path | None, **others: Any) -> Any:
    return reference_trainer.Settings(
        teacher_cache=cache, **{**{name: values[0] for name, values in DEPENDS.items()}, **others}
    )


class Fetched:
    """The teacher of a run: the bits of its weights, the steps of its training, and the output."""

    def __init__(self, subject: Any, settings: Any, digest: str = "d") -> None:
        self.said: list[str] = []
        self.steps = 0
        part = {"length": settings.length, "batch_size": settings.batch_size, "device": CPU}
        sequences = reference_trainer.Sequences(bytes_N=TEXT, **part)
        # A smoke run's settings have a smaller number of steps; the key is of the whole training.
        teacher = subject.load_or_train(settings, sequences, digest, [self._counter()], self.said.append, same)
        self.bits = bits_of(teacher)

    def _counter(self) -> Any:
        def count(listener: Any, context: Any) -> None:
            self.steps = context.step

        return type("Counter", (reference_trainer.Callback,), {"on_step_end": count})()


def same(decoder: nn.Module) -> nn.Module:
    return decoder


def bits_of(module: nn.Module) -> dict[str, tuple[str, list[Any]]]:
    return {name: (str(value.dtype), value.tolist()) for name, value in module.state_dict().items()}
