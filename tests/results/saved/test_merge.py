"""Reports of one commit are merged: claims that are in no report are undecided, and the worst result counts."""

import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pv.contract.finding import Finding, Location, Severity
from pv.contract.model import Contract, Equation, Gate, Harness
from pv.engines.trial import TrialStatus
from pv.errors import UsageError
from pv.report.contract_line import line_cells
from pv.results.evidence import DeviceInfo, MutationScore, RunTrace
from pv.results.outcome import Outcome, Selection
from pv.results.saved.merge import NO_COMMIT, UNCOMPARED, merge, merge_verdicts, with_missing_claims
from pv.results.verdict import ContractVerdict, Report, Shard, Status, decide
from tests.report.handmade import PLAIN
from tests.results.handmade import BOTH, HERE, contract, decided, evidence, falsifier, judged, recorded, trial

DIFFERENT = "one.json and other.json have different changes to one commit"
PROJECT = {"c": "c.yaml", "d": "d.yaml"}


def contract_of(id_: str, *claims: str) -> Contract:
    return replace(contract(*(falsifier(claim) for claim in claims)), id=id_, location=Location(Path(f"{id_}.yaml")))


def passing(id_: str, claim: str = "F") -> ContractVerdict:
    return decide(contract_of(id_, claim), evidence(trial(id_=claim), judged(id_=claim)), Selection())


def report(*verdicts: ContractVerdict, **fields: Any) -> Report:
    return replace(PLAIN, contracts=verdicts, **{"findings": (), "notes": (), "project": PROJECT, **fields})


def test_reports_of_different_contracts_make_a_whole_project() -> None:
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
    theirs = {"b.json": report(replace(passing("c"), subject="theirs"), passing("d"))}
    assert merge(theirs).contracts[0].absent, "the contract is not tried on its own subject"
    assert [v.subject for v in merge(only | theirs).contracts] == ["", "theirs", ""]
    assert merge(only, partial=True).exit_code == 0
    of_c_only = {"b.json": report(passing("c"), project={"c": "c.yaml"})}
    assert [v.contract.id for v in merge(of_c_only | only).contracts] == ["d", "c"]
    later = {"whole.json": whole, "b.json": report(passing("d"))}
    assert merge(later).exit_code == 0, "a merged report is merged with the report that it lacked"


def test_claims_of_a_contract_in_two_reports_make_it_complete() -> None:
    both = contract_of("c", "F", "G")
    first, second = (
        decide(both, evidence(trial(id_=one), judged(id_=one)), Selection(falsifiers=frozenset({one})))
        for one in ("F", "G")
    )
    assert first.partial and second.partial
    first, second = (replace(report(part), project={"c": "c.yaml"}) for part in (first, second))
    (verdict,) = merge({"a": first, "b": second}).contracts
    assert (verdict.status, verdict.partial, len(verdict.results)) == (Status.PASS, False, 2)
    (incomplete,) = merge({"a": first}).contracts
    assert (incomplete.status, incomplete.results[1].reason) == (Status.UNDECIDED, "in none of the reports")
    (accepted,) = merge({"a": first}, partial=True).contracts
    assert accepted.status is Status.PASS


