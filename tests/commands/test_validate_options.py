"""What each option of a validation changes, and what it refuses."""

import pytest

import pv
from pv.errors import UsageError
from pv.results.outcome import Outcome
from tests.commands.small import Project, outcomes, result


def test_another_subject_is_attacked_in_the_place_of_the_contracts_own(project: Project) -> None:
    folder = project("small")
    (folder / "theirs.py").write_text("def total(epochs, steps, limit=None):\n    return epochs * steps\n")
    report = pv.validate(only=["C-LIMIT", "C-WHOLE"], subjects={"counting": "theirs"})
    assert outcomes(report) == {"C-LIMIT": Outcome.FALSIFIED, "C-WHOLE": Outcome.HELD}
    with pytest.raises(UsageError, match=r"unknown contract 'count' in --subject \(choose from counting\)"):
        pv.validate(subjects={"count": "theirs"})
    with pytest.raises(UsageError, match="invalid subject 'os:_exit'"):
        pv.validate(subjects={"counting": "os:_exit"})
    assert pv.validate(subjects={"counting": "os:system"}).exit_code == 1, "no module outside the roots"


def test_an_installed_copy_never_stands_in_for_the_tree(project: Project) -> None:
    """`json` is loaded in every worker before the project's own `json.py` could be."""
    folder = project("small")
    (folder / "json.py").write_text((folder / "counting.py").read_text())
    found = result(pv.validate(only=["C-LIMIT"], subjects={"counting": "json"}), "C-LIMIT")
    assert found.outcome is Outcome.ERROR
    assert "json was loaded from" in found.reason and str(folder / "json.py") in found.reason
