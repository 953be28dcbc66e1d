"""Which harnesses a contract requires."""

from dataclasses import replace
from pathlib import Path

import pv
from pv.contract.model import Contract, Gate
from pv.report.summary import sentence
from pv.results.outcome import Selection
from pv.results.trial import Evidence, Trial, TrialStatus
from pv.results.verdict import Status, decide
from tests.engines.harness.reading import PROJECTS, trial_of


def verdict(contract: Contract, trial: Trial, *, gate: Gate) -> Status:
    only = Selection(falsifiers=frozenset({trial.falsifier}), mutants=False)
    evidence = Evidence(trials={(trial.falsifier, "cpu"): trial})
    return decide(replace(contract, gate=gate), evidence, only).status


def test_the_gate_requires_harnesses_unless_it_names_others() -> None:
    contract = pv.load([PROJECTS / "proofs/contracts"]).contracts[0]
    limit = trial_of("H-SHARE", TrialStatus.TIMEOUT, detail="limit")
    assert verdict(contract, limit, gate=Gate()) is Status.UNDECIDED
    assert verdict(contract, limit, gate=Gate(harnesses=frozenset({"H-LOOP"}))) is Status.UNDECIDED
    refuted = trial_of("H-SHARE", TrialStatus.REFUTED)
    assert verdict(contract, refuted, gate=Gate(harnesses=frozenset())) is Status.FAIL
    broken = trial_of("H-SHARE", TrialStatus.ERROR)
    assert verdict(contract, broken, gate=Gate()) is Status.FAIL
    assert verdict(contract, broken, gate=Gate(harnesses=frozenset({"H-LOOP"}))) is Status.UNDECIDED
    held = trial_of("H-SHARE", TrialStatus.HELD)
    assert verdict(contract, held, gate=Gate()) is Status.PASS


def test_harnesses_in_prose_are_counted_and_never_pass() -> None:
    folder = Path(__file__).parents[2] / "corpus/provable-contracts"
    verdict = pv.validate([folder / "softmax-kernel-v1.yaml"]).contracts[0]
    harnesses = len(verdict.contract.harnesses)
    assert harnesses > 0
    assert verdict.status is Status.UNDECIDED
    assert f" and {harnesses} harnesses stated, 0 run: their tests are prose" in sentence(verdict)
