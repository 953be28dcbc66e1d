"""Attacks on the loss of padded and packed batches: it is that of the documents, run one by one.

The subject is `reference_trainer.data.batches`, or has its names.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support.documents import SETTINGS, Documents, documents

RELATIVE = 1e-12
"""Allowed difference in float64: 4,500 roundings of a sum of at most 30 tokens."""


def stepped(case: Documents, batch: Any, device: str) -> tuple[float, int, dict[str, Tensor]]:
    """Return sum, count and the student's gradients of the sum, of one step of two decoders."""
    providers = importlib.import_module("reference_trainer.distillation.providers")
    module = case.decoder(1, device)
    teacher = providers.ModuleTeacher(case.decoder(0, device), case.vocab_size)
    result = providers.kd_step(teacher, providers.ModuleStudent(module, case.vocab_size), batch, **SETTINGS)
    gradients = {name: value.grad for name, value in module.named_parameters()}
    return result.sum, result.count, {name: result.count * value for name, value in gradients.items()}


def assert_like_alone(what: str, case: Documents, batch: Any, device: str) -> None:
    """Assert that sum, count and gradients are those of the documents one by one."""
    total, count, gradients = stepped(case, batch, device)
    expected, scored, alone = case.alone(device)
    of = f"{what}, documents {case.tokens}, prompts {case.prompts}"
    assert count == scored, f"{of}: {count} tokens are scored; expected {scored}, as in the documents one by one"
    assert abs(total - expected) <= RELATIVE * (abs(expected) + scored), (
        f"{of}: the loss is {total:.15g} nats; the documents one by one give {expected:.15g}"
    )
    largest = max(float(gradient.abs().max()) for gradient in alone.values())
    for name, gradient in gradients.items():
        apart = float((gradient - alone[name]).abs().max())
        assert apart <= RELATIVE * (largest + scored), (
            f"{of}: the gradient of {name} differs by {apart:.3g} from that of the documents one by one, of which the "
            f"largest element is {largest:.3g}"
        )


@given(case=documents(), padding_id=st.integers(0, 2))
@example(case=Documents(3, [[1, 2, 0], [1, 0]], [0, 0], 0), padding_id=0)
def falsify_padded_batch_is_its_documents(subject: Any, device: str, case: Documents, padding_id: int) -> None:
    batch = subject.pad_documents(case.made(subject), padding_id=padding_id)
    assert_like_alone(f"padded with {padding_id}", case, batch, device)


@given(case=documents(), padding_id=st.integers(0, 2), room=st.integers(0, 9))
@example(case=Documents(3, [[1, 2, 0], [2, 1]], [0, 0], 0), padding_id=0, room=3)
def falsify_packed_batch_is_its_documents(
    subject: Any, device: str, case: Documents, padding_id: int, room: int
) -> None:
    length = case.longest + room
    batch = subject.pack_documents(case.made(subject), length=length, padding_id=padding_id)
    assert_like_alone(f"packed into rows of {length}", case, batch, device)


@given(end=st.integers(0, 3), bodies=st.lists(st.lists(st.integers(4, 6), min_size=1, max_size=4), min_size=1))
def falsify_end_of_sequence_is_scored(subject: Any, end: int, bodies: list[list[int]]) -> None:
    made = [subject.Document(torch.tensor([*body, end])) for body in bodies]
    for what, batch in (
        ("padded", subject.pad_documents(made, padding_id=end)),
        ("packed", subject.pack_documents(made, length=9, padding_id=end)),
    ):
        seen = int((batch.labels == end).sum())
        assert seen == len(made), (
            f"{what}: of {len(made)} documents that end in {end}, also the padding id, {seen} ends are labels: "
            f"{batch.labels.tolist()}"
        )
