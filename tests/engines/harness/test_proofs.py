"""Whole validations of harnesses: what is proved, by which engine, what is recorded, and what no proof is."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml

import pv
from pv.contract.model import Gate
from pv.engines.trial import Counterexample, Trial, TrialStatus
from pv.results import store
from pv.results.evidence import PROOFS, DeviceInfo, Evidence
from pv.results.outcome import Outcome, Selection
from pv.results.verdict import Report, Status, decide
from pv.source.project import find_project
from tests.commands.small import edit, result
from tests.support.projects import PROJECTS, Project, copy

OUTCOMES = yaml.safe_load((PROJECTS / "odd_proofs/outcomes.yaml").read_text())


def validated(name: str, folder: Path) -> Report:
    """Validate a project, with less time after the limit of a proof: some of its proofs never end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pv.engines.harness.engine.GRACE_S", 2.0)
        return pv.validate([copy(name, folder / name) / "contracts"])


def trial_of(harness: str, status: TrialStatus, **more: object) -> Trial:
    return replace(Trial(falsifier=harness, device="cpu", status=status, reached=frozenset({"counting:share"})), **more)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return validated("proofs", tmp_path_factory.mktemp("sound"))


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return validated("odd_proofs", tmp_path_factory.mktemp("odd"))


ENGINES = {
    "H-LOOP": ["exhaustive: all 210 points", "CrossHair"],
    "H-BEYOND": ["CrossHair"],
    "H-SHARE": ["exhaustive: all 459 points"],
    "H-SUM": ["exhaustive: all 85 points", "CrossHair"],
}


def test_engine_is_the_one_asked_for_or_fits_the_box(sound: Report) -> None:
    for harness, engines in ENGINES.items():
        pairs = zip(result(sound, harness).reason.split("; "), engines, strict=True)
        assert [engine for reason, engine in pairs if not reason.startswith(engine)] == [], harness


def test_a_mutant_that_is_wrong_at_one_of_10_to_the_21_points_falls_to_the_solver(sound: Report) -> None:
    (trial,) = (t for t in result(sound, "H-BEYOND").mutants if t.mutant == "rarely-wrong")
    assert trial.counterexample.arguments.items() >= {"epochs": 741001, "steps": 57013}.items()


def test_a_counterexample_is_the_smallest_there_is_and_is_replayed(sound: Report, odd: Report) -> None:
    for harness, mutant, smallest in [
        ("H-LOOP", "one-too-many", {"epochs": 1, "steps": 1, "limit": 0}),
        ("H-SHARE", "rounded-up", {"total": 1, "parts": 2}),
        ("H-SUM", "last-lost", {"counts": [1]}),
    ]:
        (trial,) = (t for t in result(sound, harness).mutants if t.mutant == mutant)
        assert trial.counterexample.arguments == smallest
        assert trial.counterexample.error.startswith("AssertionError"), "CrossHair's own words were no replay"
    for harness in ("WRONG", "WRONG-B"):
        assert result(odd, harness).trial.counterexample.arguments == {"number": 1}
    assert result(odd, "LEAKING").trial.counterexample is not None, "also one that does not reproduce is shown"
    seen = result(odd, "WRONG-S").trial.counterexample
    assert seen.arguments == {"number": -1}, "`requires` leaves 1 out"


@pytest.mark.parametrize("harness", OUTCOMES)
def test_harness_without_a_proof_has_its_outcome_and_reason(odd: Report, harness: str) -> None:
    assert [result(odd, harness).outcome.value, result(odd, harness).reason] == OUTCOMES[harness]


def test_a_box_that_is_too_large_to_be_counted_out_is_undecided_though_the_solver_confirms(odd: Report) -> None:
    huge = result(odd, "HUGE")
    assert huge.outcome is Outcome.UNDECIDED
    counted, solved = huge.reason.split("; ")
    assert counted.startswith("exhaustive: at its limit of 1 s of CPU time, ")
    assert counted.endswith(" of 1,000,000,000,000,000,000 points were enumerated")
    assert solved.startswith("CrossHair ") and ": confirmed over " in solved


def test_proved_contract_is_shown_in_every_format(sound: Report) -> None:
    assert sound.exit_code == 0
    assert pv.render(sound).startswith("PASS  proofs  proved 5/5  mutants 7/7\n")
    results = json.loads(pv.render(sound, "json"))["contracts"][0]["results"]
    (share,) = (c for c in results if c["falsifier"] == "H-SHARE")
    assert share["outcome"] == "proved"
    bounds = {"total": "0..50", "parts": "-3..9"}
    assert share["harness"] == {"bounds": bounds, "requires": "parts > 0", "engine": "", "limit": 60.0}
    cases = {case.get("name"): case for case in ET.fromstring(pv.render(sound, "junit")).iter("testcase")}
    assert (cases["H-SHARE[cpu]"].findtext("system-out") or "").startswith("exhaustive: all 459 points in ")
    assert "| `H-SHARE` | cpu | proved | exhaustive: all 459 points in " in pv.render(sound, "markdown")


