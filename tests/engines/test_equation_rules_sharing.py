"""Lint of `use`, `domains` and `constants`, and results that depend on a used equation."""

from pathlib import Path

import pytest

import pv
from pv.contract.load import load
from pv.linting import lint
from pv.results import store
from pv.source.project import find_project

HEAD = """schema: pv/1
metadata: {{id: {id}, version: 1.0.0, description: d, references: [r]}}
subject: code
obligations: [{{id: O-{id}, statement: s}}]
"""
CLAIM = """falsifiers:
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


@pytest.fixture
def folder(empty: Path) -> Path:
    (empty / "pyproject.toml").write_text("[tool.pv]\n")
    (empty / "code.py").write_text("def double(x):\n    return x + x\n\n\ndef four(x):\n    return x * 4\n")
    (empty / "contracts").mkdir()
    return empty


def write(folder: Path, id_: str, equation: str, text: str) -> None:
    content = HEAD.format(id=id_) + text + CLAIM.format(id=id_, equation=equation)
    (folder / f"contracts/{id_}.yaml").write_text(content)


def findings(folder: Path) -> list[str]:
    loaded = load([folder / "contracts"])
    found = [*loaded.findings, *lint(loaded.contracts, project=find_project(folder))]
    return [f"{each.code} {each.message}; {each.hint}" for each in found]


def test_equation_that_calls_one_of_another_contract_is_compared_with_code(folder: Path) -> None:
    write(folder, "base", "twice", BASE)
    write(folder, "user", "fourfold", USER)
    assert findings(folder) == []
    report = pv.validate(["contracts/user.yaml"], jobs=1)
    assert (report.exit_code, [v.status.value for v in report.contracts]) == (0, ["pass"]), pv.render(report)


def test_change_of_a_used_equation_changes_the_fingerprint(folder: Path) -> None:
    write(folder, "user", "fourfold", USER)
    clauses = []
    for factor in (2, 3):
        write(folder, "base", "twice", BASE.replace("factor: 2", f"factor: {factor}"))
        user = next(c for c in load([folder / "contracts"]).contracts if c.id == "user")
        clauses.append(store.clause(user, user.falsifiers[0], user.subject_of(user.falsifiers[0])))
    assert clauses[0] != clauses[1]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("base.twice", "bass.twice", "PV187 unknown contract 'bass' in 'use'; did you mean 'base'?"),
        ("base.twice", "base.twic", "PV187 unknown executable equation 'twic' of base; did you mean 'twice'?"),
        ("fourfold:", "twice:", "PV187 duplicate equation 'twice': base.twice brings another one; rename one of"),
    ],
)
def test_use_that_does_not_fit_is_a_lint_error(folder: Path, old: str, new: str, says: str) -> None:
    write(folder, "base", "twice", BASE)
    write(folder, "user", "twice" if new == "twice:" else "fourfold", USER.replace(old, new))
    assert any(each.startswith(says) for each in findings(folder))


def test_circle_is_a_lint_error_of_each_contract_in_it(folder: Path) -> None:
    write(folder, "base", "twice", BASE + "use: [user.fourfold]\n")
    write(folder, "user", "fourfold", USER)
    write(folder, "outside", "fourfold", "use: [user.fourfold]\n")
    found = [each for each in findings(folder) if "circular" in each]
    hint = "move the equation to one of them"
    assert found == [
        f"PV187 circular 'use': base -> user -> base; {hint}",
        f"PV187 circular 'use': user -> base -> user; {hint}",
    ]