def test_a_failure_in_one_report_is_not_hidden_by_a_pass_in_another() -> None:
    failing = decide(contract_of("c", "F"), evidence(trial(TrialStatus.REFUTED)), Selection())
    # The order of the reports must not matter.
    for order in ((passing("c"), failing), (failing, passing("c"))):
        (verdict,) = merge({str(n): report(verdict_) for n, verdict_ in enumerate(order)}, partial=True).contracts
        assert (verdict.status, verdict.results[0].outcome) == (Status.FAIL, Outcome.FALSIFIED)


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        ({"commit": "aaaa"}, {"commit": "bbbb"}, "one.json is of commit aaaa and other.json of bbbb"),
        ({"commit": "aaaa"}, {"commit": "aaaa"}, ""),
        ({"commit": "aaaa"}, {"commit": "aaaa+", "edits": ""}, ""),
        ({"commit": "aaaa+", "edits": "12"}, {"commit": "aaaa+", "edits": "12"}, ""),
        ({"commit": "aaaa+", "edits": "12"}, {"commit": "aaaa+"}, ""),
        ({"commit": "aaaa"}, {"commit": "aaaa+"}, DIFFERENT),
        ({"commit": "aaaa"}, {"commit": "aaaa+", "edits": "12"}, DIFFERENT),
        ({"commit": "aaaa+", "edits": "13"}, {"commit": "aaaa+", "edits": "12"}, DIFFERENT),
        ({"commit": ""}, {"commit": "aaaa+", "edits": "12"}, ""),
        ({"files": {"a.py": "1", "b.py": "1"}}, {"files": {"a.py": "1", "c.py": "2"}}, ""),
        ({"files": {"a.py": "1"}}, {"files": {"a.py": "2"}}, "one.json and other.json are of different files: a.py"),
        ({"shards": (Shard(1, 2),)}, {"shards": (Shard(2, 2),)}, ""),
        ({"shards": (Shard(1, 2),)}, {"shards": (Shard(2, 3),)}, "one.json is shard 1/2 and other.json is shard 2/3"),
        (
            {"shards": (Shard(1, 2),)},
            {"shards": (Shard(2, 2),), "seed": 5},
            "shard 1/2 in one.json has seed 0 and shard 2/2 in other.json has 5",
        ),
    ],
)
def test_reports_of_different_trees_are_refused(one: dict[str, str], other: dict[str, str], message: str) -> None:
    reports = {"one.json": report(passing("c"), **one), "other.json": report(passing("d"), **other)}
    if message:
        with pytest.raises(UsageError, match=message):
            merge(reports)
    else:
        assert merge(reports).exit_code == 0


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (({"commit": "aa"}, {"commit": "aa"}, {"commit": "bb"}), "one.json is of commit aa and other.json of bb"),
        (({"commit": "a+", "edits": "1"}, {"commit": "a+"}, {"commit": "a+", "edits": "2"}), DIFFERENT),
        (({"files": {"a.py": "1"}}, {}, {"files": {"a.py": "2"}}), "one.json and other.json are of different files"),
    ],
)
def test_every_two_of_three_reports_are_compared(parts: tuple[dict[str, Any], ...], message: str) -> None:
    names = ("one.json", "middle.json", "other.json")
    with pytest.raises(UsageError, match=message):
        merge({name: report(passing("c"), **part) for name, part in zip(names, parts, strict=True)})


def test_the_whole_report_has_what_any_of_its_parts_has() -> None:
    finding = Finding(code="PV201", severity=Severity.NOTICE, location=HERE, message="m")
    parts = [
        {
            "started": "2",
            "seconds": 1.0,
            "devices": {"cpu": DeviceInfo(name="Zen", torch="2.1")},
            "files": {"a.py": "1"},
        }
    ]
    parts += [
        {
            "started": "1",
            "seconds": 2.0,
            "devices": {"cpu": DeviceInfo(name="M4", torch="2.1"), "cuda": DeviceInfo(name="H200")},
        }
    ]
    parts[0] |= {"project": {"c": "c.yaml"}, "steps": (1,)}
    parts[1] |= {"project": {"d": "d.yaml"}, "python": "3", "hypothesis": "7", "steps": (2,)}
    parts[0] |= {"findings": (finding,), "shards": (Shard(3, 3),), "notes": ("n",), "unmatched": ("x",)}
    parts[1] |= {
        "findings": (finding,),
        "shards": (Shard(1, 3),),
        "notes": ("n",),
        "version": "9",
        "files": {"b.py": "2"},
    }
    whole = merge({str(n): report(passing(id_), **part) for n, (id_, part) in enumerate(zip("cd", parts, strict=True))})
    assert (whole.started, whole.seconds, whole.findings, whole.unmatched) == ("1", 3.0, (finding,), ("x",))
    assert whole.devices == {"cpu": DeviceInfo(name="Zen and M4", torch="2.1"), "cuda": DeviceInfo(name="H200")}
    assert (whole.files, whole.project) == ({"a.py": "1", "b.py": "2"}, PROJECT)
    assert (whole.shards, whole.missing) == ((Shard(1, 3), Shard(3, 3)), (Shard(2, 3),))
    differences = ("versions of pv: 0.1.0, 9", "versions of Python: 3.11.7, 3", "versions of Hypothesis: 6.0, 7")
    assert whole.notes == (*(f"the reports have different {text}" for text in differences), NO_COMMIT, "n")
    assert whole.steps == (1, 2)
    seeds = {str(seed): report(passing("c"), commit="1", seed=seed) for seed in (3, 4)}
    assert merge(seeds).notes == ("the reports have different seeds: 3, 4",)
    changed = {name: report(passing(name), commit="1+") for name in "cd"}
    assert merge(changed).notes == (UNCOMPARED,)
    assert merge({"c": changed["c"]}, partial=True).notes == ()
    with pytest.raises(UsageError, match="no report given"):
        merge({})


