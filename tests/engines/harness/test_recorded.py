"""A recorded proof counts until something that it depends on changes."""

import json
from pathlib import Path

import pv
from pv.contract.model import Contract
from pv.results import store
from pv.results.outcome import Outcome
from pv.results.trial import PROOFS, DeviceInfo, Trial, TrialStatus
from pv.source.project import find_project
from tests.engines.harness.reading import Project, edit, result


def slow(folder: Path) -> Contract:
    """The project, with a harness that no solver settles within its two seconds."""
    edit(folder / "contracts/proofs.yaml", "{epochs: 0..4, steps: 0..5, limit: 0..6}", SLOW)
    edit(
        folder / "contracts/proofs.yaml",
        "  engine: both\n  kills: [one-too-many]",
        "  limit: 2\n  kills: [one-too-many]",
    )
    return pv.load([folder / "contracts"]).contracts[0]


SLOW = "{epochs: 0..400, steps: 0..500, limit: 0..1000}"


def test_recorded_proof_counts_at_the_limit_until_something_changes(project: Project) -> None:
    folder = project("proofs")
    contract, here = slow(folder), find_project(Path.cwd())
    harness = contract.harnesses[0]
    trial = Trial(
        falsifier="H-LOOP", device="cpu", status=TrialStatus.HELD, detail="in an hour", reached=frozenset("x")
    )
    fingerprint = store.fingerprint(here, contract, harness, contract.subject_of(harness))
    store.write(here, contract, PROOFS, DeviceInfo(name="a large machine"), {"H-LOOP": trial}, {"H-LOOP": fingerprint})
    report = pv.validate(only=["H-LOOP"])
    found = result(report, "H-LOOP")
    assert (found.outcome, report.exit_code) == (Outcome.PROVED, 0)
    assert found.reason.startswith("recorded on a large machine, ")
    assert "1 of 1 proved (1 recorded), 1 of 1 mutants killed" in pv.render(report, verbose=True)
    edit(folder / "counting.py", "        result += count", "        result = result + count")
    stale = result(pv.validate(only=["H-LOOP"]), "H-LOOP")
    assert stale.outcome is Outcome.UNDECIDED
    assert stale.reason.endswith("the recorded proof is stale, changed: counting.py")


def test_only_what_was_proved_is_recorded(project: Project) -> None:
    folder = project("proofs")
    edit(folder / "falsifiers/prove_counting.py", "== (left + right == 1)", "== (left + right == 2)")
    pv.validate(only=["H-SHARE", "H-EITHER"], record=True)
    written = json.loads((folder / "evidence/proofs.proofs.json").read_text())
    assert written["renew"] == "pv validate --contract proofs --record"
    assert [(c["falsifier"], c["status"], c["valid"]) for c in written["results"]] == [("H-SHARE", "held", 459)]
