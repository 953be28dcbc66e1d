"""Which devices count, what was recorded on them, and when it no longer does."""

import pytest

from pv.contract.model import Gate
from pv.report.summary import sentence
from pv.results.outcome import Outcome, Selection
from pv.results.trial import Recorded, TrialStatus
from pv.results.verdict import Status, decide
from tests.results.handmade import HELD, SURVIVED, contract, evidence, falsifier, judged, recorded, said, trial

CUDA = falsifier(devices=("cpu", "cuda"))
ON_CUDA = trial(device="cuda")


@pytest.mark.parametrize(
    ("gate", "selection"),
    [(Gate(fresh=frozenset({"cuda"})), Selection()), (Gate(), Selection(require=frozenset({"cuda"})))],
    ids=["gate", "require"],
)
@pytest.mark.parametrize(
    ("records", "status", "reason"),
    [
        ((), Status.UNDECIDED, "not measured on cuda"),
        ((recorded(changed=("tiny.py", "b.py")),), Status.UNDECIDED, "stale, changed: tiny.py, b.py"),
        ((recorded(),), Status.PASS, "recorded on NVIDIA H200, 2026-11-20"),
        ((recorded(TrialStatus.REFUTED),), *(Status.FAIL, "recorded on NVIDIA H200, 2026-11-20")),
        (
            (recorded(TrialStatus.ERROR, detail="KeyError"),),
            *(Status.FAIL, "KeyError; recorded on NVIDIA H200, 2026-11-20"),
        ),
        (
            (recorded(reached=False),),
            Status.FAIL,
            "the subject was never reached: no function of it ran; recorded on NVIDIA H200, 2026-11-20",
        ),
    ],
)
def test_a_required_device_counts_by_its_record(
    gate: Gate, selection: Selection, records: tuple[Recorded, ...], status: Status, reason: str
) -> None:
    verdict = decide(contract(CUDA, gate=gate), evidence(*HELD, recorded=records), selection)
    assert (verdict.status, verdict.results[1].reason, verdict.results[1].required) == (status, reason, True)


@pytest.mark.parametrize(
    ("records", "status"),
    [
        ((), Status.PASS),
        ((recorded(changed=("tiny.py",)),), Status.PASS),
        ((recorded(TrialStatus.SKIPPED),), Status.PASS),
        ((recorded(),), Status.PASS),
        ((recorded(TrialStatus.REFUTED, changed=("tiny.py",)),), Status.PASS),
        ((recorded(TrialStatus.REFUTED),), Status.FAIL),
    ],
)
def test_a_device_that_is_not_required_counts_only_by_a_fresh_refutation(
    records: tuple[Recorded, ...], status: Status
) -> None:
    verdict = decide(contract(CUDA), evidence(*HELD, recorded=records), Selection())
    assert (verdict.status, verdict.results[1].required) == (status, False)


def test_a_named_device_runs_and_its_record_is_not_asked() -> None:
    found = evidence(ON_CUDA, recorded=(recorded(TrialStatus.REFUTED),))
    assert said(decide(contract(CUDA), found, Selection(devices=("cuda",)))) == SURVIVED


def test_a_named_device_that_is_absent_is_undecided() -> None:
    found = evidence(recorded=(recorded(),), absent={"cuda": "torch sees no CUDA device"})
    verdict = decide(contract(CUDA), found, Selection(devices=("cuda",)))
    assert said(verdict) == (Status.UNDECIDED, Outcome.UNDECIDED, "torch sees no CUDA device")
    assert verdict.claimed == frozenset()


REQUIRED = Selection(require=frozenset({"cuda"}))


def test_a_contract_without_a_claim_on_the_required_device_is_undecided() -> None:
    known = evidence(trial(), judged())
    verdict = decide(contract(falsifier()), known, REQUIRED)
    assert (verdict.status, verdict.unclaimed) == (Status.UNDECIDED, ("cuda",))
    assert "nothing claimed on cuda" in sentence(verdict)
