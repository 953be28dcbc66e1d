"""Attacks on students with a trained adapter. The subject has `Adapted`, as `huggingface.adapters` does.

The adapter is written out here, so that neither transformers nor peft is needed: a table of low rank beside a frozen
one.
"""

import io
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn

import reference_trainer
from falsifiers.resume.runs import STEPS, V, settings
from falsifiers.resume.runs import small_distillation as own
from falsifiers.support.assertions import assert_equal, refusal
from falsifiers.support.oracles import assert_refused
from falsifiers.support.runs import scratch
from reference_trainer import CheckpointError, DriftError, Lines, Settings
from reference_trainer.huggingface.adapters import frozen_weights
from reference_trainer.pipeline.custom_class import checkpoint_module
from reference_trainer.storage.whole_weights import read_weights, tensors_digest

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


def _distillation(subject: Any, rank: int, base: int) -> Any:
    """Return the class of a distillation whose student and teacher are adapters of bases with these seeds."""

    class LowRankDistillation(own(reference_trainer)):  # made for a package
        def make_student(self) -> nn.Module:
            module: nn.Module = subject.Adapted(LowRank(rank, base))
            self.digests["base_sha256"] = tensors_digest(frozen_weights(module))
            return module

        def make_teacher(self) -> nn.Module:
            module: nn.Module = subject.Adapted(LowRank(rank, base + 1))
            return module

    return LowRankDistillation


def _trained(subject: Any, directory: Path, out: str, rank: int, base: int = 0, **options: Any) -> nn.Module:
    chosen = settings(directory, out, save_every=2, hang_after=0.0, **options)
    with _distillation(subject, rank, base)(chosen, lines=Lines(io.StringIO())) as run:
        run.prepare()
        student: nn.Module = run.conclude(run.run()).student
        return student


def _changed(first: nn.Module, second: nn.Module) -> list[str]:
    tensors = {**dict(second.named_parameters()), **dict(second.named_buffers())}
    pairs = [*first.named_parameters(), *first.named_buffers()]
    return [name for name, tensor in pairs if not tensor.equal(tensors[name])]


@given(rank=st.integers(1, 3), cut=st.integers(1, STEPS - 1))
def falsify_only_the_adapter_is_trained_and_saved(subject: Any, rank: int, cut: int) -> None:
    adapter = ["model.down.weight", "model.up.weight"]
    with scratch() as directory:
        whole, checkpoint = _trained(subject, directory, "whole", rank), directory / "whole" / LAST
        assert_equal("trained tensors", _changed(whole, subject.Adapted(LowRank(rank, 0))), adapter)
        states = [f"optimizer.student.{name}.{kind}" for name in adapter for kind in ("exp_avg", "exp_avg_sq", "step")]
        saved = sorted(load_file(checkpoint / "rank-00000.safetensors"))
        assert_equal("tensors of a checkpoint", saved, sorted([*(f"student.{name}" for name in adapter), *states]))
        _trained(subject, directory, "cut", rank, max_steps=cut)
        # The same seeds, so the resumed run must end with the bits of the uninterrupted one.
        resume = partial(_trained, subject, directory, "cut", rank, resume=Path("latest"), force=True)
        another = partial(resume, base=5)
        assert_refused("a run with the adapter of another base", another, "base_sha256", kind=DriftError)
        # The student of a checkpoint, as exports and evaluations make it.
        weights, (same, other) = read_weights(checkpoint), (_distillation(subject, rank, b)(Settings()) for b in (0, 5))
        assert_equal("tensors of the export that differ", _changed(whole, checkpoint_module(weights, same)), [])
        export = partial(checkpoint_module, weights, other)
        assert_refused("an export with the adapter of another base", export, "base_sha256", kind=CheckpointError)
        assert_equal(f"cut at step {cut}, tensors that end otherwise", _changed(whole, resume()), [])


@given(rank=st.integers(1, 3), other=st.integers(1, 3), change=st.sampled_from(["none", "more", "fewer"]))
def falsify_weights_of_another_adapter_are_refused(subject: Any, rank: int, other: int, change: str) -> None:
    student, state = subject.Adapted(LowRank(rank, 0)), subject.Adapted(LowRank(other, 1)).state_dict()
    if change == "more":
        state["model.base.weight"] = torch.zeros(V, V)
    if change == "fewer":
        del state["model.up.weight"]
    message = refusal(lambda: student.load_state_dict(state), RuntimeError)
    assert bool(message) == (change != "none" or rank != other), f"ranks {rank} and {other}, {change}: {message!r}"
    if change != "none":
        assert_equal("changed tensors after a refusal", _changed(student, subject.Adapted(LowRank(rank, 0))), [])
    if not message:
        loaded = student.state_dict()
        assert all(torch.equal(tensor, loaded[name]) for name, tensor in state.items()), "not loaded"
        assert torch.equal(student.model.base.weight, LowRank(rank, 0).base.weight), "the base is changed"
