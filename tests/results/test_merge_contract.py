"""Of several results of a claim on a device the worst measured one counts, and mutants are killed where tried."""

import itertools

import pytest

from pv.contract.model import Gate
from pv.results.merge_contract import merged, with_missing_claims
from pv.results.outcome import Outcome, Selection
from pv.results.trial import TrialStatus
from pv.results.verdict import ContractVerdict, Status, decide
from tests.results.handmade import contract, evidence, falsifier, judged, recorded, trial

CLAIM = falsifier(devices=("cpu", "cuda"))


def verdict(*trials: object, claims: tuple[object, ...] = (CLAIM,), **options: object) -> ContractVerdict:
    return decide(contract(*claims), evidence(*trials), Selection(**options))


def test_devices_from_two_machines_are_measured_both() -> None:
    on_cpu = verdict(trial(), judged())
    on_cuda = verdict(trial(device="cuda"), devices=("cuda",))
    for order in itertools.permutations((on_cpu, on_cuda)):
        whole = merged(order)
        assert [(r.device, r.outcome) for r in whole.results] == [("cpu", Outcome.HELD), ("cuda", Outcome.HELD)]
        assert (whole.status, whole.killed) == (Status.PASS, {"m"})


def test_an_absent_device_gives_way_to_a_measured_one_and_to_a_record() -> None:
    absent = decide(contract(CLAIM), evidence(absent={"cuda": "no device"}), Selection(devices=("cuda",)))
    old = decide(contract(CLAIM), evidence(trial(), judged(), recorded=(recorded(),)), Selection())
    now = verdict(trial(TrialStatus.REFUTED, device="cuda"), devices=("cuda",))
    assert [r.outcome for r in merged([absent, old]).results] == [Outcome.HELD, Outcome.HELD]
    assert [r.outcome for r in merged([absent, old, now]).results] == [Outcome.HELD, Outcome.FALSIFIED]


def test_a_mutant_is_killed_only_if_every_report_that_claims_it_killed_it() -> None:
    claims = (falsifier("F"), falsifier("G"))
    kills = verdict(trial(), judged(), claims=claims, falsifiers=frozenset({"F"}))
    misses = verdict(trial(id_="G"), judged(TrialStatus.HELD, id_="G"), claims=claims, falsifiers=frozenset({"G"}))
    whole = merged([kills, misses])
    assert (whole.claimed, whole.killed, whole.untried, whole.status) == ({"m"}, frozenset(), 0, Status.FAIL)


def test_a_requirement_of_one_report_holds_for_all() -> None:
    asked = verdict(trial(), judged(), require=frozenset({"cuda"}))
    whole = merged([verdict(trial(), judged()), asked])
    assert whole.status is Status.UNDECIDED
    assert [result.required for result in whole.results] == [True, True]


@pytest.mark.parametrize(
    ("gate", "status"), [(Gate(), Status.UNDECIDED), (Gate(falsifiers=frozenset({"F"})), Status.PASS)]
)
def test_a_missing_claim_counts_if_the_gate_requires_it(gate: Gate, status: Status) -> None:
    both = contract(falsifier("F"), falsifier("G"), gate=gate)
    part = decide(both, evidence(trial(), judged()), Selection(falsifiers=frozenset({"F"})))
    whole = with_missing_claims(part, "lost")
    assert (whole.status, whole.partial) == (status, False)
    assert (whole.results[1].outcome, whole.results[1].reason) == (Outcome.UNDECIDED, "lost")


@pytest.mark.parametrize(
    ("gate", "devices", "missing"),
    [
        (Gate(), ("cuda",), ["cpu"]),
        (Gate(), ("cpu",), []),
        (Gate(devices=("cpu", "cuda")), ("cuda",), ["cpu"]),
        (Gate(devices=("cuda",)), ("cuda",), []),
        (Gate(fresh=frozenset({"cuda"})), ("cpu",), ["cuda"]),
        (Gate(devices=("cpu",), fresh=frozenset({"cuda"})), ("cpu",), ["cuda"]),
    ],
)
def test_a_device_that_the_gate_requires_is_undecided_where_it_was_not_tried(
    gate: Gate, devices: tuple[str, ...], missing: list[str]
) -> None:
    trials = (trial(device=devices[0]), judged())
    part = decide(contract(CLAIM, gate=gate), evidence(*trials), Selection(devices=devices))
    assert part.status is Status.PASS
    whole = with_missing_claims(part, "lost")
    assert [result.device for result in whole.results if result.reason == "lost"] == missing
    assert whole.status is (Status.UNDECIDED if missing else Status.PASS)


def test_a_claim_on_fewer_examples_is_undecided_unless_another_report_tried_all() -> None:
    few, all_ = verdict(trial(asked=5), judged(), examples=5), verdict(trial(asked=100), judged())
    whole = with_missing_claims(few, "lost")
    assert (whole.status, whole.results[0].reason) == (
        *(Status.UNDECIDED, "it was tried on fewer examples than its contract asks for"),
    )
    for order in itertools.permutations((few, all_)):
        assert with_missing_claims(merged(order), "lost").status is Status.PASS


def test_a_claim_whose_mutants_were_not_tried_is_undecided_unless_another_report_tried_them() -> None:
    untried, tried = verdict(trial(), mutants=False), verdict(trial(), judged())
    assert [result.unjudged for result in untried.results if result.device == "cpu"] == [True]
    whole = with_missing_claims(untried, "lost")
    assert (whole.status, whole.results[0].reason) == (Status.UNDECIDED, "its mutants were not tried")
    for order in itertools.permutations((untried, tried)):
        assert with_missing_claims(merged(order), "lost").status is Status.PASS
