"""Attacks on a frozen teacher: its weights, gradients and training flags."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.support import oracles
from falsifiers.support.steps import batch_of, embedding
from falsifiers.support.strategies import StepCase, step_cases


class Noisy(nn.Module):
    """A module with dropout and batch normalization: train mode changes its logits and its buffers."""

    def __init__(self, embedding: nn.Embedding, V: int) -> None:
        super().__init__()
        width = embedding.embedding_dim
        self.embedding, self.dropout = embedding, nn.Dropout(0.5)
        self.norm, self.head = nn.BatchNorm1d(width).double(), nn.Linear(width, V).double()
        self.lazy = Lazy()

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.dropout(self.lazy(self.embedding(tokens))).mT
        logits: Tensor = self.head(self.norm(hidden).mT)
        return logits


class Lazy(nn.Module):
    """A module that builds a constant in its first forward and keeps it, as rotary embeddings do."""

    scale: Tensor | None = None

    def forward(self, hidden: Tensor) -> Tensor:
        if self.scale is None:
            self.scale = torch.full_like(hidden[0, 0], 2.0).detach()
        return hidden * self.scale


def _noisy_pair(case: StepCase, shared: bool, device: str) -> tuple[Noisy, Noisy]:
    V = case.student.shape[1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        teacher = Noisy(embedding(case.teacher), V)
        student = Noisy(teacher.embedding if shared else embedding(case.student), V)
        if shared:
            student.dropout, student.head, student.lazy = teacher.dropout, teacher.head, teacher.lazy
    return teacher.to(device), student.to(device)


@given(case=step_cases(), shared=st.booleans(), rearmed=st.booleans())
def falsify_teacher_is_unchanged(subject: Any, device: str, case: StepCase, shared: bool, rearmed: bool) -> None:
    teacher_module, student_module = _noisy_pair(case, shared, device)
    teacher = subject.ModuleTeacher(teacher_module, case.student.shape[1])
    asking = [name for name, parameter in teacher_module.named_parameters() if parameter.requires_grad]
    assert not asking, f"parameters {asking} of a new teacher require a gradient"
    student = subject.ModuleStudent(student_module, case.student.shape[1])
    student_module.train()
    teacher_module.dropout.train(case.tokens.numel() % 2 == 0)
    if rearmed:
        for parameter in student_module.parameters():
            parameter.requires_grad_(True)
    before = {name: value.clone() for name, value in teacher_module.state_dict().items()}
    flags = [part.training for part in teacher_module.modules()]
    batch = batch_of(subject, case, device)
    first = teacher.logits(batch)
    assert not first.requires_grad, "the teacher's logits have a graph; expected none"
    both = dict.fromkeys([*teacher_module.parameters(), *student_module.parameters()])  # shared ones once
    optimizer = torch.optim.SGD(both, lr=0.5)
    for _ in range(3):
        subject.kd_step(teacher, student, batch, **case.settings)
        optimizer.step()
    again = teacher.logits(batch)
    assert torch.equal(first, again), (
        f"the teacher's logits changed from {first.tolist()} to {again.tolist()} in three steps"
    )
    _assert_state(teacher_module, before, flags)


def _assert_state(module: nn.Module, before: dict[str, Tensor], flags: list[bool]) -> None:
    """Assert that the module has this state and these training flags, and no gradient."""
    changed = [name for name, value in module.state_dict().items() if not torch.equal(value, before[name])]
    assert not changed, f"the teacher's {changed} changed in three steps"
    with_gradient = [name for name, p in module.named_parameters() if p.grad is not None or p.requires_grad]
    assert not with_gradient, f"the teacher's {with_gradient} have or require a gradient"
    now = [part.training for part in module.modules()]
    assert now == flags, f"the teacher's training flags changed from {flags} to {now}"


class Witness(nn.Module):
    """A module that records the training flags of its parts and may raise; two of its parts share a child."""

    def __init__(self, fails: bool) -> None:
        super().__init__()
        shared = nn.Sequential(nn.Dropout(0.5))
        self.one, self.other = nn.Sequential(shared, nn.Linear(2, 2)), nn.Sequential(nn.Dropout(0.5), shared)
        self.fails = fails
        self.seen: list[bool] = []
        self.with_graph = True

    def forward(self, tokens: Tensor) -> Tensor:
        self.seen, self.with_graph = [part.training for part in self.modules()], torch.is_grad_enabled()
        if self.fails:
            raise ArithmeticError("the device is gone")
        return torch.zeros(*tokens.shape, 2)


@given(flags=st.lists(st.booleans(), min_size=7, max_size=7), fails=st.booleans())
def falsify_training_flags_are_restored(subject: Any, flags: list[bool], fails: bool) -> None:
    module = Witness(fails)
    teacher = subject.ModuleTeacher(module, 2)
    for part, training in zip(module.modules(), flags, strict=True):
        part.training = training
    tokens = torch.zeros(1, 2, dtype=torch.int64)
    batch = subject.Batch(tokens=tokens, labels=tokens)
    if fails:
        complaint = oracles.refusal_complaint(
            "a teacher that fails", lambda: teacher.logits(batch), "gone", kind=ArithmeticError
        )
        assert complaint is None, complaint
    else:
        teacher.logits(batch)
    assert torch.is_grad_enabled(), "gradients are disabled after the teacher's forward; expected enabled"
    assert not any(module.seen), f"the training flags in the teacher's forward are {module.seen}; expected all False"
    assert not module.with_graph, "the teacher's forward records a graph; expected none"
    now = [part.training for part in module.modules()]
    names = [name or "itself" for name, _ in module.named_modules()]
    assert now == flags, f"the training flags of {names} changed from {flags} to {now} in the teacher's forward"
