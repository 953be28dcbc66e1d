"""Expressions that are refused, at their line and column: by syntax, names, axes, types and arguments."""

import pytest

from pv.equations.refusal import Part

SYNTAX = {
    "s.grad": (1, 1, "methods are not supported: `.grad`"),
    "__import__('os')": (1, 1, "invalid name '__import__': double underscores are not allowed"),
    "'a'": (1, 1, "invalid literal 'a': expected a finite number"),
    "[x for x in s]": (1, 1, "unsupported syntax: ListComp"),
    "(lambda: 1)()": (1, 2, "unsupported syntax: Lambda"),
    "1e999": (1, 1, "invalid literal 'inf': expected a finite number"),
    "(" * 200 + "1" + ")" * 200: (1, 31, "brackets nested deeper than 30"),
    "-" * 1500 + "1": (1, 1, "too many syntax nodes: 3003, expected at most 400"),
    "s + " * 600 + "s": (1, 1, "too long: 2401 characters, expected at most 2000"),
    "sum(s) # + sum(t)": (1, 8, "unsupported character '#'"),
    "sum(s) + 9**9**9**9": (1, 10, "`9 ** 9 ** 9 ** 9` is not a finite number"),
    "1 / 0": (1, 1, "`1 / 0` is not a finite number"),
    "sum(*s)": (1, 5, "unsupported syntax: Starred"),
    "True": (1, 1, "invalid literal 'True'"),
    "s if t": (1, 1, "not an expression"),
    "": (1, 1, "missing value: the last line must be an expression without a name"),
    "import os": (1, 1, "unsupported syntax: Import"),
    "sum = 1\nsum(s)": (1, 1, "reserved name 'sum'; choose another name"),
    "s\nt": (1, 1, "expected `name = expression` on every line but the last"),
    "(s, t) + 1": (1, 1, "several values are allowed only on the last line"),
    "ｓ + 1": (1, 1, "compatibility character, such as a full-width letter"),
    "one = sum(s)\n  one": (2, 2, "not an expression"),
}
NAMES = {
    "s[8]": (1, 3, "index 8 is out of range: V has at most 8 elements"),
    "W[0]": (1, 3, "a literal index needs exactly one axis, got [V,D]"),
    "s[t]": (1, 3, "expected an integer or an index in [ ], got a number"),
    "tau[y]": (1, 5, "an index of V cannot select from axes []"),
    "s(t)(t)": (1, 1, "only functions and equations can be called"),
    "sums(s)": (1, 1, "unknown function or equation 'sums'; did you mean 'sum'?"),
    "sum(taux * s, V)": (1, 5, "unknown name 'taux'; did you mean 'tau'?"),
    "sum(exp * s, V)": (1, 5, "'exp' is a function: call it; write `exp(...)`"),
    "sum(e * s, V)": (1, 5, "'e' is an equation: call it; write `e(s, t, y, W, m, tau)`"),
    "α * s": (1, 1, "unknown name 'α'; known: s, t, y, W, m, tau, V, D"),
    "V = 1\nV": (1, 5, "'V' is already the name of an axis"),
    "e(s)": (1, 1, "recursive call: e -> e"),
}
AXES = {
    "sum()": (1, 1, "missing argument: expected `sum(x, AXIS)`"),
    "softmax(W, V, D)": (1, 1, "softmax takes one axis, got 2"),
    "softmax(s, V, where=m)": (1, 1, "softmax accepts no keywords"),
    "exp(s, s)": (1, 1, "exp takes 1 argument, got 2"),
    "sum(s, axis=0)": (1, 1, "sum accepts only the keyword `where`, once"),
    "one_hot(s)": (1, 9, "one_hot takes an index, got a number"),
    "top(s, V, 3)": (1, 11, "top takes a size as third argument, such as K"),
    "sum(s, D)": (1, 8, "unknown axis D in [V]"),
    "sum(s, V, V)": (1, 11, "duplicate axis V"),
    "sum(W)": (1, 1, "missing axis: choose from [V,D]"),
    "sum(s, where=t)": (1, 14, "expected a condition, got a number"),
    "s if s else t": (1, 6, "expected a condition, got a number"),
    "not y": (1, 5, "expected a condition, got an index"),
    "y + 1": (1, 1, "expected a number, got an index; compare it, select with it, or use one_hot"),
}
REFUSED = SYNTAX | NAMES | AXES


@pytest.mark.parametrize("expression", REFUSED, ids=[repr(text[:24]) for text in REFUSED])
def test_invalid_expression_is_refused_at_its_position(expression, problem_of) -> None:
    line, column, message = REFUSED[expression]
    problem = problem_of(expression=expression)
    assert message in str(problem)
    assert (problem.part, problem.refusal.line, problem.refusal.column) == (Part.EXPRESSION, line, column)
