"""A request selects contracts and falsifiers; one that cannot be met is refused before anything runs."""

import pytest

import pv
from pv.commands.request import Request, check, choose
from pv.errors import UsageError
from pv.source.project import find_project
from tests.commands.small import Project


def test_nothing_matched_is_exit_2_and_says_what_to_do(project: Project) -> None:
    project("small")
    for report, note in (
        (pv.validate(only=["NO-SUCH"]), "no claim matches 'NO-SUCH' (`pv list` shows all ids)"),
        (pv.validate(contracts=["none"]), "no contract matches 'none' (`pv list` shows all ids)"),
    ):
        assert report.exit_code == 2
        assert note in pv.render(report)


def test_a_pattern_that_names_nothing_is_said_and_is_no_pass(project: Project) -> None:
    project("small")
    report = pv.validate(only=["C-LIMIT", "TYPO"])
    assert report.exit_code == 2
    assert "note: --only TYPO names nothing" in pv.render(report)


def test_numbers_out_of_range_are_refused(project: Project) -> None:
    project("small")
    with pytest.raises(UsageError, match="invalid value -1 for 'jobs'"):
        pv.validate(jobs=-1)
    with pytest.raises(UsageError, match="invalid value 0 for 'examples'"):
        pv.validate(examples=0)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(devices=["tpu"]), r"unknown device 'tpu' \(choose from cpu, cuda\)"),
        (Request(record=True, devices=["cuda"], seed=1), "leave out --record"),
        (Request(replay="{}"), "exactly one falsifier, not "),
        (Request(subjects={"other": "counting"}), "unknown contract 'other'"),
    ],
    ids=lambda value: "" if isinstance(value, Request) else value,
)
def test_a_request_that_cannot_be_met_is_refused(project: Project, request_: Request, message: str) -> None:
    folder = project("small")
    with pytest.raises(UsageError, match=message):
        choose(find_project(folder), request_)


def test_an_error_in_a_contract_that_was_not_requested_is_not_shown(project: Project) -> None:
    folder = project("small")
    text = (folder / "contracts/counting.yaml").read_text()
    (folder / "contracts/other.yaml").write_text(text.replace("id: counting", "id: other"))
    request = Request(contracts=["counting"])
    assert "PV102" in {finding.code for finding in check(project=find_project(folder))[1]}
    assert [f.code for f in choose(find_project(folder), request).findings] == []
