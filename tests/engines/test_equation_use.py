"""The call of an equation fits its function, and every variable is used."""

from pathlib import Path

import pytest

from tests.engines.test_equation_rules import CONTRACT, findings

EQUATION = "{domain: {x: real 0..1}, expression: x + x, implemented_by: double(x)}"


@pytest.mark.parametrize(
    ("equation", "found"),
    [
        (EQUATION, []),
        (EQUATION.replace("double(x)", "double(number=x)"), []),
        (EQUATION.replace("double(x)", "dobule(x)"), ["PV186"]),
        (EQUATION.replace("double(x)", '"double(x, 2)"'), ["PV189"]),
        (EQUATION.replace("double(x)", "double(n=x)"), ["PV189"]),
        (EQUATION.replace("double(x)", "double()"), ["PV189"]),
        (EQUATION.replace("0..1}", "0..1, y: real 0..1}"), ["PV188"]),
        (
            EQUATION.replace("0..1}", "0..y, y: real 0..1}").replace(
                "x: real 0..y, y: real 0..1", "y: real 0..1, x: real 0..y"
            ),
            [],
        ),
        (EQUATION.replace("0..1}", '0..1, N: "size 1..2"}'), ["PV188"]),
        (EQUATION.replace("0..1}", "0..1, y: real 0..1}").replace("double(x)", '"double(x * y / y)"'), []),
    ],
)
def test_call_and_variables_are_checked(tmp_path: Path, equation: str, found: list[str]) -> None:
    assert EQUATION in CONTRACT
    assert [code for code, _ in findings(tmp_path, CONTRACT.replace(EQUATION, equation))] == found


def test_variable_that_only_a_derivative_uses_is_used(tmp_path: Path) -> None:
    equations = """
  slope: {derivative_of: {equation: twice, with_respect_to: x}, expression: 2 + 0 * y}
falsifiers:
- {id: G, rule: r, prediction: p, if_fails: f, equation: slope}"""
    text = CONTRACT.replace("0..1}", "0..1, y: real 0..1}").replace("\nfalsifiers:", equations)
    assert findings(tmp_path, text) == []


def test_method_of_a_constructed_object_is_checked_in_both_calls(tmp_path: Path) -> None:
    with_class = "class Scaler:\n    def __init__(self, factor): pass\n    def scale(self, x): pass\n"
    for call, codes in {
        "Scaler(2).scale(x)": [],
        "Scaler().scale(x)": ["PV189"],
        "Scaler(2).scale(y=x)": ["PV189"],
        "Scalar(2).scale(x)": ["PV186"],
    }.items():
        text = CONTRACT.replace("double(x)", call)
        assert [code for code, _ in findings(tmp_path, text, with_class)] == codes, call
