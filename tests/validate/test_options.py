"""What each option of a validation changes, and what it refuses."""

import pytest

import pv
from pv.cells import Outcome
from pv.errors import UsageError
from tests.validate.small import Project, cell, edit, outcomes


def test_another_subject_is_attacked_in_the_place_of_the_contracts_own(project: Project) -> None:
    folder = project("small")
    (folder / "theirs.py").write_text("def total(epochs, steps, limit=None):\n    return epochs * steps\n")
    report = pv.validate(only=["C-LIMIT", "C-WHOLE"], subjects={"counting": "theirs"})
    assert outcomes(report) == {"C-LIMIT": Outcome.FALSIFIED, "C-WHOLE": Outcome.SURVIVED}
    with pytest.raises(UsageError, match="names the contract 'count'; the contracts are counting"):
        pv.validate(subjects={"count": "theirs"})
    with pytest.raises(UsageError, match="'os:_exit' is no subject"):
        pv.validate(subjects={"counting": "os:_exit"})
    assert pv.validate(subjects={"counting": "os:system"}).exit_code == 1, "no module outside the roots"


def test_an_installed_copy_never_stands_in_for_the_tree(project: Project) -> None:
    """`json` is loaded in every worker before the project's own `json.py` could be."""
    folder = project("small")
    (folder / "json.py").write_text((folder / "counting.py").read_text())
    found = cell(pv.validate(only=["C-LIMIT"], subjects={"counting": "json"}), "C-LIMIT")
    assert found.outcome is Outcome.ERROR
    assert "json was loaded from" in found.reason and str(folder / "json.py") in found.reason


def test_nothing_matched_is_exit_2_and_says_what_to_do(project: Project) -> None:
    project("small")
    for report in (pv.validate(only=["NO-SUCH"]), pv.validate(contracts=["none"])):
        assert report.exit_code == 2
        assert "nothing was measured: nothing matches" in pv.render(report)


def test_fail_fast_stops_at_the_first_failure(project: Project) -> None:
    folder = project("small")
    edit(folder / "counting.py", "whole = epochs * steps", "whole = epochs * steps + 1")
    edit(folder / "contracts/counting.yaml", "find: epochs * steps,", "find: epochs * steps + 1,")
    report = pv.validate(fail_fast=True, jobs=1)
    assert report.exit_code == 1
    assert Outcome.FALSIFIED in outcomes(report).values()
    assert cell(report, "C-RUN").reason == "not run: --fail-fast stopped at the first failure"


def test_spawned_workers_say_the_same(project: Project) -> None:
    project("small")
    report = pv.validate(spawn=True, only=["C-LIMIT", "C-COMMAND"])
    assert report.exit_code == 0
    assert report.contracts[0].killed == {"limit-ignored", "limit-forgotten", "epoch-lost"}
    assert report.notes == ("tasks are spawned, as asked",)


def test_a_pattern_that_names_nothing_is_said_and_is_no_pass(project: Project) -> None:
    project("small")
    report = pv.validate(only=["C-LIMIT", "TYPO"])
    assert report.exit_code == 2
    assert "note: --only TYPO names nothing" in pv.render(report)


def test_numbers_out_of_range_are_refused(project: Project) -> None:
    project("small")
    with pytest.raises(UsageError, match="jobs is -1; it must be at least 1"):
        pv.validate(jobs=-1)
    with pytest.raises(UsageError, match="examples is 0; it must be at least 1"):
        pv.validate(examples=0)
