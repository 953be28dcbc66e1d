"""Expressions that nobody vouches for: each is decided at once, refused with its place, and never run."""

import pytest

from pv.equations.parsed import parse_equations

DOMAIN = {
    "s": "logits[V]",
    "t": "logits[V]",
    "y": "index of V",
    "W": "real[V,D]",
    "m": "mask[V]",
    "tau": "real 0.25..20",
}

REFUSED = {
    "s.grad": (1, 1, "Attribute is not part of the language"),
    "(1).__class__": (1, 1, "Attribute"),
    "__import__('os')": (1, 1, "names with two underscores"),
    "'a'": (1, 1, "is not a finite number"),
    "f'{s}'": (1, 1, "JoinedStr"),
    "[x for x in s]": (1, 1, "ListComp"),
    "(lambda: 1)()": (1, 2, "Lambda"),
    "(z := 1)": (1, 2, "NamedExpr"),
    "s[0:1]": (1, 3, "Slice"),
    "1e999": (1, 1, "is not a finite number"),
    "10 ** 1" + "0" * 400: (1, 7, "is not a finite number"),
    "(" * 200 + "1" + ")" * 200: (1, 31, "nested deeper than 30 brackets"),
    "-" * 1500 + "1": (1, 1, "longer than 400 parts"),
    "+".join(["s"] * 900): (1, 1, "longer than 400 parts"),
    "s + " * 600 + "s": (1, 1, "longer than 2000 characters"),
    "sum(s, D)": (1, 8, "there is no axis D: this has [V]"),
    "sum(s, Q)": (1, 8, "the letter of an axis must stand here"),
    "sum(s, V, V)": (1, 11, "the axis V stands twice"),
    "s[8]": (1, 3, "there is no item 8: V has at most 8"),
    "s[-9]": (1, 3, "there is no item -9: V has at most 8"),
    "sum(s) # + sum(t)": (1, 8, "'#' is not part of the language"),
    "a = 1; sum(s)": (1, 6, "';' is not part of the language"),
    "sum(s) + 9**9**9**9": (1, 10, "`9 ** 9 ** 9 ** 9` is not a finite number"),
    "1 / 0": (1, 1, "`1 / 0` is not a finite number"),
    "(-8) ** 0.5": (1, 1, "`(-8) ** 0.5` is not a finite number"),
    "2 ** 1024 * tau": (1, 1, "`2 ** 1024` is not a finite number"),
    "sum(W)": (1, 1, "over which axis? this has [V,D]"),
    "sums(s)": (1, 1, "there is no function and no equation 'sums'; did you mean 'sum'?"),
    "sofmax(s)": (1, 1, "there is no function and no equation 'sofmax'; did you mean 'softmax'?"),
    "sum(taux * s, V)": (1, 5, "'taux' is neither in the domain nor defined above; did you mean 'tau'?"),
    "exp(s, s)": (1, 1, "exp takes 1 argument, this has 2"),
    "s[t]": (1, 3, "only a whole number or an index can stand in [ ]"),
    "tau[y]": (1, 5, "an index of V cannot pick from axes []"),
    "y + 1": (1, 1, "an index is no number"),
    "sum(*s)": (1, 5, "Starred is not part of the language"),
    "sum(s, axis=0)": (1, 1, "sum takes only where= by name"),
    "sum(**s)": (1, 5, "** is not part of the language"),
    "True": (1, 1, "is not a finite number"),
    "None": (1, 1, "is not a finite number"),
    "1j": (1, 1, "is not a finite number"),
    "...": (1, 1, "is not a finite number"),
    "s @ t": (1, 1, "MatMult is not part of the language"),
    "s | t": (1, 1, "BitOr is not part of the language"),
    "s if t": (1, 1, "this is no expression"),
    "": (1, 1, "the last line must be the value"),
    "import os": (1, 1, "Import is not part of the language"),
    "x = 1": (1, 1, "the last line must be the value"),
    "sum = 1\nsum(s)": (1, 1, "'sum' has a meaning already"),
    "V = 1\nV": (1, 5, "'V' is the name of an axis"),
    "s\nt": (1, 1, "every line but the last reads `name = expression`"),
    "a, b = 1, 2\na": (1, 1, "every line but the last reads"),
    "(s, t) + 1": (1, 1, "several values can only stand in the last line"),
    "s if s else t": (1, 6, "a condition must stand here, this is a number"),
    "s and t": (1, 1, "a condition must stand here"),
    "not s": (1, 5, "a condition must stand here"),
    "sum(s, where=t)": (1, 14, "a condition must stand here"),
    "one_hot(s)": (1, 9, "one_hot takes an index"),
    "ｓ + 1": (1, 1, "a character that Python reads as another one"),
    "\x00": (1, 1, "this is no expression"),
    "e(s)": (1, 1, "calls itself"),
    "top(s, V, 3)": (1, 11, "top takes the letter of a size"),
    "softmax(W)": (1, 1, "over which axis?"),
    "α * s": (1, 1, "'α' is neither in the domain nor defined above"),
    "α = tau\nβ": (2, 1, "'β' is neither in the domain nor defined above; there are s, t, y, W, m, tau, α, V, D"),
    "one = sum(s)\n  one": (2, 2, "this is no expression"),
}


