"""Attacks on segments on their way to a model. The subject is `reference_trainer.distillation.providers`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from falsifiers.support import oracles

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


INVALID = [
    ("segments of another width", SEGMENTS[:, :2], ("segments [2, 2]", "tokens [2, 3]")),
    ("segments without a batch axis", SEGMENTS[0], ("segments", "[3]")),
    ("segments that are floats", SEGMENTS.float(), ("segments", "float32")),
]


def falsify_invalid_segments_are_refused(subject: Any) -> None:
    for what, segments, words in INVALID:
        call = partial(subject.Batch, tokens=TOKENS, labels=TOKENS, segments=segments)
        oracles.assert_refused(what, call, *words)
