"""Lint of executable equations, of falsifiers that compare code with them, and of what contracts share."""

from pathlib import Path

import pytest

import pv
from pv.contract.load import load
from pv.results import store
from tests.support.projects import HEAD, linted

EQUATION = "{domain: {x: real 0..1}, expression: x + x, implemented_by: double(x)}"
CONTRACT = f"""{HEAD}subject: tiny
equations:
  twice: {EQUATION}
falsifiers:
- {{id: F, rule: r, prediction: p, if_fails: f, equation: twice}}
"""


def findings(folder: Path, text: str, code: str = "") -> list[str]:
    """Return the codes of the findings."""
    files = {"tiny.py": f"def double(number):\n    return 2 * number\n{code}", "c.yaml": text}
    return [finding.code for finding in linted(folder, files)]


LATER = "{domain: {y: real 0..1, x: real 0..y}, expression: x + x, implemented_by: double(x)}"


@pytest.mark.parametrize(
    ("equation", "expected"),
    [
        (EQUATION, []),
        (EQUATION.replace(", implemented_by: double(x)", ""), ["PV184"]),
        (EQUATION.replace("double(x)", "double(number=x)"), []),
        (EQUATION.replace("double(x)", '"double(x, 2)"'), ["PV189"]),
        (EQUATION.replace("double(x)", "double(n=x)"), ["PV189"]),
        (LATER, []),
    ],
)
def test_equation_is_checked_with_its_call(tmp_path: Path, equation: str, expected: list[str]) -> None:
    assert findings(tmp_path, CONTRACT.replace(EQUATION, equation)) == expected


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


CLAIM = """subject: code
obligations: [{{id: O-{id}, statement: s}}]
falsifiers:
- {{id: F-{id}, obligation: O-{id}, rule: r, prediction: p, if_fails: i, equation: {equation}}}
"""
BASE = """equations:
  twice: {domain: {x: $some}, expression: $factor * x, implemented_by: double(x)}
domains: {some: real 0..$factor}
constants: {factor: 2}
"""
USER = """use: [base.twice]
equations:
  fourfold: {domain: {x: real}, expression: twice(twice(x)), implemented_by: four(x)}
"""


CODE = "def double(x):\n    return x + x\n\n\ndef four(x):\n    return x * 4\n"
OF_BASE, OF_USER = ("twice", BASE), ("fourfold", USER)


def messages(folder: Path, **contracts: tuple[str, str]) -> list[str]:
    """Write contracts, given by the equation of their claim and their text, and return what lint finds."""
    files = {"code.py": CODE}
    for id_, (equation, text) in contracts.items():
        files[f"contracts/{id_}.yaml"] = (
            HEAD.replace("id: c", f"id: {id_}") + text + CLAIM.format(id=id_, equation=equation)
        )
    return [f"{finding.code} {finding.message}; {finding.hint}" for finding in linted(folder, files)]


def test_equation_that_calls_one_of_another_contract_is_compared_with_code(empty: Path) -> None:
    assert messages(empty, base=OF_BASE, user=OF_USER) == []
    report = pv.validate(["contracts/user.yaml"], jobs=1)
    assert (report.exit_code, [v.status.value for v in report.contracts]) == (0, ["pass"]), pv.render(report)


def test_equation_that_only_an_unselected_contract_uses_is_no_finding(tmp_path: Path) -> None:
    own = BASE.replace("domains:", "  own: {domain: {x: real}, expression: 2 * x, implemented_by: double(x)}\ndomains:")
    assert messages(tmp_path, base=("own", own), user=OF_USER) == []
    selected = [contract for contract in load([tmp_path / "contracts"]).contracts if contract.id == "base"]
    assert [str(finding) for finding in pv.lint(selected, project=pv.find_project(tmp_path))] == []


def test_change_of_a_used_equation_changes_the_fingerprint(tmp_path: Path) -> None:
    clauses = []
    for factor in (2, 3):
        assert messages(tmp_path, base=("twice", BASE.replace("factor: 2", f"factor: {factor}")), user=OF_USER) == []
        user = next(c for c in load([tmp_path / "contracts"]).contracts if c.id == "user")
        clauses.append(store.clause_digest(user, user.falsifiers[0], user.subject_of(user.falsifiers[0])))
    assert clauses[0] != clauses[1]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("base.twice", "bass.twice", "PV187 unknown contract 'bass' in 'use'; did you mean 'base'?"),
        ("base.twice", "base.twic", "PV187 unknown executable equation 'twic' of base; did you mean 'twice'?"),
        ("fourfold:", "twice:", "PV187 duplicate equation 'twice': base.twice is a different one; rename one of"),
    ],
)
def test_use_that_does_not_fit_is_a_lint_error(tmp_path: Path, old: str, new: str, says: str) -> None:
    user = ("twice" if new == "twice:" else "fourfold", USER.replace(old, new))
    assert any(message.startswith(says) for message in messages(tmp_path, base=OF_BASE, user=user))


def test_circle_is_a_lint_error_of_each_contract_in_it(tmp_path: Path) -> None:
    use = "use: [user.fourfold]\n"
    problems = messages(tmp_path, base=("twice", BASE + use), user=OF_USER, outside=("fourfold", use))
    circles = ("base -> user -> base", "user -> base -> user")
    expected = [f"PV187 circular 'use': {circle}; move the equation to one of these contracts" for circle in circles]
    assert [text for text in problems if "circular" in text] == expected
