"""A proof that was found elsewhere stands in until something changes."""

import json
from pathlib import Path

import pv
from pv import records
from pv.cells import Outcome
from pv.evidence import PROOFS, DeviceInfo, Ending, Trial
from pv.model import Contract
from pv.project import find_project
from tests.proofs.reading import Project, cell, edit


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


def test_a_proof_is_recorded_and_stands_in_where_the_limit_is_hit_until_something_changes(project: Project) -> None:
    folder = project("proofs")
    contract, here = slow(folder), find_project(Path.cwd())
    alone = cell(pv.validate(only=["H-LOOP"]), "H-LOOP")
    assert alone.outcome is Outcome.UNDECIDED, alone.reason
    harness = contract.harnesses[0]
    trial = Trial(falsifier="H-LOOP", device="cpu", ending=Ending.HELD, detail="in an hour", reached=frozenset("x"))
    basis = records.basis(here, contract, harness, contract.subject_of(harness))
    records.write(here, contract, PROOFS, DeviceInfo(name="a large machine"), {"H-LOOP": trial}, {"H-LOOP": basis})
    report = pv.validate(only=["H-LOOP"])
    found = cell(report, "H-LOOP")
    assert (found.outcome, report.exit_code) == (Outcome.PROVED, 0)
    assert found.reason.startswith("recorded on a large machine, ")
    assert "1 of 1 proved (1 recorded), 1 of 1 mutants killed" in pv.render(report)
    edit(folder / "counting.py", "        result += count", "        result = result + count")
    stale = cell(pv.validate(only=["H-LOOP"]), "H-LOOP")
    assert stale.outcome is Outcome.UNDECIDED
    assert stale.reason.endswith("the recorded proof is stale, changed: counting.py")


def test_only_what_was_proved_is_recorded(project: Project) -> None:
    folder = project("proofs")
    edit(folder / "falsifiers/prove_counting.py", "== (left + right == 1)", "== (left + right == 2)")
    pv.validate(only=["H-SHARE", "H-EITHER"], record=True)
    written = json.loads((folder / "evidence/proofs.proofs.json").read_text())
    assert written["renew"] == "pv validate --contract proofs --record"
    assert [(c["falsifier"], c["ending"], c["valid"]) for c in written["cells"]] == [("H-SHARE", "held", 459)]