def test_a_cancelled_mutant_is_untried() -> None:
    part = decided(trial(), judged(TrialStatus.CANCELLED))
    assert merge_verdicts([part, part]).untried == 1


def test_the_whole_contract_has_what_any_of_its_parts_has() -> None:
    score = MutationScore(total=9, judged=9, killed=9, sampled=9)
    parts = [decided(claims=BOTH, falsifiers=frozenset({id_}), require=frozenset({"mps"})) for id_ in "FG"]
    finding = Finding(code="PV101", severity=Severity.ERROR, location=HERE, message="m")
    parts[1] = replace(parts[1], score=score, findings=(finding,), unclaimed_devices=("cuda",))
    for n, id_ in enumerate("FG"):
        own = replace(parts[n].contract, equations=(Equation(name=id_, location=HERE),))
        parts[n] = replace(parts[n], contract=own, runs=(RunTrace(run="r", device=id_),))
    for whole in map(merge_verdicts, itertools.permutations(parts)):
        assert {equation.name for equation in whole.contract.equations} == {"F", "G"}
        assert sorted(run.device for run in whole.runs) == ["F", "G"]
        assert (whole.score, whole.findings, whole.unclaimed_devices) == (score, (finding,), ("cuda", "mps"))
        assert (whole.partial, whole.status, whole.untried) == (False, Status.FAIL, 1)


@pytest.mark.parametrize(
    "clauses",
    [
        {"version": "2.0.0"},
        {"falsifiers": (falsifier("G"),)},
        {"harnesses": (Harness(id="H", rule="r", if_fails="i", location=HERE),)},
        {"mutants": ()},
        {"gate": Gate(falsifiers=frozenset({"F"}))},
        {},
    ],
)
def test_different_versions_of_a_contract_are_refused_by_name(clauses: dict[str, Any]) -> None:
    first = passing("c")
    definitions = first.definitions if clauses else {}
    other = replace(first, contract=replace(first.contract, **clauses), definitions=definitions)
    reports = {"a.json": report(first), "same.json": report(first), "b.json": report(other)}
    with pytest.raises(UsageError, match=r"a\.json and b\.json hold different versions of contract 'c'"):
        merge(reports)


def test_merged_report_is_interrupted_or_unmatched_if_one_report_is() -> None:
    whole = merge({"a": report(passing("c"), interrupted=True), "b": report(passing("d"), unmatched=("--only X",))})
    assert (whole.exit_code, whole.unmatched) == (130, ("--only X",))


verdict = partial(decided, claims=(falsifier(devices=("cpu", "cuda")),))


def test_results_from_two_machines_are_merged() -> None:
    on_cpu = verdict(trial(), judged())
    on_cuda = verdict(trial(device="cuda"), devices=("cuda",))
    for order in itertools.permutations((on_cpu, on_cuda)):
        whole = merge_verdicts(order)
        assert [(r.device, r.outcome) for r in whole.results] == [("cpu", Outcome.HELD), ("cuda", Outcome.HELD)]
        assert (whole.status, whole.killed) == (Status.PASS, frozenset({"m"}))


def test_a_result_is_required_if_one_report_requires_it() -> None:
    held = partial(verdict, trial(), judged(), recorded=(recorded(),))
    for order in itertools.permutations((held(), held(require=frozenset({"cuda"})))):
        assert [result.required for result in merge_verdicts(order).results] == [True, True]


@pytest.mark.parametrize("status", [TrialStatus.SKIPPED, TrialStatus.CANCELLED])
def test_a_result_that_was_not_tried_hides_no_record(status: TrialStatus) -> None:
    skipped = verdict(trial(status, device="cuda"), devices=("cuda",))
    for order in itertools.permutations((skipped, verdict(trial(), judged(), recorded=(recorded(),)))):
        assert [result.outcome for result in merge_verdicts(order).results] == [Outcome.HELD, Outcome.HELD]


