"""Attacks on the loss of padded and packed batches, and on segments on their way to a model."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.support import oracles
from falsifiers.support.documents import SETTINGS, Documents, documents
from reference_trainer.distillation import providers

RELATIVE = 1e-12
"""Allowed difference in float64: 4,500 roundings of a sum of at most 30 tokens."""


def stepped(case: Documents, batch: Any, device: str) -> tuple[float, int, dict[str, Tensor]]:
    """Return sum, count and the student's gradients of the sum, of one step of two decoders."""
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
    assert abs(total - expected) <= RELATIVE * (abs(expected) + scored), f"{of}: {total:.15g}, alone {expected:.15g}"
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


TOKENS = torch.tensor([[1, 2, 0], [2, 0, 1]])
SEGMENTS = torch.tensor([[1, 1, 2], [1, 2, 0]])


class Recording(nn.Module):
    """A module that records what it is called with. Its parameter is on the `meta` device, which every machine has."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1, device="meta"))
        self.calls: list[tuple[Any, ...]] = []

    def answer(self, tokens: Tensor, *rest: Any) -> Tensor:
        self.calls.append((tokens, *rest))
        return torch.zeros(*tokens.shape, 3)


class Taking(Recording):
    def forward(self, tokens: Tensor, segments: Tensor | None = None) -> Tensor:
        return self.answer(tokens, segments)


class TokensOnly(Recording):
    def forward(self, tokens: Tensor) -> Tensor:
        return self.answer(tokens)


class Anything(Recording):
    """As models of Hugging Face, whose forward takes any keyword and ignores most."""

    def forward(self, tokens: Tensor, **named: Any) -> Tensor:
        return self.answer(tokens, named)


ASKED: list[tuple[str, Callable[[Any, nn.Module, Any], Any]]] = [
    ("teacher", lambda subject, module, batch: subject.ModuleTeacher(module, 3).logits(batch)),
    ("student", lambda subject, module, batch: subject.ModuleStudent(module, 3).forward(batch)),
]


def falsify_modules_get_the_segments(subject: Any) -> None:
    batch = subject.Batch(tokens=TOKENS, labels=TOKENS, segments=SEGMENTS.int())
    for name, ask in ASKED:
        module = Taking()
        ask(subject, module, batch)
        seen = [each.device.type if isinstance(each, Tensor) else each for each in module.calls[0]]
        assert seen == ["meta", "meta"], f"the {name}'s module on meta got tokens and segments on {seen}"
        assert module.calls[0][1].dtype is torch.int32, f"the {name} changed the segments to {module.calls[0][1].dtype}"
        for plain in (Taking(), TokensOnly(), Anything()):
            ask(subject, plain, subject.Batch(tokens=TOKENS, labels=TOKENS))
            rest = plain.calls[0][1:]
            assert rest in ((), (None,), ({},)), f"without segments, the {name}'s module got {rest} beside the tokens"


def falsify_packed_batches_need_a_module_that_takes_segments(subject: Any) -> None:
    batch = subject.Batch(tokens=TOKENS, labels=TOKENS, segments=SEGMENTS)
    for name, ask in ASKED:
        for module in (TokensOnly(), Anything()):
            what = f"the {name}'s module has no parameter 'segments'"
            oracles.assert_refused(what, partial(ask, subject, module, batch), what)
            assert not module.calls, f"the {name}'s module was called with {module.calls} before the refusal"
