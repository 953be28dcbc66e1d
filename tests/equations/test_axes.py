"""The rules of axes and types."""

import pytest

from pv.equations.refusal import Part

REFUSED = {
    "sum(s, D)": (1, 8, "unknown axis D in [V]"),
    "sum(s, V, V)": (1, 11, "duplicate axis V"),
    "sum(W)": (1, 1, "missing axis: choose from [V,D]"),
    "sum(s, where=t)": (1, 14, "expected a condition, got a number"),
    "s if s else t": (1, 6, "expected a condition, got a number"),
    "not y": (1, 5, "expected a condition, got an index"),
    "y + 1": (1, 1, "expected a number, got an index; compare it, select with it, or use one_hot"),
}


@pytest.mark.parametrize("expression", REFUSED, ids=[repr(text[:24]) for text in REFUSED])
def test_invalid_axes_or_types_are_refused_at_their_position(expression, problem_of) -> None:
    line, column, message = REFUSED[expression]
    problem = problem_of(expression=expression)
    assert message in str(problem)
    assert (problem.part, problem.refusal.line, problem.refusal.column) == (Part.EXPRESSION, line, column)


def test_too_many_elements_are_refused_before_anything_is_drawn(problem_of) -> None:
    domain = {"x": "real[A,B]", "y": "real[C,D]", **dict.fromkeys("ABCD", "size 1..1000")}
    problem = problem_of(domain=domain, expression="sum(x * y, A, B, C, D)")
    assert "axes [A,B,C,D] may have more than 1048576 elements" in str(problem)
