"""Attacks on students of which an adapter is trained. The subject has `Adapted`, as `huggingface.adapters` does.

The adapter is written out here, so that neither transformers nor peft is needed: a table of low rank beside a frozen
one.
"""

import io
import tempfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn

from falsifiers.support.oracles import assert_refused
from reference_trainer import Distillation, Lines, MetricSum, Settings
from reference_trainer.distillation.protocols import Batch
from reference_trainer.errors import CheckpointError, DriftError
from reference_trainer.huggingface.adapters import frozen_weights
from reference_trainer.pipeline.custom_class import checkpoint_module
from reference_trainer.storage.whole_weights import SavedWeights, read_weights, tensors_digest

V, STEPS = 11, 4
LAST = f"checkpoints/student-step{STEPS}"


class LowRank(nn.Module):
    """Logits that are a row of a frozen table [V, V] plus that of a product [V, rank] x [rank, V]."""

    def __init__(self, rank: int, seed: int) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.base = nn.Embedding(V, V, _weight=torch.randn(V, V, generator=draw)).requires_grad_(False)
        self.down = nn.Embedding(V, rank, _weight=torch.randn(V, rank, generator=draw))
        self.up = nn.Linear(rank, V, bias=False)
        nn.init.zeros_(self.up.weight)
        self.register_buffer("frozen", torch.ones(V))

    def forward(self, input_ids: Tensor, **_: Any) -> Any:
        return SimpleNamespace(logits=self.base(input_ids) + self.up(self.down(input_ids)))


class Drawn:
    batches = STEPS

    def batch(self, epoch: int, position: int) -> Batch:
        tokens = torch.randint(0, V, (2, 6), generator=torch.Generator().manual_seed(position))
        return Batch(tokens=tokens, labels=tokens)


def _own(subject: Any, rank: int, base: int) -> Any:
    def student(run: Any) -> Any:
        found = subject.Adapted(LowRank(rank, base))
        run.digests["base_sha256"] = tensors_digest(frozen_weights(found))
        return found

    parts = {
        "vocab_size": V,
        "make_batches": lambda run: Drawn(),
        "make_student": student,
        "make_teacher": lambda run: subject.Adapted(LowRank(rank, base + 1)),
        "evaluate": lambda run: {"own": MetricSum(0.0, 1)},
        "save": lambda run, directory, manifest: None,
    }
    return type("Own", (Distillation,), parts)


def _ended(subject: Any, out: Path, rank: int, base: int = 0, **given: Any) -> Any:
    settings = Settings(out=out, device="cpu", warmup=0, lr=0.1, save_every=2, hang_after=0.0, **given)
    with _own(subject, rank, base)(settings, lines=Lines(io.StringIO())) as run:
        run.prepare()
        return run.conclude(run.run()).student


def _changed(first: nn.Module, second: nn.Module) -> list[str]:
    others = {**dict(second.named_parameters()), **dict(second.named_buffers())}
    return [name for name, each in [*first.named_parameters(), *first.named_buffers()] if not each.equal(others[name])]


@given(rank=st.integers(1, 3), cut=st.integers(1, STEPS - 1))
def falsify_only_the_adapter_is_trained_and_saved(subject: Any, rank: int, cut: int) -> None:
    adapter = ["model.down.weight", "model.up.weight"]
    with tempfile.TemporaryDirectory() as name:
        whole = _ended(subject, Path(name, "whole"), rank, epochs=1)
        moved = _changed(whole, subject.Adapted(LowRank(rank, 0)))
        assert moved == adapter, f"{moved} are trained; expected {adapter}"
        saved = load_file(Path(name, f"whole/{LAST}/rank-00000.safetensors"))
        states = [f"optimizer.student.{each}.{what}" for each in adapter for what in ("exp_avg", "exp_avg_sq", "step")]
        expected = sorted([*(f"student.{each}" for each in adapter), *states])
        assert sorted(saved) == expected, f"a checkpoint holds {sorted(saved)}; expected {expected}"
        _ended(subject, Path(name, "cut"), rank, max_steps=cut, epochs=1)
        other = partial(_ended, subject, Path(name, "cut"), rank, base=5, epochs=1, resume=Path("latest"), force=True)
        assert_refused("a run with the adapter of another base", other, "base_sha256", kind=DriftError)
        _assert_exported_with_its_base_alone(subject, read_weights(Path(name, f"whole/{LAST}")), whole, rank)
        resumed = _ended(subject, Path(name, "cut"), rank, epochs=1, resume=Path("latest"), force=True)
    assert not _changed(whole, resumed), f"cut at step {cut}, {_changed(whole, resumed)} end otherwise"


def _assert_exported_with_its_base_alone(subject: Any, saved: SavedWeights, whole: nn.Module, rank: int) -> None:
    """Assert that the student of a checkpoint, as exports and evaluations make it, is refused with another base."""
    assert not _changed(whole, checkpoint_module(saved, _own(subject, rank, 0)(Settings()))), "the export differs"
    other = partial(checkpoint_module, saved, _own(subject, rank, 5)(Settings()))
    assert_refused("an export with the adapter of another base", other, "base_sha256", kind=CheckpointError)


@given(rank=st.integers(1, 3), other=st.integers(1, 3), change=st.sampled_from(["none", "more", "fewer"]))
def falsify_weights_of_another_adapter_are_refused(subject: Any, rank: int, other: int, change: str) -> None:
    student, given = subject.Adapted(LowRank(rank, 0)), subject.Adapted(LowRank(other, 1)).state_dict()
    if change == "more":
        given["model.base.weight"] = torch.zeros(V, V)
    if change == "fewer":
        del given["model.up.weight"]
    before = {name: each.clone() for name, each in student.named_parameters()}
    try:
        student.load_state_dict(given)
    except RuntimeError as error:
        assert change != "none" or rank != other, f"refused: {error}"
        kept = [name for name, each in before.items() if torch.equal(each, student.get_parameter(name))]
        assert change == "none" or kept == list(before), f"refused, and only {kept} are as before"
    else:
        assert change == "none" and rank == other, f"rank {other} is accepted for rank {rank}, with {change}"
        assert all(torch.equal(each, student.state_dict()[name]) for name, each in given.items()), "not loaded"
        assert torch.equal(student.model.base.weight, before["model.base.weight"]), "the base is changed"
