"""Reports of one commit become one: what is in none of them is undecided, and the worst result counts."""

from dataclasses import replace
from pathlib import Path

import pytest

from pv.contract.finding import Location
from pv.contract.model import Contract
from pv.errors import UsageError
from pv.results.merge import NO_COMMIT, merge
from pv.results.outcome import Outcome, Selection
from pv.results.trial import DeviceInfo, TrialStatus
from pv.results.verdict import ContractVerdict, Report, Status, decide
from tests.report.handmade import PLAIN
from tests.results.handmade import contract, evidence, falsifier, judged, trial

DIFFERENT = "one.json and other.json have different changes to one commit"
PROJECT = {"c": "c.yaml", "d": "d.yaml"}


def named(id_: str, *claims: str) -> Contract:
    return replace(contract(*(falsifier(claim) for claim in claims)), id=id_, location=Location(Path(f"{id_}.yaml")))


def passing(id_: str, claim: str = "F") -> ContractVerdict:
    return decide(named(id_, claim), evidence(trial(id_=claim), judged(id_=claim)), Selection())


def report(*verdicts: ContractVerdict, **fields: object) -> Report:
    return replace(PLAIN, contracts=verdicts, findings=(), notes=(), project=PROJECT, **fields)


def test_a_contract_each_makes_a_whole_project() -> None:
    whole = merge({"a.json": report(passing("c"), commit="1"), "b.json": report(passing("d"), commit="1")})
    assert [verdict.contract.id for verdict in whole.contracts] == ["c", "d"]
    assert (whole.exit_code, whole.seconds) == (0, 2.5)


def test_a_contract_that_is_in_no_report_is_undecided_unless_partial() -> None:
    only = {"a.json": report(passing("c"))}
    whole = merge(only)
    assert [(v.contract.id, v.status, v.absent) for v in whole.contracts] == [
        ("d", Status.UNDECIDED, "in none of the reports"),
        ("c", Status.PASS, ""),
    ]
    assert whole.exit_code == 2
    assert merge(only, partial=True).exit_code == 0


def test_a_contract_of_which_only_another_subject_was_tried_is_undecided() -> None:
    other = report(replace(passing("c"), subject="peer"), passing("d"))
    assert [(v.contract.id, v.subject, v.status, v.absent) for v in merge({"o.json": other}).contracts] == [
        ("c", "", Status.UNDECIDED, "in none of the reports"),
        ("c", "peer", Status.PASS, ""),
        ("d", "", Status.PASS, ""),
    ]
    assert merge({"o.json": other, "own.json": report(passing("c"))}).exit_code == 0
    assert merge({"o.json": other}, partial=True).exit_code == 0


def test_claims_of_one_contract_from_two_reports_make_it_whole() -> None:
    both = named("c", "F", "G")
    parts = [
        decide(both, evidence(trial(id_=one), judged(id_=one)), Selection(falsifiers=frozenset({one})))
        for one in ("F", "G")
    ]
    first, second = (replace(report(part), project={"c": "c.yaml"}) for part in parts)
    assert [part.partial for part in parts] == [True, True]
    (verdict,) = merge({"a": first, "b": second}).contracts
    assert (verdict.status, verdict.partial, len(verdict.results)) == (Status.PASS, False, 2)
    (lonely,) = merge({"a": first}).contracts
    assert (lonely.status, lonely.results[1].reason) == (Status.UNDECIDED, "in none of the reports")
    (accepted,) = merge({"a": first}, partial=True).contracts
    assert accepted.status is Status.PASS


def test_a_failure_in_one_report_is_not_hidden_by_a_pass_in_another() -> None:
    failing = decide(named("c", "F"), evidence(trial(TrialStatus.REFUTED)), Selection())
    for order in ((passing("c"), failing), (failing, passing("c"))):
        (verdict,) = merge({str(n): report(each) for n, each in enumerate(order)}, partial=True).contracts
        assert (verdict.status, verdict.results[0].outcome) == (Status.FAIL, Outcome.FALSIFIED)


@pytest.mark.parametrize(
    ("one", "other", "said_of"),
    [
        ({"commit": "aaaa"}, {"commit": "bbbb"}, "one.json is of commit aaaa and other.json of bbbb"),
        ({"commit": "aaaa"}, {"commit": "aaaa"}, ""),
        ({"commit": "aaaa"}, {"commit": "aaaa+", "edits": ""}, ""),
        ({"commit": "aaaa+", "edits": "12"}, {"commit": "aaaa+", "edits": "12"}, ""),
        ({"commit": "aaaa+", "edits": "12"}, {"commit": "aaaa+"}, ""),
        ({"commit": "aaaa"}, {"commit": "aaaa+"}, DIFFERENT),
        ({"commit": "aaaa"}, {"commit": "aaaa+", "edits": "12"}, DIFFERENT),
        ({"commit": "aaaa+", "edits": "34"}, {"commit": "aaaa+", "edits": "12"}, DIFFERENT),
        ({"commit": ""}, {"commit": "bbbb"}, ""),
    ],
)
def test_reports_of_different_trees_are_refused(one: dict[str, str], other: dict[str, str], said_of: str) -> None:
    reports = {"one.json": report(passing("c"), **one), "other.json": report(passing("d"), **other)}
    if said_of:
        with pytest.raises(UsageError, match=said_of):
            merge(reports)
    else:
        assert merge(reports).exit_code == 0


def test_reports_without_a_commit_are_merged_with_a_note() -> None:
    one, other = report(passing("c"), commit=""), report(passing("d"), commit="1")
    assert merge({"a": one, "b": other}).notes == (NO_COMMIT,)
    assert merge({"a": one}).notes == ()


def test_different_versions_of_a_contract_are_refused_by_name() -> None:
    reports = {"a.json": report(passing("c")), "b.json": report(passing("c", "G"))}
    with pytest.raises(UsageError, match=r"a\.json and b\.json hold different versions of contract 'c'"):
        merge(reports)


def test_different_definitions_of_a_contract_are_refused_where_both_reports_hold_them() -> None:
    moved = replace(passing("c"), definitions={**(passing("c").definitions or {}), "subject": "other"})
    with pytest.raises(UsageError, match="different versions of contract 'c'"):
        merge({"a.json": report(passing("c")), "b.json": report(moved)})
    older = replace(moved, definitions=None)
    assert merge({"a.json": report(passing("c"), passing("d")), "b.json": report(older)}).exit_code == 0


def test_differences_of_the_machines_are_noted_and_devices_joined() -> None:
    cuda = {"cuda": DeviceInfo(name="NVIDIA H100", torch="2.13")}
    one = report(passing("c"), devices=cuda)
    other = report(
        passing("d"), devices={"cuda": DeviceInfo(name="NVIDIA H200", torch="2.13")}, seed=3, python="3.12.1"
    )
    whole = merge({"a": one, "b": other})
    assert whole.notes == (
        "the reports have different versions of Python: 3.11.7, 3.12.1",
        "the reports have different seeds: 0, 3",
        NO_COMMIT,
    )
    assert whole.devices == {"cuda": DeviceInfo(name="NVIDIA H100 and NVIDIA H200", torch="2.13")}


def test_an_interrupted_or_unmatched_report_makes_the_whole_one_so() -> None:
    whole = merge({"a": report(passing("c"), interrupted=True), "b": report(passing("d"), unmatched=("--only X",))})
    assert (whole.exit_code, whole.unmatched) == (130, ("--only X",))
