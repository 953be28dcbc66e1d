"""References inside a contract: every name that is not declared is a finding, whatever else is missing."""

from pathlib import Path

import pytest

from pv.contract.load import load
from pv.linting import lint
from pv.source.project import find_project

EQUATION = """
schema: pv/1
metadata: {id: c, version: 1.0.0, description: d, references: [r]}
equations:
  twice: {domain: {x: real 0..1}, expression: x + x, implemented_by: double(x)}
falsifiers:
- {id: F, rule: r, prediction: p, if_fails: f, equation: twice, run: nowhere}
"""


def codes(folder: Path, text: str) -> list[str]:
    (folder / "pyproject.toml").write_text("[tool.pv]\n")
    (folder / "c.yaml").write_text(text)
    loaded = load([folder / "c.yaml"])
    return [f.code for f in [*loaded.findings, *lint(loaded.contracts, project=find_project(folder))]]


@pytest.mark.parametrize("own", ["", "subject: tiny\n"])
def test_unknown_run_of_an_equation_falsifier_is_a_finding(tmp_path: Path, own: str) -> None:
    (tmp_path / "tiny.py").write_text("def double(number):\n    return 2 * number\n")
    assert "PV143" in codes(tmp_path, EQUATION + own)


@pytest.mark.parametrize("section", ["falsifiers", "mutants", "obligations"])
def test_a_duplicate_id_names_the_line_of_the_first(tmp_path: Path, section: str) -> None:
    entries = {
        "falsifiers": "[{id: A, rule: r, prediction: p, if_fails: f, test: t.py::t}]",
        "mutants": '[{id: B, fault: f, edit: {function: "t:f", find: x, replace: y}}]',
        "obligations": "[{id: C, statement: s}]",
    }
    used = {"falsifiers": "A", "mutants": "B", "obligations": "C"}[section]
    text = "schema: pv/1\nmetadata: {id: c, version: 1.0.0, description: d, references: [r]}\n"
    text += "".join(f"{key}: {value}\n" for key, value in entries.items())
    text += f'runs: [{{name: {used}, callable: "t.py::run"}}]\n'
    (tmp_path / "pyproject.toml").write_text("[tool.pv]\n")
    (tmp_path / "c.yaml").write_text(text)
    loaded = load([tmp_path / "c.yaml"])
    found = [f for f in lint(loaded.contracts, project=find_project(tmp_path)) if f.code == "PV101"]
    line = 3 + list(entries).index(section)
    assert [f.message for f in found] == [f"duplicate id {used!r} (first defined at line {line})"]
