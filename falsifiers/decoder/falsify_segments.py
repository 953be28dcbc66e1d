"""Attacks on the segments of a decoder's rows. The subject is `reference_trainer.models.decoder`, or has its names."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.decoder.cases import DecoderCase, assert_close, decoder_cases
from falsifiers.support import decoder_oracle as oracle

DTYPES = st.sampled_from([torch.float32, torch.float64])


def _long(sizes: list[int]) -> tuple[DecoderCase, Tensor]:
    """Return a row of documents of these sizes, longer than a block of the attention kernels, and its segments."""
    tokens = torch.from_numpy(np.random.default_rng(0).integers(0, 5, (1, sum(sizes))))
    segments = torch.tensor([[number for number, size in enumerate(sizes) for _ in range(size)]])
    return DecoderCase(5, 1, 1, 4, 0, tokens), segments


@st.composite
def segmented(draw: st.DrawFn) -> tuple[DecoderCase, Tensor]:
    """Draw a decoder with tokens, and segments from 0 to 3 in any order, in any integer dtype."""
    case = draw(decoder_cases())
    size = case.tokens.numel()
    values = draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    values = draw(st.sampled_from([values, sorted(values), [1] * size]))
    dtype = draw(st.sampled_from([torch.int64, torch.int32, torch.uint8]))
    return case, torch.tensor(values, dtype=dtype).reshape(case.tokens.shape)


@given(row=segmented(), dtype=DTYPES)
@example(row=_long([2, 550, 3, 45]), dtype=torch.float64)
@example(row=_long([520, 3, 77]), dtype=torch.float32)
def falsify_document_in_a_row_follows_equations(
    subject: Any, device: str, row: tuple[DecoderCase, Tensor], dtype: torch.dtype
) -> None:
    case, segments = row
    module = case.decoder(subject, dtype, device)
    weights = oracle.weights_of(module)
    with torch.no_grad():
        seen = module(case.tokens.to(device), segments=segments.to(device)).cpu()
    assert seen.dtype is dtype, f"weights in {dtype} give logits in {seen.dtype}"
    assert bool(seen.isfinite().all()), f"with segments {segments.tolist()} some logits are not finite"
    for b in range(len(segments)):
        for number in set(segments[b].tolist()) - {0}:
            at = segments[b] == number
            alone = case.tokens[b, at][None].numpy()
            expected = oracle.logits(weights, case.heads, alone)
            allowed = min(oracle.allowed(weights, case.heads, alone, dtype), _allowed(expected, dtype))
            where = np.flatnonzero(at.numpy()).tolist()
            what = f"logits of document {number} of row {b}, at positions {where[:1]} to {where[-1:]} of {len(at)},"
            assert_close(what, seen[b, at][None], expected, allowed)


def _allowed(expected: Any, dtype: torch.dtype) -> float:
    """Return 1e-12 of the largest logit in float64, and no limit of its own in other dtypes."""
    return 1e-12 * float(np.abs(expected).max()) if dtype is torch.float64 else np.inf


@given(row=segmented(), dtype=DTYPES, changed=st.integers(0, 3))
@example(row=_long([2, 550, 3, 45]), dtype=torch.float32, changed=1)
@example(row=_long([520, 3, 77]), dtype=torch.float32, changed=0)
def falsify_no_attention_across_documents(
    subject: Any, device: str, row: tuple[DecoderCase, Tensor], dtype: torch.dtype, changed: int
) -> None:
    case, segments = row
    module = case.decoder(subject, dtype, device)
    other = torch.where(segments == changed, (case.tokens + 1) % case.vocab_size, case.tokens)
    with torch.no_grad():
        here, there = (
            module(tokens.to(device), segments=segments.to(device)).cpu()[segments != changed]
            for tokens in (case.tokens, other)
        )
    assert torch.equal(here, there), (
        f"other tokens in segment {changed} change the logits of other segments by "
        f"{float((here - there).abs().max()):.3g}; segments {segments.tolist()}"
    )


def falsify_empty_batches(subject: Any, device: str) -> None:
    module = DecoderCase(5, 2, 2, 8, 0, torch.zeros(0, 0)).decoder(subject, device=device)
    for shape in ((0, 3), (2, 0), (0, 0)):
        tokens = torch.zeros(shape, dtype=torch.int64, device=device)
        for segments in (None, tokens):
            what = f"tokens {list(shape)} {'without' if segments is None else 'with'} segments"
            try:
                logits = module(tokens, segments)
                logits.sum().backward()
            except RuntimeError as error:
                raise AssertionError(f"{what}: {error}") from error
            assert list(logits.shape) == [*shape, 5], f"{what} have logits of shape {list(logits.shape)}"
            moved = [name for name, value in module.named_parameters() if value.grad is None or value.grad.any()]
            assert not moved, f"{what}: the gradients of {moved} are missing or not 0"
