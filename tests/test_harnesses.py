"""Whole validations of harnesses: what is proved, by which engine, and what is not taken for a proof."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

import pv
from pv import records
from pv.cells import Cell, Outcome, Selection
from pv.cli import main
from pv.errors import UsageError
from pv.evidence import PROOFS, DeviceInfo, Ending, Evidence, Trial
from pv.model import Contract, Gate
from pv.project import find_project
from pv.verdict import Report, Status, decide

PROJECTS = Path(__file__).parent / "projects"
Project = Callable[[str], Path]


def validated(name: str, folder: Path) -> Report:
    copy = folder / name
    shutil.copytree(PROJECTS / name, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return pv.validate([copy / "contracts"])


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return validated("proofs", tmp_path_factory.mktemp("sound"))


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return validated("odd_proofs", tmp_path_factory.mktemp("odd"))


def cell(report: Report, claim: str) -> Cell:
    (found,) = (c for v in report.contracts for c in v.cells if c.falsifier.id == claim)
    return found


def edit(path: Path, find: str, replacement: str) -> None:
    text = path.read_text()
    assert text.count(find) == 1, f"{find!r} occurs {text.count(find)} times in {path}"
    path.write_text(text.replace(find, replacement))


def test_a_sound_contract_is_proved_and_says_so(sound: Report) -> None:
    assert sound.exit_code == 0
    text = pv.render(sound)
    assert text.startswith("PASS       proofs 1.0.0: 5 of 5 proved, 7 of 7 mutants killed\n")


@pytest.mark.parametrize(
    ("harness", "engines"),
    [
        ("H-LOOP", ["exhaustive: all 210 points", "CrossHair"]),
        ("H-BEYOND", ["CrossHair"]),
        ("H-SHARE", ["exhaustive: all 459 points"]),
        ("H-EITHER", ["exhaustive: all 4 points"]),
        ("H-SUM", ["exhaustive: all 85 points", "CrossHair"]),
    ],
)
def test_the_engine_is_the_one_asked_for_or_the_one_that_fits_the_box(
    sound: Report, harness: str, engines: list[str]
) -> None:
    reasons = cell(sound, harness).reason.split("; ")
    assert [reason.startswith(engine) for reason, engine in zip(reasons, engines, strict=True)] == [True] * len(engines)


def test_a_mutant_that_is_wrong_at_one_of_10_to_the_21_points_falls_to_the_solver(sound: Report) -> None:
    (trial,) = (t for t in cell(sound, "H-BEYOND").mutants if t.mutant == "rarely-wrong")
    assert trial.counterexample is not None
    arguments = trial.counterexample.arguments
    assert (arguments["epochs"], arguments["steps"]) == (741001, 57013)


def test_a_counterexample_is_the_smallest_there_is_and_is_replayed(sound: Report, odd: Report) -> None:
    for harness, mutant, smallest in [
        ("H-LOOP", "one-too-many", {"epochs": 1, "steps": 1, "limit": 0}),
        ("H-SHARE", "rounded-up", {"total": 1, "parts": 2}),
        ("H-SUM", "last-lost", {"counts": [1]}),
    ]:
        (trial,) = (t for t in cell(sound, harness).mutants if t.mutant == mutant)
        assert trial.counterexample is not None
        assert trial.counterexample.arguments == smallest
        assert trial.counterexample.error.startswith("AssertionError"), "CrossHair's own words were no replay"
    for harness in ("WRONG", "WRONG-B"):
        trial = cell(odd, harness).trial
        assert trial is not None and trial.counterexample is not None
        assert trial.counterexample.arguments == {"number": 1}
    trial = cell(odd, "WRONG-S").trial
    assert trial is not None and trial.counterexample is not None
    assert trial.counterexample.arguments == {"number": -1}, "`requires` leaves 1 out"


@pytest.mark.parametrize(
    ("harness", "outcome", "reason"),
    [
        (
            "FOREVER",
            Outcome.UNDECIDED,
            "no answer within its limit of 1 s, nor soon after: narrow its bounds, or raise its `limit`",
        ),
        ("LEAVING", Outcome.ERROR, "the worker ended without an answer (exit status 0)"),
        ("LEAVING-S", Outcome.ERROR, "the worker ended without an answer (exit status 0)"),
        ("LEAKING", Outcome.ERROR, "its counterexample does not reproduce: in a fresh process the claim holds there"),
        (
            "LEAKING-S",
            Outcome.ERROR,
            "CrossHair confirmed it, yet it fails at number = 1: does a call leave something behind for the next?",
        ),
        ("WRONG", Outcome.FALSIFIED, ""),
        ("WRONG-B", Outcome.FALSIFIED, ""),
        ("WRONG-S", Outcome.FALSIFIED, ""),
        ("EMPTY", Outcome.VACUOUS, "the box is empty: `requires: number < 0` admits none of its 10 points"),
        ("EMPTY-S", Outcome.VACUOUS, "the box is empty: CrossHair finds no point with `requires: number < 0`"),
        ("IDLE", Outcome.VACUOUS, "the subject was never reached: no function of it ran"),
        ("TOOTHLESS", Outcome.VACUOUS, "the mutant 'another' survived it (its code was reached)"),
        ("BROKEN", Outcome.ERROR, "NameError: name 'undefined' is not defined"),
        ("BROKEN-S", Outcome.ERROR, "NameError: name 'undefined' is not defined"),
    ],
)
def test_nothing_but_a_proof_is_one(odd: Report, harness: str, outcome: Outcome, reason: str) -> None:
    assert (cell(odd, harness).outcome, cell(odd, harness).reason) == (outcome, reason)


def test_a_box_that_is_too_large_to_be_counted_out_is_undecided_though_the_solver_confirms(odd: Report) -> None:
    found = cell(odd, "HUGE")
    assert found.outcome is Outcome.UNDECIDED
    counted, solved = found.reason.split("; ")
    assert counted.startswith("exhaustive: at its limit of 1 s, ")
    assert counted.endswith(" of 1,000,000,000,000,000,000 points were tried")
    assert solved.startswith("CrossHair ") and ": confirmed over " in solved


def test_a_counterexample_of_one_engine_stands_where_the_other_has_no_answer(odd: Report) -> None:
    assert cell(odd, "ADDING-B").outcome is Outcome.FALSIFIED


def test_a_proof_that_was_not_found_is_shown_with_its_place_and_how_to_repeat_it(odd: Report) -> None:
    text = pv.render(odd)
    where = cell(odd, "HUGE").falsifier.where
    assert f"UNDECIDED  HUGE on cpu  {where}\n" in text
    assert "over      number 0..999999999999999999\n" in text
    assert "--only HUGE\n" in text


def test_random_examples_and_the_solver_each_find_what_the_other_misses(odd: Report) -> None:
    """Rounding is beyond a solver that takes floats for real numbers; one number in 10 to the 12 is beyond chance."""
    assert cell(odd, "F-ADDING").outcome is Outcome.FALSIFIED
    assert cell(odd, "ADDING").outcome is Outcome.UNDECIDED
    unlike = cell(odd, "F-UNLIKE").trial
    assert unlike is not None and unlike.ending is Ending.HELD
    assert cell(odd, "UNLIKE").outcome is Outcome.FALSIFIED


def test_a_failure_says_over_what_with_what_and_how_to_see_it_again(odd: Report) -> None:
    text = pv.render(odd)
    assert "over      number -9..9, where number != 1\n" in text
    assert "number = -1\n" in text
    assert """--only WRONG-S --replay '{"number": -1}'\n""" in text


def test_every_format_tells_of_proofs(sound: Report) -> None:
    cells = json.loads(pv.render(sound, "json"))["contracts"][0]["cells"]
    (share,) = (c for c in cells if c["falsifier"] == "H-SHARE")
    assert share["outcome"] == "proved"
    assert share["harness"] == {
        "bounds": {"total": "0..50", "parts": "-3..9"},
        "requires": "parts > 0",
        "engine": "",
        "limit": 60.0,
    }
    cases = {case.get("name"): case for case in ET.fromstring(pv.render(sound, "junit")).iter("testcase")}
    assert (cases["H-SHARE[cpu]"].findtext("system-out") or "").startswith("exhaustive: all 459 points in ")
    assert "| `H-SHARE` | cpu | proved | exhaustive: all 459 points in " in pv.render(sound, "markdown")


def test_a_harness_is_listed_with_its_box(project: Project) -> None:
    project("proofs")
    text = CliRunner().invoke(main, ["list"]).output
    assert "H-SHARE  [cpu]  Shares fit into the total\n" in text
    assert "falsifiers/prove_counting.py::prove_shares_fit  over total 0..50; parts -3..9  kills rounded-up" in text
    listed = json.loads(CliRunner().invoke(main, ["list", "--format", "json"]).output)
    assert [h["id"] for h in listed[0]["harnesses"]] == ["H-LOOP", "H-BEYOND", "H-SHARE", "H-EITHER", "H-SUM"]


def test_a_point_is_replayed_and_is_no_proof(project: Project) -> None:
    folder = project("proofs")
    found = cell(pv.validate(only=["H-SHARE"], replay='{"total": 3, "parts": 2}'), "H-SHARE")
    assert (found.outcome, found.reason) == (Outcome.UNDECIDED, "it holds at the one point that was replayed")
    edit(folder / "counting.py", "total // parts", "total // (parts - 2)")
    found = cell(pv.validate(only=["H-SHARE"], replay='{"total": 3, "parts": 2}'), "H-SHARE")
    assert (found.outcome, found.reason) == (Outcome.FALSIFIED, "the subject raised on a valid input")
    report = pv.validate(only=["H-SHARE"], replay='{"total": 3, "parts": 2}')
    assert """--replay '{"total": 3, "parts": 2}' --only H-SHARE\n""" in pv.render(report)
    deep = '{"total": ' + "[" * 5000 + "]" * 5000 + "}"
    for odd in (deep, '{"total": {"$int": "x"}, "parts": 1}', '{"total": {"$data": 1}, "parts": 1}'):
        with pytest.raises(UsageError, match=r"is no example|is no point of the box of H-SHARE") as refused:
            pv.validate(only=["H-SHARE"], replay=odd)
        assert len(str(refused.value)) < 400
    with pytest.raises(UsageError, match="H-SHARE is a harness: replay a point of its box"):
        pv.validate(only=["H-SHARE"], replay="6.1:AAAA")


BOX = "is no point of the box of H-SHARE (total 0..50; parts -3..9, where parts > 0)"


@pytest.mark.parametrize(
    ("point", "says"),
    [
        ('{"total": 3}', "parts is missing"),
        ('{"total": 3, "parts": 10}', "parts is 10, and its bound is int -3..9"),
        ('{"total": true, "parts": "1"}', "total is True, and its bound is int 0..50; parts is '1', and its bound is"),
        ('{"total": 3, "parts": 1.0}', "parts is 1.0, and its bound is int -3..9"),
        ('{"total": 3, "part": 2}', "parts is missing; there is no bound 'part': did you mean 'parts'?"),
        ('{"total": 3, "parts": 2, "xyz": 1}', "there is no bound 'xyz'"),
        ('{"total": 3, "parts": 0}', "parts > 0 does not hold there"),
    ],
)
def test_what_is_no_point_is_refused_with_each_name_that_is_wrong(project: Project, point: str, says: str) -> None:
    project("proofs")
    done = CliRunner().invoke(main, ["validate", "--only", "H-SHARE", "--replay", point])
    assert done.exit_code == 3
    assert f"{point} {BOX}: {says}" in done.output


@pytest.mark.parametrize("point", ['{"total": 1, "parts": 2, "total": 3}', '{"total": {"$int": "1", "$int": "2"}}'])
def test_a_name_with_two_values_is_refused(project: Project, point: str) -> None:
    project("proofs")
    done = CliRunner().invoke(main, ["validate", "--only", "H-SHARE", "--replay", point])
    assert done.exit_code == 3
    name = "total" if "$" not in point else "$int"
    assert f"the example to replay has '{name}' more than once; give each name one value" in done.output


def test_a_list_is_held_against_its_bound(project: Project) -> None:
    project("proofs")
    with pytest.raises(UsageError, match=r"counts is \[4\], and its bound is list of int 0..3, at most 3"):
        pv.validate(only=["H-SUM"], replay='{"counts": [4]}')


def test_the_replay_that_is_printed_is_taken_for_numbers_beyond_what_json_readers_keep(project: Project) -> None:
    folder = project("proofs")
    edit(folder / "contracts/proofs.yaml", "{total: 0..50, ", "{total: 9007199254740990..999999999999999999, ")
    edit(folder / "counting.py", "total // parts", "total // parts + (total > 9007199254740992)")
    found = cell(pv.validate(only=["H-SHARE"]), "H-SHARE")
    assert found.outcome is Outcome.FALSIFIED and found.trial is not None and found.trial.counterexample is not None
    printed = json.dumps(dict(found.trial.counterexample.arguments))
    assert "$int" in printed
    assert cell(pv.validate(only=["H-SHARE"], replay=printed), "H-SHARE").outcome is Outcome.FALSIFIED


@pytest.mark.parametrize("requires", ["partz > 0", "total // parts > 0"])
def test_a_replay_meets_a_box_that_is_broken_there(project: Project, requires: str) -> None:
    edit(project("proofs") / "contracts/proofs.yaml", "requires: parts > 0", f"requires: {requires}")
    point = '{"total": 3, "parts": 0}'
    if "partz" in requires:
        assert "PV191" in pv.render(pv.validate(only=["H-SHARE"], replay=point))
    else:
        with pytest.raises(UsageError, match="total // parts > 0 raises ZeroDivisionError there"):
            pv.validate(only=["H-SHARE"], replay=point)


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


def trial_of(harness: str, ending: Ending, **more: object) -> Trial:
    return replace(Trial(falsifier=harness, device="cpu", ending=ending, reached=frozenset({"counting:share"})), **more)


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


def test_a_proof_that_took_more_than_half_of_its_limit_is_pointed_out(sound: Report) -> None:
    contract = sound.contracts[0].contract
    only = Selection(falsifiers=frozenset({"H-SHARE"}), mutants=False)
    for seconds in (29.0, 31.0):
        trial = trial_of("H-SHARE", Ending.HELD, seconds=seconds, detail="all")
        verdict = decide(contract, Evidence(trials={("H-SHARE", "cpu"): trial}), only)
        assert verdict.cells[0].outcome is Outcome.PROVED
        report = replace(sound, contracts=(verdict,))
        strained = "all; with its start 31.00 s, more than half of its limit of 60 s"
        assert (f"H-SHARE on cpu: {strained}\n" in pv.render(report)) == (seconds > 30)
        assert (f"**proved**: `H-SHARE`: {strained}" in pv.render(report, "markdown")) == (seconds > 30)


def test_another_subject_is_held_to_the_same_box(project: Project) -> None:
    folder = project("proofs")
    (folder / "theirs.py").write_text("def share(total, parts):\n    return total // parts + (total == 7)\n")
    found = cell(pv.validate(only=["H-SHARE"], subjects={"proofs": "theirs"}), "H-SHARE")
    assert found.outcome is Outcome.FALSIFIED
    assert found.trial is not None and found.trial.counterexample is not None
    assert found.trial.counterexample.arguments == {"total": 7, "parts": 1}


def test_harnesses_in_prose_are_counted_and_never_pass() -> None:
    folder = Path(__file__).parent / "corpus/provable-contracts"
    verdict = pv.validate([folder / "softmax-kernel-v1.yaml"]).contracts[0]
    harnesses = len(verdict.contract.harnesses)
    assert harnesses > 0
    assert verdict.status is Status.UNDECIDED
    assert f", {harnesses} of {harnesses} harnesses unbound (prose), nothing measured" in pv.render(
        pv.validate([folder / "softmax-kernel-v1.yaml"])
    )
