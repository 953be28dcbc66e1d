"""Functions and subjects are resolved to files, without importing them."""

import sys
from pathlib import Path

import pytest

from pv.contract.claims import Falsifier
from pv.contract.finding import Location
from pv.contract.names import Binding, Target
from pv.engines.code import Code
from pv.source.project import find_project
from pv.source.resolve import Unbound

FOLDER = Path(__file__).parents[1] / "bad_contracts" / "project"
CODE = Code(find_project(FOLDER), Target("tiny"))


def test_function_has_its_module_file_and_parameters() -> None:
    found = CODE.function(Binding("falsifiers/falsify_tiny.py", "falsify_double"))
    assert (found.name, found.parameters) == ("falsify_double", ("subject", "number"))
    assert Path(found.file) == FOLDER / "falsifiers" / "falsify_tiny.py"
    assert found.module not in sys.modules


def test_subject_consists_of_its_file_and_imports() -> None:
    assert CODE.subject_file == FOLDER / "tiny.py"
    assert CODE.subject_files == {FOLDER / "tiny.py"}


def test_missing_subject_is_unbound_on_first_use() -> None:
    missing = Code(CODE.project, Target("nowhere"))
    with pytest.raises(Unbound):
        _ = missing.subject_file


def test_claim_without_a_test_has_no_function() -> None:
    claim = Falsifier(id="F", rule="r", prediction="p", if_fails="i", location=Location(Path("c.yaml")))
    with pytest.raises(ValueError, match="F is not bound to a test"):
        CODE.test(claim)
