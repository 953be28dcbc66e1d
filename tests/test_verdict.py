"""The verdict is a pure function of claims and evidence; each rule of it is one test, on hand-made evidence."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pv.cells import Cell, Outcome, Selection
from pv.evidence import Counterexample, DeviceInfo, Ending, Evidence, Recorded, Trial
from pv.model import Binding, Contract, Edit, Falsifier, Finding, Gate, Mutant, Severity, Target, Where
from pv.verdict import ContractVerdict, Report, Status, decide

HERE = Where(Path("contract.yaml"), 3, 1)
FOUND = Counterexample(arguments={"n": 1}, exact=True, error="AssertionError: 2 == 3")
REACHED = frozenset({"tiny:double"})
SEVERITIES = {3: Severity.REFUSAL, 1: Severity.ERROR, 0: Severity.NOTICE}


def falsifier(id_: str = "F", *, kills: tuple[str, ...] = ("m",), **fields: Any) -> Falsifier:
    test = fields.pop("test", Binding("falsifiers/falsify_tiny.py", "falsify_double"))
    return Falsifier(id=id_, rule="r", prediction="p", if_fails="i", where=HERE, test=test, kills=kills, **fields)


def contract(*falsifiers: Falsifier, gate: Gate | None = None, strict: bool = True) -> Contract:
    edit = Edit(function=Target("tiny", "double"), find="2", replace="3")
    return Contract(
        id="c",
        version="1.0.0",
        description="d",
        where=HERE,
        strict=strict,
        falsifiers=falsifiers,
        mutants=tuple(Mutant(id=id_, fault="f", change=edit, where=HERE) for id_ in ("m", "n")),
        gate=gate or Gate(),
    )


def trial(ending: Ending = Ending.HELD, id_: str = "F", device: str = "cpu", **fields: Any) -> Trial:
    fields = {"reached": REACHED, "valid": 100, **fields}
    return Trial(falsifier=id_, device=device, ending=ending, **fields)


def judged(ending: Ending = Ending.REFUTED, id_: str = "F", mutant: str = "m", **fields: Any) -> Trial:
    return trial(ending, id_, mutant=mutant, **fields)


def evidence(*trials: Trial, recorded: tuple[Recorded, ...] = (), absent: Mapping[str, str] | None = None) -> Evidence:
    return Evidence(
        trials={(t.falsifier, t.device): t for t in trials if t.mutant is None},
        mutants={(t.falsifier, t.mutant): t for t in trials if t.mutant is not None},
        recorded={(r.falsifier, r.device): r for r in recorded},
        absent=absent or {},
    )


def recorded(ending: Ending = Ending.HELD, id_: str = "F", **fields: Any) -> Recorded:
    return Recorded(
        falsifier=id_,
        device="cuda",
        ending=ending,
        valid=100,
        detail=fields.pop("detail", ""),
        when="2026-11-20",
        hardware=DeviceInfo(name="NVIDIA H200"),
        commit="abc",
        **fields,
    )


def only_cell(verdict: ContractVerdict) -> Cell:
    (cell,) = verdict.cells
    return cell


def said(verdict: ContractVerdict) -> tuple[Status, Outcome, str]:
    cell = only_cell(verdict)
    return verdict.status, cell.outcome, cell.reason


HELD = (trial(), judged())
SURVIVED = (Status.PASS, Outcome.SURVIVED, "")


def test_what_held_and_could_have_failed_passes() -> None:
    assert said(decide(contract(falsifier()), evidence(*HELD), Selection())) == SURVIVED


@pytest.mark.parametrize(
    ("one", "outcome", "reason"),
    [
        (trial(Ending.REFUTED, counterexample=FOUND), Outcome.FALSIFIED, ""),
        (trial(Ending.RAISED, counterexample=FOUND), Outcome.FALSIFIED, "the subject raised on a valid input"),
        (trial(Ending.TIME, counterexample=FOUND, detail="60 s"), Outcome.FALSIFIED, "not shrunk: 60 s"),
        (trial(Ending.MEMORY, counterexample=FOUND, detail="4 GiB"), Outcome.FALSIFIED, "not shrunk: 4 GiB"),
        (trial(Ending.CRASHED, counterexample=FOUND, detail="SIGSEGV"), Outcome.FALSIFIED, "not shrunk: SIGSEGV"),
        (trial(Ending.SILENT, counterexample=FOUND, detail="gone"), Outcome.FALSIFIED, "not shrunk: gone"),
        (trial(Ending.TIME, detail="60 s"), Outcome.ERROR, "60 s"),
        (trial(Ending.MEMORY, detail="4 GiB"), Outcome.ERROR, "4 GiB"),
        (trial(Ending.CRASHED, detail="SIGSEGV"), Outcome.ERROR, "SIGSEGV"),
        (trial(Ending.SILENT, detail="gone"), Outcome.ERROR, "gone"),
        (trial(Ending.BROKEN, detail="KeyError"), Outcome.ERROR, "KeyError"),
        (trial(Ending.FLAKY, detail="flaky"), Outcome.ERROR, "flaky"),
        (trial(Ending.VOID, detail="void"), Outcome.ERROR, "void"),
        (trial(Ending.BARREN, detail="filter"), Outcome.VACUOUS, "no example was valid: filter"),
        (trial(reached=frozenset()), Outcome.VACUOUS, "the subject was never reached: no function of it ran"),
    ],
    ids=lambda value: value.ending.value if isinstance(value, Trial) else "",
)
def test_any_other_end_of_a_required_falsifier_fails(one: Trial, outcome: Outcome, reason: str) -> None:
    verdict = decide(contract(falsifier()), evidence(one, judged()), Selection())
    assert said(verdict) == (Status.FAIL, outcome, reason)


@pytest.mark.parametrize("ending", [Ending.SKIPPED, Ending.CANCELLED])
def test_what_was_not_tried_is_undecided(ending: Ending) -> None:
    verdict = decide(contract(falsifier()), evidence(trial(ending, detail="why")), Selection())
    assert said(verdict) == (Status.UNDECIDED, Outcome.UNDECIDED, "why")


def test_every_ending_has_an_outcome() -> None:
    outcomes = {
        end: only_cell(decide(contract(falsifier()), evidence(trial(end)), Selection())).outcome for end in Ending
    }
    assert {end for end, outcome in outcomes.items() if outcome in (Outcome.SURVIVED, Outcome.PROVED)} == set()


@pytest.mark.parametrize(
    ("mutant", "status", "outcome", "reason"),
    [
        (judged(Ending.RAISED), *SURVIVED),
        (
            judged(Ending.HELD, mutant_reached=True),
            *(Status.FAIL, Outcome.VACUOUS, "the mutant 'm' survived it (its code was reached)"),
        ),
        (
            judged(Ending.HELD),
            *(Status.FAIL, Outcome.VACUOUS, "the mutant 'm' survived it (its code was never reached)"),
        ),
        (
            judged(Ending.VOID, detail="never imported"),
            *(Status.FAIL, Outcome.ERROR, "the mutant 'm' could not be judged: never imported"),
        ),
        (
            judged(Ending.TIME, detail="60 s"),
            *(Status.FAIL, Outcome.ERROR, "the mutant 'm' could not be judged: 60 s"),
        ),
        (
            judged(Ending.BARREN, detail="filter"),
            *(Status.FAIL, Outcome.ERROR, "the mutant 'm' could not be judged: filter"),
        ),
        (
            judged(Ending.CANCELLED, detail="stopped"),
            *(Status.UNDECIDED, Outcome.UNDECIDED, "the mutant 'm' was not judged: stopped"),
        ),
    ],
)
def test_a_falsifier_is_judged_by_its_mutants(mutant: Trial, status: Status, outcome: Outcome, reason: str) -> None:
    assert said(decide(contract(falsifier()), evidence(trial(), mutant), Selection())) == (status, outcome, reason)


def test_a_mutant_that_was_not_tried_leaves_its_falsifier_undecided() -> None:
    verdict = decide(contract(falsifier(kills=("m", "n"))), evidence(*HELD), Selection())
    assert said(verdict) == (Status.UNDECIDED, Outcome.UNDECIDED, "the mutant 'n' was not judged")


def test_a_clean_subject_that_fails_at_small_arguments_is_an_error() -> None:
    small = trial(Ending.REFUTED, mutant="", detail="too few steps")
    verdict = decide(contract(falsifier(run="once")), evidence(trial(), small), Selection())
    reason = "the clean subject fails at the run's `small` arguments: too few steps"
    assert said(verdict) == (Status.FAIL, Outcome.ERROR, reason)


def test_a_refuted_falsifier_needs_no_mutant() -> None:
    verdict = decide(contract(falsifier()), evidence(trial(Ending.REFUTED, counterexample=FOUND)), Selection())
    assert verdict.status is Status.FAIL


def test_mutants_are_not_asked_where_they_are_not_wanted() -> None:
    assert said(decide(contract(falsifier()), evidence(trial()), Selection(mutants=False))) == SURVIVED


def test_nothing_measured_is_not_a_pass() -> None:
    assert said(decide(contract(falsifier()), evidence(), Selection())) == (
        *(Status.UNDECIDED, Outcome.UNDECIDED),
        "nothing was measured",
    )
    assert decide(contract(), evidence(), Selection()).status is Status.UNDECIDED


def test_nothing_selected_is_not_a_pass() -> None:
    verdict = decide(contract(falsifier()), evidence(*HELD), Selection(falsifiers=frozenset()))
    assert (verdict.status, verdict.cells, verdict.partial) == (Status.UNDECIDED, (), True)


def test_a_falsifier_in_prose_is_undecided() -> None:
    verdict = decide(contract(falsifier(test=None, kills=()), strict=False), evidence(), Selection())
    assert said(verdict) == (Status.UNDECIDED, Outcome.UNDECIDED, "not bound: its test is prose")


@pytest.mark.parametrize("severity", [Severity.ERROR, Severity.REFUSAL])
def test_a_lint_error_fails_what_would_have_passed(severity: Severity) -> None:
    found = Finding(code="PV131", severity=severity, where=HERE, message="m")
    assert decide(contract(falsifier()), evidence(*HELD), Selection(), (found,)).status is Status.FAIL


def test_a_notice_changes_nothing() -> None:
    found = Finding(code="PV201", severity=Severity.NOTICE, where=HERE, message="m")
    assert decide(contract(falsifier()), evidence(*HELD), Selection(), (found,)).status is Status.PASS


def two(first: Ending, second: Ending) -> Evidence:
    return evidence(
        trial(first, "F", counterexample=FOUND), judged(), trial(second, "G", counterexample=FOUND), judged(id_="G")
    )


BOTH = (falsifier("F"), falsifier("G"))


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        (Ending.HELD, Ending.HELD, Status.PASS),
        (Ending.HELD, Ending.SKIPPED, Status.UNDECIDED),
        (Ending.HELD, Ending.REFUTED, Status.FAIL),
        (Ending.SKIPPED, Ending.REFUTED, Status.FAIL),
        (Ending.SKIPPED, Ending.BROKEN, Status.FAIL),
        (Ending.SKIPPED, Ending.BARREN, Status.FAIL),
    ],
)
def test_the_worst_required_cell_decides(first: Ending, second: Ending, status: Status) -> None:
    for ends in ((first, second), (second, first)):
        assert decide(contract(*BOTH), two(*ends), Selection()).status is status


@pytest.mark.parametrize(
    ("second", "status"),
    [
        (Ending.HELD, Status.PASS),
        (Ending.SKIPPED, Status.PASS),
        (Ending.BROKEN, Status.PASS),
        (Ending.BARREN, Status.PASS),
        (Ending.REFUTED, Status.FAIL),
        (Ending.RAISED, Status.FAIL),
        (Ending.TIME, Status.FAIL),
    ],
)
def test_a_falsifier_outside_the_gate_counts_only_when_it_refutes(second: Ending, status: Status) -> None:
    verdict = decide(contract(*BOTH, gate=Gate(falsifiers=frozenset({"F"}))), two(Ending.HELD, second), Selection())
    assert verdict.status is status
    assert [cell.required for cell in verdict.cells] == [True, False]


def test_a_gate_that_requires_nothing_is_never_passed() -> None:
    verdict = decide(contract(*BOTH, gate=Gate(falsifiers=frozenset())), two(Ending.HELD, Ending.HELD), Selection())
    assert verdict.status is Status.UNDECIDED


def test_a_mutant_outside_the_gate_may_survive() -> None:
    held = evidence(trial(), judged(), judged(Ending.HELD, mutant="n"))
    claim = falsifier(kills=("m", "n"))
    gated = decide(contract(claim, gate=Gate(mutants=frozenset({"m"}))), held, Selection())
    assert gated.status is Status.PASS
    assert (gated.killed, gated.claimed) == (frozenset({"m"}), frozenset({"m", "n"}))
    assert decide(contract(claim), held, Selection()).status is Status.FAIL


def test_a_mutant_counts_as_killed_if_every_falsifier_that_claims_it_kills_it() -> None:
    found = evidence(trial(), judged(), trial(id_="G"), judged(Ending.HELD, "G"))
    verdict = decide(contract(*BOTH), found, Selection())
    assert (verdict.killed, verdict.claimed) == (frozenset(), frozenset({"m"}))


CUDA = falsifier(devices=("cpu", "cuda"))
ON_CUDA = trial(device="cuda")


@pytest.mark.parametrize(
    ("gate", "selection"),
    [
        (Gate(devices=frozenset({"cuda"})), Selection()),
        (Gate(), Selection(require=frozenset({"cuda"}))),
    ],
    ids=["gate", "require"],
)
@pytest.mark.parametrize(
    ("records", "status", "reason"),
    [
        ((), Status.UNDECIDED, "not measured on cuda"),
        ((recorded(changed=("tiny.py", "b.py")),), Status.UNDECIDED, "stale, changed: tiny.py, b.py"),
        ((recorded(),), Status.PASS, "recorded on NVIDIA H200, 2026-11-20"),
        (
            (recorded(Ending.REFUTED),),
            *(Status.FAIL, "recorded on NVIDIA H200, 2026-11-20"),
        ),
        (
            (recorded(Ending.BROKEN, detail="KeyError"),),
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
    assert (verdict.status, verdict.cells[1].reason, verdict.cells[1].required) == (status, reason, True)


@pytest.mark.parametrize(
    ("records", "status"),
    [
        ((), Status.PASS),
        ((recorded(changed=("tiny.py",)),), Status.PASS),
        ((recorded(Ending.SKIPPED),), Status.PASS),
        ((recorded(Ending.BROKEN),), Status.PASS),
        ((recorded(),), Status.PASS),
        ((recorded(Ending.REFUTED, changed=("tiny.py",)),), Status.PASS),
        ((recorded(Ending.REFUTED),), Status.FAIL),
        ((recorded(Ending.RAISED),), Status.FAIL),
    ],
)
def test_a_device_nobody_requires_counts_only_by_a_fresh_refutation(
    records: tuple[Recorded, ...], status: Status
) -> None:
    verdict = decide(contract(CUDA), evidence(*HELD, recorded=records), Selection())
    assert (verdict.status, verdict.cells[1].required) == (status, False)


def test_a_gate_on_a_device_does_not_require_falsifiers_outside_it() -> None:
    gate = Gate(falsifiers=frozenset({"F"}), devices=frozenset({"cuda"}))
    other = falsifier("G", devices=("cpu", "cuda"))
    found = evidence(trial(), judged(), trial(id_="G"), judged(id_="G"), recorded=(recorded(),))
    verdict = decide(contract(CUDA, other, gate=gate), found, Selection())
    assert verdict.status is Status.PASS


@pytest.mark.parametrize(
    ("devices", "cells"),
    [
        (None, ["cpu", "cuda"]),
        (("cpu",), ["cpu"]),
        (("cuda",), ["cuda"]),
        (("cuda", "cpu"), ["cpu", "cuda"]),
    ],
)
def test_named_devices_are_exactly_the_cells(devices: tuple[str, ...] | None, cells: list[str]) -> None:
    verdict = decide(contract(CUDA), evidence(*HELD, ON_CUDA), Selection(devices=devices))
    assert [cell.device for cell in verdict.cells] == cells


def test_a_named_device_runs_and_its_record_is_not_asked() -> None:
    found = evidence(ON_CUDA, recorded=(recorded(Ending.REFUTED),))
    assert said(decide(contract(CUDA), found, Selection(devices=("cuda",)))) == SURVIVED


def test_a_named_device_that_is_absent_is_undecided() -> None:
    found = evidence(recorded=(recorded(),), absent={"cuda": "torch sees no CUDA device"})
    verdict = decide(contract(CUDA), found, Selection(devices=("cuda",)))
    assert said(verdict) == (Status.UNDECIDED, Outcome.UNDECIDED, "torch sees no CUDA device")
    assert verdict.claimed == frozenset()


def test_a_live_refutation_on_a_device_always_fails() -> None:
    found = evidence(*HELD, trial(Ending.REFUTED, device="cuda", counterexample=FOUND))
    assert decide(contract(CUDA), found, Selection(devices=("cpu", "cuda"))).status is Status.FAIL


def test_a_selection_is_partial_and_counts_only_itself() -> None:
    verdict = decide(contract(*BOTH), two(Ending.HELD, Ending.REFUTED), Selection(falsifiers=frozenset({"F"})))
    assert (verdict.status, verdict.partial, verdict.total("cpu")) == (Status.PASS, True, 1)
    assert verdict.count("cpu", Outcome.SURVIVED, Outcome.PROVED) == 1


def test_the_verdict_is_pure() -> None:
    arguments = (contract(*BOTH), two(Ending.HELD, Ending.SKIPPED), Selection())
    assert decide(*arguments) == decide(*arguments)


def report(*statuses: Status, findings: tuple[int, ...] = (), **fields: Any) -> Report:
    verdicts = tuple(ContractVerdict(contract=contract(), status=status, cells=()) for status in statuses)
    found = tuple(Finding(code="PV001", severity=SEVERITIES[code], where=HERE, message="m") for code in findings)
    return Report(
        contracts=verdicts,
        findings=found,
        devices={},
        seed=0,
        seconds=0.0,
        started="",
        version="",
        python="",
        hypothesis="",
        **fields,
    )


CODE_OF = {Status.PASS: 0, Status.UNDECIDED: 2, Status.FAIL: 1}
ORDER = [3, 1, 2, 0]


@pytest.mark.parametrize("first", list(Status))
@pytest.mark.parametrize("second", list(Status))
@pytest.mark.parametrize("finding", [None, *SEVERITIES])
def test_the_exit_code_is_the_worst_of_all(first: Status, second: Status, finding: int | None) -> None:
    codes = [CODE_OF[first], CODE_OF[second], *([finding] if finding else [])]
    found = () if finding is None else (finding,)
    assert report(first, second, findings=found).exit_code == min(codes, key=ORDER.index)


@pytest.mark.parametrize(("findings", "code"), [((), 2), ((0,), 2), ((1,), 1), ((3,), 3), ((0, 1, 3), 3)])
def test_without_a_contract_nothing_passes(findings: tuple[int, ...], code: int) -> None:
    assert report(findings=findings).exit_code == code


def test_an_interruption_is_its_own_exit_code() -> None:
    assert report(Status.PASS, interrupted=True).exit_code == 130
