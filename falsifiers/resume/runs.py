"""Small runs with dropout and noisy data that are saved often, and comparison of the ends of two runs."""

import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from falsifiers.checkpoint_files.saved import assert_same
from falsifiers.support.runs import assert_same_lines, difference, without_times
from reference_trainer import Callback, Lines, Settings
from reference_trainer.distillation.protocols import Batch

V, STEPS = 11, 6
"""Tokens, and the steps of a run: two epochs of seven batches, three a step."""
TIMEOUT_S = 30
"""How long a rank waits for others; a right subject never needs it, even on busy cores."""


class Model(nn.Module):
    """A model with dropout, layers that are sharded one by one, and a buffer that counts its forwards."""

    def __init__(self, width: int, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed, self.drop, self.head = nn.Embedding(V, width), nn.Dropout(0.3), nn.Linear(width, V)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.register_buffer("forwards", torch.tensor(0))

    def forward(self, tokens: Tensor) -> Tensor:
        self.forwards += self.training
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + self.drop(torch.tanh(layer(x)))
        logits: Tensor = self.head(x)
        return logits


class Noisy:
    """Batches with a token of their own and noise from the default generator; `asked` are their numbers."""

    batches = 7

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def batch(self, epoch: int, position: int) -> Batch:
        self.asked.append((epoch, position))
        tokens = torch.randint(V, (2, 5))
        tokens[:, 0] = position
        return Batch(tokens=tokens, labels=tokens)


def settings(directory: Path, out: str, **changes: Any) -> Settings:
    """Return the settings of a run of `STEPS` steps that logs and saves every one."""
    usual = {"epochs": 2, "accumulate": 3, "log_every": 1, "save_every": 1, "lr": 0.1, "warmup": 2, "device": "cpu"}
    usual |= {"temperature": 2.0, "ce_weight": 0.3, "kd_weight": 0.7, "temperature_end": 1.0, "kd_weight_end": 0.2}
    return Settings(**{**usual, "rank_timeout": TIMEOUT_S, "out": directory / out, **changes})


def small_distillation(subject: Any) -> Any:
    """Return the distillation of `Model`, which evaluates nothing and writes its manifest alone."""

    class Small(subject.Distillation):  # the subject is any module
        vocab_size = V

        def make_batches(self) -> Noisy:
            return Noisy()

        def make_student(self) -> nn.Module:
            return Model(5, seed=1)

        def make_teacher(self) -> nn.Module:
            return Model(3, seed=2).eval()

        def evaluate(self) -> dict[str, Any]:
            return {}

        def save(self, directory: Path, manifest: dict[str, Any]) -> None:
            (directory / "manifest.json").write_text(json.dumps(manifest))

    return Small


Measure = Callable[[Any], dict[str, Any]]
"""Returns the sums of an evaluation of a distillation."""


def ended(
    subject: Any,
    chosen: Settings,
    callbacks: Sequence[Callback] = (),
    asked: Callable[[], bool] = lambda: False,
    measure: Measure = lambda run: {},
    teacher: Callable[[], nn.Module] = lambda: Model(3, seed=2),
) -> Any:
    """Run to the end, and return the distillation, whose `stream` has its lines, and its result.

    asked: whether it has to save and leave.
    """

    class Asked(small_distillation(subject)):  # made for the subject
        def make_teacher(self) -> nn.Module:
            return teacher()

        @contextmanager
        def stop_requests(self) -> Iterator[Callable[[], bool]]:
            yield asked

        def evaluate(self) -> dict[str, Any]:
            return measure(self)

    stream = io.StringIO()
    with Asked(chosen, callbacks=callbacks, lines=Lines(stream)) as run, run:
        run.stream = stream
        run.prepare()
        return run, run.conclude(run.run())


class Cut(Callback):
    """Callback that interrupts the run after some steps, each once in all legs that share it."""

    def __init__(self, *steps: int) -> None:
        self.left = set(steps)

    def on_step_end(self, context: Any) -> None:
        if context.step in self.left:
            self.left.remove(context.step)
            raise KeyboardInterrupt


def resumed_to_the_end(
    subject: Any,
    directory: Path,
    out: str,
    callbacks: Sequence[Callback],
    measure: Measure = lambda run: {},
    **changes: Any,
) -> Any:
    """Run, resuming from the latest checkpoint after each interrupt until the run ends; start over where none is."""
    for _ in range(2 * STEPS):
        has_checkpoint = any((directory / out / "checkpoints").glob("student-step*"))
        resume = {"resume": Path("latest")} if has_checkpoint else {}
        try:
            return ended(subject, settings(directory, out, **changes, **resume), callbacks, measure=measure)
        except KeyboardInterrupt:
            continue
    raise AssertionError("the run does not come to its end")


def assert_same_end(when: str, directory: Path, seen: tuple[str, Any], expected: tuple[str, Any]) -> None:
    """Assert equal bits of weights, equal results, and equal metrics files with every step once."""
    (out, (_, result)), (uninterrupted, (_, wanted)) = seen, expected
    assert_same(when, result.student.state_dict(), wanted.student.state_dict())
    ours, theirs = (without_times(asdict(outcome.train)) for outcome in (result, wanted))
    assert ours == theirs, f"{when}, in the result {difference(ours, theirs)}"
    assert_same_lines(when, directory, out, uninterrupted)
