"""Lint rules about executable equations and the falsifiers that compare code with them."""

from pathlib import Path

import pytest

from tests.support.projects import linted

CONTRACT = """
schema: pv/1
metadata: {id: c, version: 1.0.0, description: d, references: [r]}
subject: tiny
equations:
  twice: {domain: {x: real 0..1}, expression: x + x, implemented_by: double(x)}
falsifiers:
- {id: F, rule: r, prediction: p, if_fails: f, equation: twice}
"""


def findings(folder: Path, text: str, code: str = "") -> list[str]:
    """Return the codes of the findings."""
    files = {"tiny.py": f"def double(number):\n    return 2 * number\n{code}", "c.yaml": text.lstrip()}
    return [found.code for found in linted(folder, files)]


EQUATION = "{domain: {x: real 0..1}, expression: x + x, implemented_by: double(x)}"
LATER = "{domain: {y: real 0..1, x: real 0..y}, expression: x + x, implemented_by: double(x)}"


@pytest.mark.parametrize(
    ("equation", "found"),
    [
        (EQUATION, []),
        (EQUATION.replace(", implemented_by: double(x)", ""), ["PV184"]),
        (EQUATION.replace("double(x)", "double(number=x)"), []),
        (EQUATION.replace("double(x)", '"double(x, 2)"'), ["PV189"]),
        (EQUATION.replace("double(x)", "double(n=x)"), ["PV189"]),
        (LATER, []),
    ],
)
def test_equation_is_checked_with_its_call(tmp_path: Path, equation: str, found: list[str]) -> None:
    assert EQUATION in CONTRACT
    assert findings(tmp_path, CONTRACT.replace(EQUATION, equation)) == found


def test_method_of_a_constructed_object_is_checked_in_both_calls(tmp_path: Path) -> None:
    with_class = "class Scaler:\n    def __init__(self, factor): pass\n    def scale(self, x): pass\n"
    for call, codes in {
        "Scaler(2).scale(x)": [],
        "Scaler().scale(x)": ["PV189"],
        "Scaler(2).scale(y=x)": ["PV189"],
        "Scalar(2).scale(x)": ["PV186"],
    }.items():
        text = CONTRACT.replace("double(x)", call)
        assert findings(tmp_path, text, with_class) == codes, call


def test_function_that_can_only_return_none_is_refused_unless_returns_names_an_argument(tmp_path: Path) -> None:
    bodies = {
        "x.mul_(2)": ["PV198"],
        "return": ["PV198"],
        "x.mul_(2); return None": ["PV198"],
        "return 2 * x": [],
        "yield 2 * x": [],
        "raise NotImplementedError": [],
        "pass": [],
        "return inner(x) if x is not None else None": [],
    }
    for body, codes in bodies.items():
        text = CONTRACT.replace("double(x)", "doubled(x)")
        assert findings(tmp_path, text, f"def doubled(x): {body}\n") == codes, body
    array = "{domain: {x: 'real[N]'}, result: 'real[N]', expression: x + x, implemented_by: doubled(x)RETURNS}"
    text, code = CONTRACT.replace(EQUATION, array), "def doubled(x): x.mul_(2)\n"
    assert findings(tmp_path, text.replace("RETURNS", ""), code) == ["PV198"]
    assert findings(tmp_path, text.replace("RETURNS", ", returns: x"), code) == []