def test_a_claim_that_no_report_selected_is_listed_once_on_its_first_device() -> None:
    claims = (falsifier(), falsifier("G", devices=("cuda", "mps")))
    part = decided(trial(), judged(), claims=claims, falsifiers=frozenset({"F"}))
    assert [(r.falsifier.id, r.device) for r in with_missing_claims(part, "lost").results] == [
        ("F", "cpu"),
        ("G", "cuda"),
    ]


def test_a_mutant_is_killed_only_if_every_report_that_claims_it_killed_it() -> None:
    kills = decided(trial(), judged(), claims=BOTH, falsifiers=frozenset({"F"}))
    misses = decided(trial(id_="G"), judged(TrialStatus.HELD, id_="G"), claims=BOTH, falsifiers=frozenset({"G"}))
    whole = merge_verdicts([kills, misses])
    assert (whole.claimed_mutants, whole.killed, whole.untried, whole.status) == (
        frozenset({"m"}),
        frozenset(),
        0,
        Status.FAIL,
    )


@pytest.mark.parametrize("gate", [Gate(), Gate(falsifiers=frozenset({"F"}))])
def test_a_missing_claim_counts_if_the_gate_requires_it(gate: Gate) -> None:
    status = Status.PASS if gate.falsifiers else Status.UNDECIDED
    part = decided(trial(), judged(), claims=BOTH, gate=gate, falsifiers=frozenset({"F"}))
    scored = replace(part, contract=replace(part.contract, gate=replace(gate, mutation_score=0.5)))
    assert merge_verdicts([scored, scored]).status is Status.PASS, "only a whole contract needs its score"
    whole = with_missing_claims(part, "lost")
    assert (whole.status, whole.partial) == (status, False)
    assert (whole.results[1].outcome, whole.results[1].reason) == (Outcome.UNDECIDED, "lost")


@pytest.mark.parametrize(
    ("gate", "devices", "missing"),
    [
        (Gate(), ("cuda",), ["cpu"]),
        (Gate(devices=("cpu", "cuda")), ("cuda",), ["cpu"]),
        (Gate(devices=("cuda",)), ("cuda",), []),
        (Gate(fresh=frozenset({"cuda"})), ("cpu",), ["cuda"]),
    ],
)
def test_required_device_that_is_untried_is_undecided(gate: Gate, devices: tuple[str, ...], missing: list[str]) -> None:
    part = verdict(trial(device=devices[0]), judged(), gate=gate, devices=devices)
    assert part.status is Status.PASS
    whole = with_missing_claims(part, "lost")
    assert [result.device for result in whole.results if result.reason == "lost"] == missing
    assert whole.status is (Status.UNDECIDED if missing else Status.PASS)


def test_a_claim_that_the_subject_does_not_make_is_missing_on_no_device() -> None:
    part = verdict(not_claimed={"F": "why"}, devices=("cpu",), gate=Gate(fresh=frozenset({"cuda"})))
    assert [(r.device, r.outcome) for r in with_missing_claims(part, "lost").results] == [("cpu", Outcome.NOT_CLAIMED)]


def test_a_claim_on_fewer_examples_is_undecided_unless_another_report_tried_all() -> None:
    few, all_ = verdict(trial(asked=5), judged(), examples=5), verdict(trial(asked=100), judged())
    whole = with_missing_claims(few, "lost")
    reason = "it was tried on fewer examples than its contract asks for"
    assert (whole.status, whole.results[0].reason) == (Status.UNDECIDED, reason)
    for order in itertools.permutations((few, all_)):
        assert with_missing_claims(merge_verdicts(order), "lost").status is Status.PASS


def test_a_claim_whose_mutants_were_not_tried_is_undecided_unless_another_report_tried_them() -> None:
    untried, tried = verdict(trial(), mutants=False), verdict(trial(), judged())
    assert [result.unjudged for result in untried.results if result.device == "cpu"] == [True]
    assert "1 of 1 not tried on mutants" in line_cells(untried)["remarks"]
    whole = with_missing_claims(untried, "lost")
    assert (whole.status, whole.results[0].reason) == (Status.UNDECIDED, "its mutants were not tried")
    proved = replace(untried, results=tuple(replace(r, outcome=Outcome.PROVED) for r in untried.results))
    assert with_missing_claims(proved, "lost").results[0].outcome is Outcome.UNDECIDED
    for order in itertools.permutations((untried, tried)):
        assert with_missing_claims(merge_verdicts(order), "lost").status is Status.PASS
