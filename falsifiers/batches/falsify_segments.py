"""Attacks on segments on their way to a model. The subject is `reference_trainer.distillation.providers`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.support import oracles
from falsifiers.support.documents import Documents, documents

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
            raised = oracles.refusal_complaint(
                f"a packed batch for a {name} whose module takes no segments",
                lambda ask=ask, module=module: ask(subject, module, batch),
                f"the {name}'s module has no parameter 'segments'",
            )
            assert raised is None, raised
            assert not module.calls, f"the {name}'s module was called with {module.calls} before the refusal"


@given(case=documents(fewest=2, shortest=1), changed=st.integers(0, 4), dtype=st.sampled_from(["float32", "bfloat16"]))
def falsify_no_attention_across_documents_in_a_run(
    subject: Any, device: str, case: Documents, changed: int, dtype: str
) -> None:
    placement = importlib.import_module("reference_trainer.models.placement")
    data = importlib.import_module("reference_trainer.data.batches")
    changed %= len(case.tokens)
    other = [[(t + (i == changed)) % case.vocab_size for t in each] for i, each in enumerate(case.tokens)]
    module = placement.computing_in(dtype, case.decoder(0, device, torch.float32))
    length = sum(map(len, case.tokens))
    rows = []
    for tokens in (case.tokens, other):
        made = [data.Document(torch.tensor(each)) for each in tokens]
        batch = data.pack_documents(made, length=length, padding_id=0)
        rows.append(subject.ModuleTeacher(module, case.vocab_size).logits(batch)[0].cpu())
    numbers = torch.tensor([i for i, each in enumerate(case.tokens) for _ in each])
    here, there = (row[numbers != changed] for row in rows)
    assert torch.equal(here, there), (
        f"documents {case.tokens}: other tokens in document {changed} change the logits of the others by "
        f"{float((here - there).abs().max()):.3g}"
    )


INVALID = [
    ("segments of another width", SEGMENTS[:, :2], ("segments [2, 2]", "tokens [2, 3]")),
    ("segments of one row", SEGMENTS[:1], ("segments [1, 3]", "tokens [2, 3]")),
    ("segments without a batch axis", SEGMENTS[0], ("segments", "[3]")),
    ("segments that are floats", SEGMENTS.float(), ("segments", "float32")),
    ("segments that are a mask", SEGMENTS > 0, ("segments", "bool")),
    ("segments that are a list", SEGMENTS.tolist(), ("segments", "list")),
]


def falsify_invalid_segments_are_refused(subject: Any) -> None:
    for what, segments, words in INVALID:
        raised = oracles.refusal_complaint(
            what, lambda of=segments: subject.Batch(tokens=TOKENS, labels=TOKENS, segments=of), *words
        )
        assert raised is None, raised
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        kept = subject.Batch(tokens=TOKENS, labels=TOKENS, segments=SEGMENTS.to(dtype)).segments
        assert torch.equal(kept, SEGMENTS.to(dtype)), f"segments in {dtype} become {kept}"
