"""Attacks on the loss of padded and packed batches: it is that of the documents, run one by one.

The subject is `reference_trainer.data.batches`, or has its names.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support import oracles
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
    """Loss, count and gradients, also where documents hold the padding id, are empty or have prompts."""
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


@given(case=documents(fewest=1, vocabularies=8), packs=st.booleans(), room=st.integers(0, 9))
def falsify_padding_id_has_no_influence(subject: Any, device: str, case: Documents, packs: bool, room: int) -> None:
    def batch(padding_id: int) -> Any:
        if packs:
            length = case.longest + room
            return subject.pack_documents(case.made(subject), length=length, padding_id=padding_id)
        return subject.pad_documents(case.made(subject), padding_id=padding_id)

    (total, count, gradients), other = stepped(case, batch(0), device), stepped(case, batch(7), device)
    of = f"{'packed' if packs else 'padded'} documents {case.tokens}"
    assert (total, count) == other[:2], (
        f"{of}: sum and count are {total!r}, {count} with padding 0, and {other[0]!r}, {other[1]} with padding 7"
    )
    moved = [name for name, value in gradients.items() if not torch.equal(value, other[2][name])]
    assert not moved, f"{of}: the gradients of {moved} differ between padding 0 and padding 7"


@given(case=documents(fewest=1), packs=st.booleans(), room=st.integers(0, 9))
@example(case=Documents(4, [[1, 2, 3], [1, 2, 3, 1, 2]], [2, 4], 0), packs=False, room=0)
def falsify_ragged_prompts(subject: Any, device: str, case: Documents, packs: bool, room: int) -> None:
    """With prompts of several lengths, the loss of tables of logits is the sum over the scored tokens of each document.

    The oracle is plain Python; row k of a table holds the logits after token k.
    """
    providers = importlib.import_module("reference_trainer.distillation.providers")
    generator = torch.Generator().manual_seed(case.seed)
    shape = (case.vocab_size, case.vocab_size)
    student, teacher = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    batch = (
        subject.pack_documents(case.made(subject), length=case.longest + room, padding_id=0)
        if packs
        else subject.pad_documents(case.made(subject), padding_id=0)
    )
    seen = providers.kd_step(
        providers.FixtureTeacher(teacher.to(device)),
        providers.FixtureStudent(student.to(device), 0.0),
        batch,
        **SETTINGS,
    )
    rows = [
        oracles.row_loss(student[tokens[i - 1]].tolist(), teacher[tokens[i - 1]].tolist(), tokens[i], **SETTINGS)
        for tokens, prompt in zip(case.tokens, case.prompts, strict=True)
        for i in range(max(prompt, 1), len(tokens))
    ]
    of = f"{'packed' if packs else 'padded'} documents {case.tokens} with prompts of {case.prompts} tokens"
    assert seen.count == len(rows), f"{of}: {seen.count} tokens are scored; expected {len(rows)}"
    assert abs(seen.sum - math.fsum(rows)) <= RELATIVE * (1 + math.fsum(rows)), (
        f"{of}: the loss is {seen.sum:.15g} nats; its scored tokens one by one give {math.fsum(rows):.15g}"
    )


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


def falsify_no_documents_make_an_empty_batch(subject: Any, device: str) -> None:
    case = Documents(3, [], [], 0)
    for what, batch in (
        ("padded", subject.pad_documents([], padding_id=0)),
        ("packed", subject.pack_documents([], length=4, padding_id=0)),
    ):
        total, count, gradients = stepped(case, batch, device)
        assert (total, count) == (0.0, 0), f"{what}: a batch of no documents has the sum {total} over {count} tokens"
        moved = [name for name, value in gradients.items() if bool(value.any())]
        assert not moved, f"{what}: a batch of no documents has gradients for {moved}"
