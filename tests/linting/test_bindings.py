"""Functions that a contract names: they exist and accept what their kind passes. None of them is imported."""

from pathlib import Path

import pytest

from pv.contract.load import load
from pv.linting import lint
from pv.source.project import find_project

CONTRACT = """schema: pv/1
metadata: {id: c, version: 1.0.0, description: d, references: [r]}
subject: tiny
falsifiers:
- {id: F, rule: r, prediction: p, if_fails: f, test: "t.py::attack"}
"""


def findings(folder: Path, test: str, contract: str = CONTRACT) -> list[tuple[str, str]]:
    (folder / "pyproject.toml").write_text('[tool.pv]\nroots = ["."]\n')
    (folder / "tiny.py").write_text("def double(number):\n    return 2 * number\n")
    (folder / "t.py").write_text(f"raise RuntimeError('imported')\n{test}")
    (folder / "c.yaml").write_text(contract)
    loaded = load([folder / "c.yaml"])
    return [(f.code, f.hint) for f in [*loaded.findings, *lint(loaded.contracts, project=find_project(folder))]]


@pytest.mark.parametrize("signature", ["subject", "subject, n=1", "*, subject", "**anything"])
def test_function_that_accepts_a_subject_has_no_finding(tmp_path: Path, signature: str) -> None:
    assert findings(tmp_path, f"def attack({signature}): assert True\n") == []


@pytest.mark.parametrize(
    ("test", "code", "hint"),
    [
        ("def attack(): assert True\n", "PV112", "add the parameter `subject`"),
        ("async def attack(subject): assert True\n", "PV112", "its body would never run"),
        ("def attack(subject):\n    assert True\n    yield\n", "PV112", "its body would never run"),
        ("def atack(subject): assert True\n", "PV111", "did you mean 'atack'?"),
        ("@settings(deadline=1)\ndef attack(subject): assert True\n", "PV113", "a falsifier sets only max_examples"),
    ],
)
def test_function_that_could_not_be_called_is_an_error(tmp_path: Path, test: str, code: str, hint: str) -> None:
    (found,) = findings(tmp_path, test)
    assert found[0] == code
    assert found[1].startswith(hint)


def test_claim_on_two_devices_needs_the_parameter_device(tmp_path: Path) -> None:
    contract = CONTRACT.replace('attack"', 'attack", devices: [cpu, cuda]')
    assert findings(tmp_path, "def attack(subject): assert True\n", contract) == [
        ("PV112", "add the parameter `device`")
    ]
    assert findings(tmp_path, "def attack(subject, device): assert True\n", contract) == []


def test_all_missing_parameters_of_a_run_are_named_at_once(tmp_path: Path) -> None:
    runs = 'runs:\n- {name: whole, callable: "t.py::execute", arguments: {steps: 3}, small: {steps: 1}}\n'
    contract = CONTRACT.replace("falsifiers:", f"{runs}falsifiers:").replace('attack"', 'attack", run: whole')
    test = "def attack(run): assert True\ndef execute(subject, trace): pass\n"
    hint = "add the parameters `device`, `directory`, `steps`"
    assert findings(tmp_path, test, contract) == [("PV112", hint)]


def test_missing_subject_is_reported_once(tmp_path: Path) -> None:
    more = CONTRACT.replace("tiny", "tyni") + CONTRACT.splitlines()[-1].replace("id: F", "id: G") + "\n"
    assert [code for code, _ in findings(tmp_path, "def attack(subject): assert True\n", more)] == ["PV120"]


def test_claim_without_a_subject_is_an_error(tmp_path: Path) -> None:
    found = findings(tmp_path, "def attack(subject): assert True\n", CONTRACT.replace("subject: tiny\n", ""))
    assert found == [("PV122", "give it or the contract a `subject`")]
