"""Saved reports are read and merged: a contract for each runner makes a whole validation."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pv.commands.report import read
from pv.commands.validate import validate
from pv.errors import UsageError
from pv.report import render
from pv.results.outcome import Outcome
from pv.results.verdict import Status

Project = Callable[[str], Path]


def saved(path: Path, **options: Any) -> Path:
    path.write_text(render(validate(**options), "json"))
    return path


def test_a_claim_for_each_runner_makes_a_whole_contract(project: Project) -> None:
    root = project("small")
    first = saved(root / "a.json", only=["C-LIMIT", "C-WHOLE"])
    second = saved(root / "b.json", only=["C-COMMAND", "C-RUN*"])
    (lonely,) = read([first]).contracts
    assert lonely.status is Status.UNDECIDED
    assert [r.falsifier.id for r in lonely.results if r.reason == "in none of the reports"] == [
        *("C-COMMAND", "C-RUN", "C-RUN-FIRST")
    ]
    (whole,) = read([first, second]).contracts
    assert (whole.status, whole.partial) == (Status.PASS, False)
    assert {r.outcome for r in whole.results if r.device == "cpu"} == {Outcome.HELD}


def test_a_claim_whose_mutants_were_not_tried_is_undecided_and_marked(project: Project) -> None:
    root = project("small")
    report = validate(only=["C-LIMIT"], contracts=["counting"], mutants=False)
    (root / "a.json").write_text(render(report, "json"))
    assert (report.exit_code, report.contracts[0].repeat) == (0, ("pv validate", "--no-mutants"))
    assert "1 of 1 not tried on mutants" in render(report, "text")
    (verdict,) = read([root / "a.json"]).contracts
    assert verdict.results[0].reason == "its mutants were not tried"
    assert read([root / "a.json"], partial=True).exit_code == 0


def test_reports_of_code_that_git_does_not_know_are_compared(project: Project) -> None:
    root = project("small")
    first = saved(root / "a.json", contracts=["counting"], only=["C-LIMIT"], mutants=False)
    assert "counting.py" in read([first], partial=True).files
    (root / "counting.py").write_text((root / "counting.py").read_text() + "\nEXTRA = 1\n")
    second = saved(root / "b.json", contracts=["counting"], only=["C-WHOLE"], mutants=False)
    with pytest.raises(UsageError, match=r"a\.json and .*b\.json are of different files: counting\.py; merge"):
        read([first, second])


def test_a_contract_whose_runner_died_is_undecided(project: Project) -> None:
    root = project("small")
    text = (root / "contracts/counting.yaml").read_text()
    (root / "contracts/other.yaml").write_text(text.replace("id: counting,", "id: other,"))
    path = saved(root / "a.json", contracts=["counting"], only=["C-LIMIT"])
    found = read([path])
    assert [(v.contract.id, v.status, v.absent) for v in found.contracts] == [
        ("counting", Status.UNDECIDED, ""),
        ("other", Status.UNDECIDED, "in none of the reports"),
    ]
    assert read([path], partial=True).exit_code == 0
    by_path = saved(root / "b.json", paths=[root / "contracts/counting.yaml"], only=["C-LIMIT"])
    assert [v.contract.id for v in read([by_path]).contracts if v.absent] == ["other"]
