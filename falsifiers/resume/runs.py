"""Small runs with dropout and noisy data that save every step, and a comparison of the results of two runs."""

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
"""Vocabulary size, and number of steps of a run: two epochs of seven batches, three a step."""
TIMEOUT_S = 30
"""Seconds that a rank waits for others. A correct subject needs less, even on busy cores."""


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
    """Batches whose first token is their position, with noise from the default generator.

    requested: epoch and position of the requested batches.
    """

    batches = 7

    def __init__(self) -> None:
        self.requested: list[tuple[int, int]] = []

    def batch(self, epoch: int, position: int) -> Batch:
        self.requested.append((epoch, position))
        tokens = torch.randint(V, (2, 5))
        tokens[:, 0] = position
        return Batch(tokens=tokens, labels=tokens)


def settings(directory: Path, out: str, **changes: Any) -> Settings:
    """Return the settings of a run of `STEPS` steps that logs and saves every step."""
    defaults = {"epochs": 2, "accumulate": 3, "log_every": 1, "save_every": 1, "lr": 0.1, "warmup": 2, "device": "cpu"}
    defaults |= {"temperature": 2.0, "ce_weight": 0.3, "kd_weight": 0.7, "temperature_end": 1.0, "kd_weight_end": 0.2}
    return Settings(**{**defaults, "rank_timeout": TIMEOUT_S, "out": directory / out, **changes})


def small_distillation(subject: Any) -> Any:
    """Return a distillation of two `Model`s, without evaluation, whose export is only the manifest."""

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
"""A function that evaluates a distillation, and returns the sums of its metrics."""


def run_to_end(
    subject: Any,
    chosen: Settings,
    callbacks: Sequence[Callback] = (),
    stop_requested: Callable[[], bool] = lambda: False,
    measure: Measure = lambda run: {},
    teacher: Callable[[], nn.Module] = lambda: Model(3, seed=2),
) -> Any:
    """Run to the end, and return the distillation, whose `stream` has the printed lines, and the result.

    stop_requested: whether the run has to save and stop.
    """

    class Small(small_distillation(subject)):  # made for the subject
        def make_teacher(self) -> nn.Module:
            return teacher()

        @contextmanager
        def stop_requests(self) -> Iterator[Callable[[], bool]]:
            yield stop_requested

        def evaluate(self) -> dict[str, Any]:
            return measure(self)

    stream = io.StringIO()
    with Small(chosen, callbacks=callbacks, lines=Lines(stream)) as run, run:
        run.stream = stream
        run.prepare()
        return run, run.conclude(run.run())


class Cut(Callback):
    """Callback that interrupts a run after some steps, only once after each, also if the run is resumed."""

    def __init__(self, *steps: int) -> None:
        self.remaining = set(steps)

    def on_step_end(self, context: Any) -> None:
        if context.step in self.remaining:
            self.remaining.remove(context.step)
            raise KeyboardInterrupt


def run_with_resumes(
    subject: Any,
    directory: Path,
    out: str,
    callbacks: Sequence[Callback],
    measure: Measure = lambda run: {},
    **changes: Any,
) -> Any:
    """Run to the end; after each interrupt, resume from the latest checkpoint, or start over if there is none."""
    for _ in range(2 * STEPS):
        has_checkpoint = any((directory / out / "checkpoints").glob("student-step*"))
        resume = {"resume": Path("latest")} if has_checkpoint else {}
        try:
            return run_to_end(subject, settings(directory, out, **changes, **resume), callbacks, measure=measure)
        except KeyboardInterrupt:
            continue
    raise AssertionError(f"the run was interrupted {2 * STEPS} times; expected its end")


def assert_same_end(when: str, directory: Path, seen: tuple[str, Any], expected: tuple[str, Any]) -> None:
    """Assert equal bits of weights, equal results, and equal metrics files with every step once."""
    (out, (_, result)), (uninterrupted, (_, target)) = seen, expected
    assert_same(when, result.student.state_dict(), target.student.state_dict())
    ours, theirs = (without_times(asdict(outcome.train)) for outcome in (result, target))
    assert ours == theirs, f"{when}, in the result {difference(ours, theirs)}"
    assert_same_lines(when, directory, out, uninterrupted)
