"""Which harnesses a contract requires."""

from dataclasses import replace
from pathlib import Path

import pv
from pv.cells import Selection
from pv.evidence import Ending, Evidence, Trial
from pv.model import Contract, Gate
from pv.verdict import Status, decide
from tests.proofs.reading import PROJECTS, trial_of


def verdict(contract: Contract, trial: Trial, *, gate: Gate) -> Status:
    only = Selection(falsifiers=frozenset({trial.falsifier}), mutants=False)
    evidence = Evidence(trials={(trial.falsifier, "cpu"): trial})
    return decide(replace(contract, gate=gate), evidence, only).status


def test_the_gate_requires_harnesses_unless_it_names_others() -> None:
    contract = pv.load([PROJECTS / "proofs/contracts"]).contracts[0]
    limit = trial_of("H-SHARE", Ending.TIME, detail="limit")
    assert verdict(contract, limit, gate=Gate()) is Status.UNDECIDED
    assert verdict(contract, limit, gate=Gate(harnesses=frozenset({"H-LOOP"}))) is Status.UNDECIDED
    refuted = trial_of("H-SHARE", Ending.REFUTED)
    assert verdict(contract, refuted, gate=Gate(harnesses=frozenset())) is Status.FAIL
    broken = trial_of("H-SHARE", Ending.BROKEN)
    assert verdict(contract, broken, gate=Gate()) is Status.FAIL
    assert verdict(contract, broken, gate=Gate(harnesses=frozenset({"H-LOOP"}))) is Status.UNDECIDED
    held = trial_of("H-SHARE", Ending.HELD)
    assert verdict(contract, held, gate=Gate()) is Status.PASS


def test_harnesses_in_prose_are_counted_and_never_pass() -> None:
    folder = Path(__file__).parents[1] / "corpus/provable-contracts"
    verdict = pv.validate([folder / "softmax-kernel-v1.yaml"]).contracts[0]
    harnesses = len(verdict.contract.harnesses)
    assert harnesses > 0
    assert verdict.status is Status.UNDECIDED
    assert f", {harnesses} of {harnesses} harnesses unbound (prose), nothing measured" in pv.render(
        pv.validate([folder / "softmax-kernel-v1.yaml"])
    )
