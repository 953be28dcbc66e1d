"""The parsed definition of an equation."""

from pv.equations.parse import parse_equations


def test_formulas_are_the_expression_the_invariants_and_the_condition() -> None:
    keys = {
        "domain": {"x": "real"},
        "requires": "x > 0",
        "expression": "x * x",
        "implemented_by": "e(x)",
        "invariants": ["e(x) >= 0", "e(x) >= x - 1"],
    }
    definitions, problems = parse_equations({"e": keys, "plain": {"expression": "1"}})
    assert problems == []
    found = definitions["e"]
    assert list(found.formulas) == [found.formula, *found.invariants, found.requires]
    assert len(found.invariants) == 2
    assert list(definitions["plain"].formulas) == [definitions["plain"].formula]


def test_callee_has_the_formula_and_the_variables_of_the_equation() -> None:
    definitions, _ = parse_equations({"e": {"domain": {"x": "real", "y": "real"}, "expression": "x - y"}})
    callee = definitions["e"].callee
    assert callee.formula is definitions["e"].formula
    assert list(callee.variables) == ["x", "y"]
