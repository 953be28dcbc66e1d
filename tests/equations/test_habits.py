"""Habits of PyTorch are refused in its own words, with how to write them here."""

import pytest

DIMENSION = "axes have names: select with an index, or `x[0]` if x has one axis"

HABITS = {
    "s @ t": "`@` is not supported; write a matrix product as `sum(x * w, D)`, D the axis that they share",
    "s ^ 2": "`^` is not a power; did you mean `s ** 2`?",
    "~s": "`~` is not supported; write `not`",
    "s.mean(-1)": "methods are not supported: `.mean`; write `mean(x, D)`, with the name of the axis if it reduces one",
    "torch.exp(s)": "unknown name `torch.exp`; write `exp` alone; functions and constants need no module",
    "s.shape[0]": "`.shape` is not supported; the name of an axis is its size, as in `sqrt(D)`",
    "W.T": "`.T` is not supported; leave it out: operands are combined by the names of their axes",
    "s[:, 0]": f"slices are not supported; {DIMENSION}",
    "max(s, 0)": "expected the name of an axis; `max` reduces over an axis; for two values use `maximum`",
    "mean(s, -1)": "expected the name of an axis; axes have names: write `mean(x, D)`",
    "sum(s, dim=0)": "sum accepts only the keyword `where`, once; name the axis: `sum(x, D)`",
    "sum(s * t, V": "'(' was never closed; quote it if it is inside [ ] or { }: YAML splits there at commas",
}


@pytest.mark.parametrize("expression", HABITS)
def test_habit_is_answered_with_what_to_write(expression, problem_of) -> None:
    assert HABITS[expression] in str(problem_of(expression=expression, result="real[V]").refusal)


def test_missing_result_says_what_to_add(problem_of) -> None:
    says = "declares axes [], the expression has [V]; write `result: real[V]`"
    assert str(problem_of(expression="2 * s").refusal) == says
