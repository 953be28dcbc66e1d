"""A distillation of own models and batches: a subclass replaces what is its own."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from reference_trainer import Callback, Distillation, Lines, Settings, read_metrics
from reference_trainer.distillation.protocols import Batch, Outputs
from reference_trainer.errors import SettingError


class Recurrent(nn.Module):
    """A small model with dropout that is no `Decoder`."""

    def __init__(self, width: int, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed, self.mix = nn.Embedding(11, width), nn.GRU(width, width, batch_first=True)
        self.drop, self.head = nn.Dropout(0.1), nn.Linear(width, 11)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(self.mix(self.embed(tokens))[0]))


class Counting:
    """Batches of numbers that count up from a number of their own."""

    batches = 5

    def batch(self, epoch: int, position: int) -> Batch:
        tokens = (torch.arange(8)[None] + torch.arange(position, position + 3)[:, None]) % 11
        return Batch(tokens=tokens, labels=tokens)


class Own(Distillation):
    vocab_size = 11

    def make_batches(self) -> Counting:
        return Counting()

    def make_student(self) -> nn.Module:
        return Recurrent(8, seed=1)

    def make_teacher(self) -> nn.Module:
        return Recurrent(16, seed=2)

    def evaluate(self) -> dict:
        return {}

    def save(self, directory: Path, manifest: dict) -> None:
        torch.save(self.student.state_dict(), directory / "own.pt")
        (directory / "manifest.json").write_text(json.dumps(manifest))


class Seen(Callback):
    """Callback that keeps the distillation it is attached to."""

    def attach(self, pipeline: object) -> None:
        self.pipeline = pipeline


def concluded(out: Path, **settings) -> tuple[Own, Seen]:
    seen = Seen()
    given = Settings(out=out, epochs=4, accumulate=2, device="cpu", warmup=0, log_every=3, **settings)
    with Own(given, callbacks=[seen], lines=Lines(io.StringIO())) as own:
        own.prepare()
        own.conclude(own.run())
    return own, seen


def test_own_models_are_trained_and_saved_by_their_own_method(tmp_path: Path) -> None:
    own, seen = concluded(tmp_path / "out")
    assert seen.pipeline is own and own.schedule.steps_per_epoch == 3
    saved = torch.load(tmp_path / "out" / "own.pt", weights_only=True)
    assert all(torch.equal(saved[name], each) for name, each in own.student.state_dict().items())
    moved = [not torch.equal(each, saved[name]) for name, each in Recurrent(8, seed=1).state_dict().items()]
    assert all(moved)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["result"]["steps_completed"] == 12 and "data_sha256" not in manifest
    assert len((tmp_path / "out" / "metrics.jsonl").read_text().splitlines()) == 4


class Stateful(Recurrent):
    """The same model with hidden states: after the embedding, and after the recurrent layer."""

    def forward(self, tokens: torch.Tensor, output_hidden_states: bool = False) -> Any:
        embedded = self.embed(tokens)
        mixed = self.mix(embedded)[0]
        logits = self.head(self.drop(mixed))
        return Outputs(logits, [embedded, mixed]) if output_hidden_states else logits


class Matched(Own):
    def make_student(self) -> nn.Module:
        return Stateful(8, seed=1)

    def make_teacher(self) -> nn.Module:
        return Stateful(16, seed=2)


def test_own_models_with_hidden_states_are_matched(tmp_path: Path) -> None:
    given = Settings(out=tmp_path / "out", epochs=20, device="cpu", warmup=0, log_every=5, feature_weight=4.0)
    with Matched(given, lines=Lines(io.StringIO())) as own:
        own.prepare()
        result = own.conclude(own.run())
    features = [line.metrics["feature"] for line in read_metrics(tmp_path / "out" / "metrics.jsonl")]
    assert len(features) == 20 and features[-1] < 0.5 * features[0]
    assert result.train.metrics["feature"] == features[-1]
    assert set(torch.load(tmp_path / "out" / "own.pt", weights_only=True)) == set(own.student.state_dict())


class Frozen(Own):
    def make_student(self) -> nn.Module:
        return super().make_student().requires_grad_(False)


def test_a_student_without_a_parameter_to_train_is_refused_before_the_training(tmp_path: Path) -> None:
    given = Settings(out=tmp_path / "out", device="cpu")
    with Frozen(given, lines=Lines(io.StringIO())) as own, pytest.raises(SettingError, match="requires a gradient"):
        own.prepare()
    assert not (tmp_path / "out").exists()