@pytest.mark.parametrize("expression", REFUSED, ids=[repr(text[:24]) for text in REFUSED])
def test_an_expression_is_refused_at_its_place(expression) -> None:
    _, problems = parse_equations({"e": {"domain": DOMAIN, "expression": expression}})
    line, column, says = REFUSED[expression]
    (problem,) = problems
    assert says in str(problem)
    assert (problem.key, problem.refusal.line, problem.refusal.column) == ("expression", line, column)


DOMAINS = {
    "logits[B,T,V": "is no domain",
    "logits[b]": "is no domain",
    "rael": "is no domain",
    "real 5..1": "5..1 is empty",
    "real x..y": "the bound 'x' is neither a number, a size nor an earlier scalar",
    "index[B]": "'of AXIS' belongs to an index",
    "real of V": "'of AXIS' belongs to an index",
    "real or -100": "'or VALUE' belongs to an index",
    "mask[B] 0..1": "mask has no bounds to give",
    "int 0.5..3": "the bounds of int are whole numbers",
    "prob": "a prob needs an axis to sum over",
    "logits[A,B,C,D,E,F,G]": "at most 6 different axes",
    "logits[B,B]": "at most 6 different axes",
    "positive -1..1": "positive starts at 0",
    "index of V or 3": "'or 3' may be an index",
    "real 0..1e309": "a bound is at most 1e+38",
    "real 0..１": "is no domain",
}


@pytest.mark.parametrize("text", DOMAINS)
def test_a_domain_is_refused_by_its_variable(text) -> None:
    _, problems = parse_equations({"e": {"domain": {"x": text}, "expression": "1"}})
    assert [(problem.key, DOMAINS[text] in str(problem)) for problem in problems] == [("domain/x", True)]


@pytest.mark.parametrize("name", ["pi", "inf", "class"])
def test_a_variable_does_not_take_a_name_that_has_a_meaning(name) -> None:
    _, problems = parse_equations({"e": {"domain": {name: "real"}, "expression": "1"}})
    assert [str(problem) for problem in problems] == [f"{name!r} has a meaning already; give the variable another name"]


def test_a_variable_does_not_take_the_letter_of_an_axis() -> None:
    _, problems = parse_equations({"e": {"domain": {"V": "real", "x": "real[V]"}, "expression": "1"}})
    assert [(p.key, str(p)) for p in problems] == [
        ("domain/x", "V is an axis, and a variable; give the variable another name")
    ]


def test_a_bound_is_no_truth_value_and_no_index() -> None:
    for kind in ("mask", "index of V"):
        _, problems = parse_equations({"e": {"domain": {"m": kind, "x": "real 0..m"}, "expression": "1"}})
        assert "the bound 'm' is neither a number, a size nor an earlier scalar" in str(problems[0])


def test_an_equation_does_not_take_the_name_of_a_function() -> None:
    _, problems = parse_equations({"softmax": {"domain": {"x": "real[V]"}, "expression": "sum(x)"}})
    assert [str(problem) for problem in problems] == [
        "'softmax' is a function of the language; give the equation another name"
    ]


def test_a_size_is_bounded() -> None:
    for text in ("size 1..1e12", "size 0..3", "size 2..1"):
        _, problems = parse_equations({"e": {"domain": {"V": text}, "expression": "1"}})
        assert [problem.key for problem in problems] == ["domain/V"], text


def test_what_may_not_fit_into_memory_is_refused_before_it_is_drawn() -> None:
    domain = {"x": "real[A,B]", "y": "real[C,D]", **dict.fromkeys("ABCD", "size 1..1000")}
    _, problems = parse_equations({"e": {"domain": domain, "expression": "sum(x * y, A, B, C, D)"}})
    assert "may hold more than 1048576 elements" in str(problems[0])


def test_nothing_of_an_expression_is_imported_or_run(tmp_path) -> None:
    target = tmp_path / "touched"
    hostile = f"open({str(target)!r}, 'w')"
    parse_equations({"e": {"domain": DOMAIN, "expression": hostile, "requires": hostile, "implemented_by": hostile}})
    assert not target.exists()
