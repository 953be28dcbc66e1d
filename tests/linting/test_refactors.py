"""Declared mutants and equivalents that a rename would break are lint errors."""

from pathlib import Path

import pytest

from tests.support.projects import linted

CODE = """import math
from math import sqrt as _root

LIMIT = 3


def scale(number, *, factor=2):
    total = number * factor
    names = [item + total for item in range(LIMIT)]

    def inner(part):
        return part + 1

    return math.floor(total) + len(names)


def _private(number):
    return number * 2


class Box:
    def __init__(self, content):
        self._content = content
        self.size = len(content) + _root(4)

    @property
    def content(self):
        return self._content


class _Hidden:
    def __init__(self):
        self.size = 2
"""
CONTRACT = """schema: pv/1
metadata: {{id: c, version: 1.0.0, description: Scaling, references: [the definition]}}
subject: code
obligations: [{{id: O, statement: scaling scales}}]
falsifiers:
- {{id: F, obligation: O, rule: r, prediction: p, if_fails: i, test: "falsify.py::falsify", kills: [m]}}
mutants:
- {{id: m, fault: a fault, {change}}}
"""


def findings(folder: Path, change: str, more: str = "", code: str = CODE) -> list[str]:
    """Return the messages and hints of PV146 in a project with one mutant."""
    falsify = "def falsify(subject):\n    pass\n\n\ndef wrong(number):\n    return 1\n"
    files = {"code.py": code, "falsify.py": falsify, "c.yaml": CONTRACT.format(change=change) + more}
    return [f"{finding.message}; {finding.hint}" for finding in linted(folder, files) if finding.code == "PV146"]


@pytest.mark.parametrize(
    "change",
    [
        'edit: {function: "code:scale", find: number * factor, replace: number + factor}',
        'edit: {function: "code:scale", find: "2", replace: "3"}',
        'edit: {function: "code:Box.__init__", find: len(content), replace: "0"}',
        'swap: {object: "code:scale", with: "falsify:wrong"}',
        'swap: {object: "code:Box.content", with: "falsify:wrong"}',
    ],
)
def test_mutant_of_public_names_parameters_and_literals_is_accepted(tmp_path: Path, change: str) -> None:
    assert findings(tmp_path, change) == []


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("scale", 'find: math.floor(total), replace: "total"', "`find` uses the local variable 'total' of "),
        ("scale", "find: number * factor, replace: nothing", "`replace` uses the local variable 'nothing' of "),
        ("Box.content", 'find: self._content, replace: "2"', "`find` uses the private attribute '_content' of "),
        ("Box.__init__", 'find: _root(4), replace: "2"', "`find` uses the private name '_root' of "),
        ("_private", 'find: "2", replace: "3"', ""),
        ("_private", 'with: "falsify:wrong"', ""),
    ],
)
def test_mutant_that_a_rename_breaks_is_refused(tmp_path: Path, name: str, change: str, says: str) -> None:
    kind, key = ("edit", "function") if "find" in change else ("swap", "object")
    seen = findings(tmp_path, f'{kind}: {{{key}: "code:{name}", {change}}}')
    hint = "write a swap of a public function instead, or an edit of parameters, literals and public names only"
    assert seen == [f"m: {says}code:{name}{'' if says else f': {name!r} is private'}; {hint}"]


def test_swap_of_an_imported_name_is_refused_unless_it_is_exported(tmp_path: Path) -> None:
    change = 'swap: {object: "code:math.floor", with: "falsify:wrong"}'
    hint = "name the module that defines it, or one that lists it in `__all__`"
    assert findings(tmp_path, change) == [f"m: code only imports 'math'; {hint}"]
    assert findings(tmp_path, change, code='__all__ = ["math"]\n' + CODE) == []


def test_equivalent_that_a_rename_breaks_is_refused(tmp_path: Path) -> None:
    change = 'edit: {function: "code:scale", find: number * factor, replace: number + factor}'
    entry = '{function: "code:scale", find: len(names), replace: len(names) + 0, reason: adding zero}'
    says = "`find` uses the local variable 'names' of code:scale"
    hint = "remove the entry: an equivalent that is not declared counts as a survivor"
    assert findings(tmp_path, change, f"equivalents:\n- {entry}\n") == [f"{says}; {hint}"]
