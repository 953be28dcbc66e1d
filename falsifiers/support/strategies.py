"""Hypothesis strategies for distillation cases: small, simplest values first, so that counterexamples are readable.

Shape letters: B batch, T position, V vocabulary, K token ids.
"""

import math

import torch
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support.cases import IGNORED, KdCase, StepCase

NO_TOKEN = -math.inf

NEVER, USUAL = st.just("none"), st.just(IGNORED)
HALVES = st.integers(-12, 12).map(lambda k: k / 2)  # exact in every floating dtype
LOGITS = HALVES | st.floats(-20, 20)
TEMPERATURES = st.sampled_from([1.0, 2.0, 0.5, 0.25, 20.0]) | st.floats(0.25, 20)
# The smallest weight keeps a gradient representable in float32.
WEIGHTS = st.sampled_from([1.0, 0.0, 0.3]) | st.floats(2**-10, 2)
POSITIVE_WEIGHTS = st.sampled_from([1.0, 0.3, 2.0])
HALF_DTYPES = st.sampled_from([torch.bfloat16, torch.float16])


def tensors(
    shape: tuple[int, ...], elements: st.SearchStrategy[float], dtype: torch.dtype
) -> st.SearchStrategy[Tensor]:
    """Return a strategy for tensors of this shape and dtype, elements rounded from float64."""
    size = math.prod(shape)
    values = st.lists(elements, min_size=size, max_size=size)
    return values.map(lambda xs: torch.tensor(xs, dtype=torch.float64).to(dtype).reshape(shape))


@st.composite
def impossible_tokens(draw: st.DrawFn, shape: tuple[int, int, int]) -> Tensor:
    """Draw which tokens are banned, bool [B, T, V]; at least one token of each row is not."""
    B, T, V = shape
    masks = draw(st.lists(st.integers(0, 2**V - 2), min_size=B * T, max_size=B * T))
    bits = [[bool(mask >> v & 1) for v in range(V)] for mask in masks]
    return torch.tensor(bits, dtype=torch.bool).reshape(shape)


@st.composite
def kd_cases(
    draw: st.DrawFn,
    *,
    logits: st.SearchStrategy[float] = LOGITS,
    dtype: torch.dtype = torch.float64,
    temperatures: st.SearchStrategy[float] = TEMPERATURES,
    ce_weights: st.SearchStrategy[float] = WEIGHTS,
    kd_weights: st.SearchStrategy[float] = WEIGHTS,
    banned: st.SearchStrategy[str] = NEVER,
    smallest_vocabulary: int = 1,
    ignored: st.SearchStrategy[int] = USUAL,
) -> KdCase:
    """Draw a case with B <= 2, T <= 3, V <= 5 and at least one scored position.

    banned: which logits may be -inf: "none"; "teacher" or "student"; "same", both at the same tokens; "each", both at
    independent tokens. ignored: the value of `ignore_index`.
    """
    shape = draw(st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(smallest_vocabulary, 5)))
    student, teacher = draw(tensors(shape, logits, dtype)), draw(tensors(shape, logits, dtype))
    labels, ignore_index = draw(_labels(shape, ignored))
    student, teacher = _with_banned(draw, student, teacher, draw(banned))
    return KdCase(student, teacher, labels, draw(temperatures), draw(ce_weights), draw(kd_weights), ignore_index)


@st.composite
def _labels(draw: st.DrawFn, shape: tuple[int, int, int], ignored: st.SearchStrategy[int]) -> tuple[Tensor, int]:
    """Draw labels [B, T] and ignore_index; if that is a token of the vocabulary, it is never a target."""
    B, T, V = shape
    ignore_index = draw(ignored)
    if V == 1 and ignore_index == 0:  # no token could be a target
        ignore_index = IGNORED
    usable = [v for v in range(V) if v != ignore_index]
    rest = draw(st.lists(st.sampled_from([*usable, ignore_index]), min_size=B * T, max_size=B * T))
    scored_at = draw(st.integers(0, B * T - 1))
    rest[scored_at] = draw(st.sampled_from(usable))
    return torch.tensor(rest).reshape(B, T), ignore_index


def _with_banned(draw: st.DrawFn, student: Tensor, teacher: Tensor, whose: str) -> tuple[Tensor, Tensor]:
    if whose == "none":
        return student, teacher
    B, T, V = student.shape
    mask = draw(impossible_tokens((B, T, V)))
    other = draw(impossible_tokens((B, T, V))) if whose == "each" else mask
    return (
        student.masked_fill(mask, NO_TOKEN) if whose in ("student", "same", "each") else student,
        teacher.masked_fill(other, NO_TOKEN) if whose in ("teacher", "same", "each") else teacher,
    )


@st.composite
def step_cases(
    draw: st.DrawFn,
    *,
    logits: st.SearchStrategy[float] = HALVES,
    dtype: torch.dtype = torch.float64,
    temperatures: st.SearchStrategy[float] = TEMPERATURES,
    ce_weights: st.SearchStrategy[float] = WEIGHTS,
    kd_weights: st.SearchStrategy[float] = WEIGHTS,
) -> StepCase:
    """Draw a case with B <= 3, T <= 4, V <= 4, at least one scored token, and repeated tokens."""
    B, T, V = draw(st.tuples(st.integers(1, 3), st.integers(2, 4), st.integers(2, 4)))
    K = draw(st.integers(2, 4))
    tokens = draw(st.lists(st.integers(0, K - 1), min_size=B * T, max_size=B * T))
    labels = draw(st.lists(st.sampled_from([*range(V), IGNORED]), min_size=B * T, max_size=B * T))
    scored_at = draw(st.integers(0, B - 1)) * T + draw(st.integers(1, T - 1))
    labels[scored_at] = draw(st.integers(0, V - 1))
    tables = draw(tensors((K, V), logits, dtype)), draw(tensors((K, V), logits, dtype))
    settings = draw(temperatures), draw(ce_weights), draw(kd_weights)
    return StepCase(torch.tensor(tokens).reshape(B, T), torch.tensor(labels).reshape(B, T), *tables, *settings)
