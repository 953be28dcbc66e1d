"""Declared mutants and equivalents that a rename would break are lint errors."""

from pathlib import Path

import pytest
import yaml

from tests.support.projects import HEAD, linted

TABLE = yaml.safe_load(Path(__file__).with_name("refactors.yaml").read_text(encoding="utf-8"))


def findings(folder: Path, change: str, more: str = "", code: str = TABLE["code"]) -> list[str]:
    """Return the messages and hints of PV146 in a project with one mutant."""
    falsify = "def falsify(subject):\n    pass\n\n\ndef wrong(number):\n    return 1\n"
    contract = HEAD + TABLE["contract"].replace("CHANGE", change) + more
    problems = linted(folder, {"code.py": code, "falsify.py": falsify, "c.yaml": contract})
    return [f"{finding.message}; {finding.hint}" for finding in problems if finding.code == "PV146"]


@pytest.mark.parametrize("change", TABLE["accepted"])
def test_mutant_of_public_names_parameters_and_literals_is_accepted(tmp_path: Path, change: str) -> None:
    assert findings(tmp_path, change) == []


@pytest.mark.parametrize("change", TABLE["refused"])
def test_mutant_that_a_rename_breaks_is_refused(tmp_path: Path, change: str) -> None:
    hint = "write a swap of a public function instead, or an edit of parameters, literals and public names only"
    assert findings(tmp_path, change) == [f"m: {TABLE['refused'][change]}; {hint}"]


def test_mutant_in_a_private_module_is_refused(tmp_path: Path) -> None:
    change = TABLE["accepted"][0].replace("code:", "_code:")
    contract = HEAD + TABLE["contract"].replace("CHANGE", change)
    problems = linted(
        tmp_path, {"_code.py": TABLE["code"], "code.py": TABLE["code"], "falsify.py": "", "c.yaml": contract}
    )
    assert [f.message for f in problems if f.code == "PV146"] == ["m: _code:scale: '_code' is private"]


def test_swap_of_an_imported_name_is_refused_unless_it_is_exported(tmp_path: Path) -> None:
    change = 'swap: {object: "code:math.floor", with: "falsify:wrong"}'
    hint = "name the module that defines it, or one that lists it in `__all__`"
    assert findings(tmp_path, change) == [f"m: code only imports 'math'; {hint}"]
    assert findings(tmp_path, change, code='__all__ = ["math"]\n' + TABLE["code"]) == []


def test_equivalent_that_a_rename_breaks_is_refused(tmp_path: Path) -> None:
    entry = '{function: "code:scale", find: len(names), replace: len(names) + 0, reason: adding zero}'
    says = "`find` uses the local variable 'names' of code:scale"
    hint = "remove the entry: an equivalent that is not declared counts as a survivor"
    assert findings(tmp_path, TABLE["accepted"][0], f"equivalents:\n- {entry}\n") == [f"{says}; {hint}"]


def test_an_equivalent_outside_of_the_scope_is_refused(tmp_path: Path) -> None:
    entry = 'equivalents: [{function: "code:scale", find: "2", replace: "2 + 0", reason: adding zero}]\n'
    files = {"code.py": TABLE["code"], "more.py": "import code\n", "falsify.py": "def falsify(subject):\n    pass\n"}
    for scope, expected in (("code", []), ("more", ["code:scale is not in `mutation_scope`: remove the equivalent"])):
        text = HEAD + TABLE["contract"].replace("CHANGE", TABLE["accepted"][0]) + entry + f"mutation_scope: [{scope}]\n"
        assert [f.message for f in linted(tmp_path, {**files, "c.yaml": text}) if f.code == "PV137"] == expected