def test_a_proof_that_took_more_than_half_of_its_limit_is_pointed_out(sound: Report) -> None:
    contract = sound.contracts[0].contract
    only = Selection(falsifiers=frozenset({"H-SHARE"}), mutants=False)
    for cpu_s in (29.0, 31.0):
        trial = trial_of("H-SHARE", TrialStatus.HELD, seconds=90.0, cpu_s=cpu_s, detail="all")
        verdict = decide(contract, Evidence(trials={("H-SHARE", "cpu"): trial}), only)
        assert verdict.results[0].outcome is Outcome.PROVED
        report = replace(sound, contracts=(verdict,))
        strained = "all; 31.00 s of CPU time including the start, more than half of its limit of 60 s"
        assert (f"H-SHARE on cpu: {strained}\n" in pv.render(report, verbose=True)) == (cpu_s > 30)
        assert (f"**proved**: `H-SHARE`: {strained}" in pv.render(report, "markdown")) == (cpu_s > 30)


@pytest.mark.parametrize(
    ("status", "gate", "expected"),
    [
        (TrialStatus.TIMEOUT, Gate(), Status.UNDECIDED),
        (TrialStatus.TIMEOUT, Gate(harnesses=frozenset({"H-LOOP"})), Status.UNDECIDED),
        (TrialStatus.REFUTED, Gate(harnesses=frozenset()), Status.FAIL),
        (TrialStatus.ERROR, Gate(), Status.FAIL),
        (TrialStatus.ERROR, Gate(harnesses=frozenset({"H-LOOP"})), Status.UNDECIDED),
        (TrialStatus.HELD, Gate(), Status.PASS),
    ],
)
def test_gate_requires_harnesses_unless_it_lists_them(status: TrialStatus, gate: Gate, expected: Status) -> None:
    contract = replace(pv.load([PROJECTS / "proofs/contracts"]).contracts[0], gate=gate)
    trials = Evidence(trials={("H-SHARE", "cpu"): trial_of("H-SHARE", status, detail="limit")})
    only = Selection(falsifiers=frozenset({"H-SHARE"}), mutants=False)
    assert decide(contract, trials, only).status is expected


def test_recorded_proof_counts_at_the_limit_until_something_changes(project: Project) -> None:
    folder = project("proofs")
    file, root = folder / "contracts/proofs.yaml", find_project(Path.cwd())
    edit(file, "{epochs: 0..4, steps: 0..5, limit: 0..6}", "{epochs: 0..400, steps: 0..500, limit: 0..1000}")
    edit(file, "  engine: both\n  kills: [one-too-many]", "  limit: 1\n  kills: [one-too-many]")  # no solver settles it
    contract = pv.load([file]).contracts[0]
    harness = contract.harnesses[0]
    trial = trial_of("H-LOOP", TrialStatus.HELD, detail="in an hour")
    fingerprint = store.fingerprint(root, contract, harness, contract.subject_of(harness))
    store.write(root, contract, PROOFS, DeviceInfo(name="a large machine"), {"H-LOOP": trial}, {"H-LOOP": fingerprint})
    report = pv.validate(only=["H-LOOP"])
    proved = result(report, "H-LOOP")
    assert (proved.outcome, report.exit_code) == (Outcome.PROVED, 0), proved.reason
    assert proved.reason.startswith("recorded on a large machine, ")
    assert "1 of 1 proved (1 recorded), 1 of 1 mutants killed" in pv.render(report, verbose=True)
    search = trial_of("H-LOOP", TrialStatus.TIMEOUT, counterexample=Counterexample(arguments={}, exact=True, error="e"))
    trials = Evidence(trials={("H-LOOP", "cpu"): search}, recorded={("H-LOOP", PROOFS): proved.recorded})
    assert decide(contract, trials, Selection(falsifiers=frozenset({"H-LOOP"}))).results[0].outcome is Outcome.FALSIFIED
    edit(folder / "counting.py", "        result += count", "        result = result + count")
    stale = result(pv.validate(only=["H-LOOP"], mutants=False), "H-LOOP")
    assert stale.outcome is Outcome.UNDECIDED
    assert stale.reason.endswith("the recorded proof is stale, changed: counting.py")


def test_only_proofs_are_recorded(project: Project) -> None:
    folder = project("proofs")
    edit(folder / "falsifiers/prove_counting.py", "== (left + right == 1)", "== (left + right == 2)")
    pv.validate(only=["H-SHARE", "H-EITHER"], record=True)
    written = json.loads((folder / "evidence/proofs.proofs.json").read_text())
    assert written["renew"] == "pv validate --contract proofs --record"
    assert [(c["falsifier"], c["status"], c["valid"]) for c in written["results"]] == [("H-SHARE", "held", 459)]
