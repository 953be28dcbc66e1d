"""Attacks on a frozen teacher: its weights, gradients, training flags and hidden states."""

from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.support.cases import StepCase, step_cases
from falsifiers.support.steps import batch_of, embedding


class Noisy(nn.Module):
    """A module with dropout and batch normalization: train mode changes its logits, hidden states and buffers."""

    def __init__(self, embedding: nn.Embedding, V: int) -> None:
        super().__init__()
        width = embedding.embedding_dim
        self.embedding, self.dropout = embedding, nn.Dropout(0.5)
        self.norm, self.head = nn.BatchNorm1d(width).double(), nn.Linear(width, V).double()
        self.lazy = Lazy()
        self.factor = torch.ones((), dtype=torch.float64, requires_grad=True)  # no parameter: nothing freezes it

    def forward(self, tokens: Tensor, output_hidden_states: bool = False) -> Any:
        hidden = self.dropout(self.lazy(self.embedding(tokens))) * self.factor
        logits = self.head(self.norm(hidden.mT).mT)
        return SimpleNamespace(logits=logits, hidden_states=[hidden]) if output_hidden_states else logits


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
    first, states = teacher.logits(batch), teacher.outputs(batch).hidden_states[0]
    assert not (first.requires_grad or states.requires_grad), "logits or hidden states of the teacher have a graph"
    both = dict.fromkeys([*teacher_module.parameters(), *student_module.parameters()])  # shared ones once
    optimizer = torch.optim.SGD(both, lr=0.5)
    for _ in range(3):
        subject.kd_step(teacher, student, batch, **case.settings)
        optimizer.step()
    for what, before_it, again in (
        ("logits", first, teacher.logits(batch)),
        ("hidden states", states, teacher.outputs(batch).hidden_states[0]),
    ):
        assert torch.equal(before_it, again), f"the teacher's {what} went from {before_it} to {again}"
    _assert_state(teacher_module, before, flags)


def _assert_state(module: nn.Module, before: dict[str, Tensor], flags: list[bool]) -> None:
    """Assert that the module has this state and these training flags, and no gradient."""
    changed = [name for name, value in module.state_dict().items() if not torch.equal(value, before[name])]
    assert not changed, f"the teacher's {changed} changed in three steps"
    with_gradient = [name for name, p in module.named_parameters() if p.grad is not None or p.requires_grad]
    assert not with_gradient, f"the teacher's {with_gradient} have or require a gradient"
    now = [part.training for part in module.modules()]
    assert now == flags, f"the teacher's training flags changed from {flags} to {now}"
