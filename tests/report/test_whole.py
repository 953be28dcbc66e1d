"""Whole reports, compared with the files in `expected/`: what each format shows of every kind of result.

`python -m tests.report.test_whole` writes these files anew; review the difference.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pv.contract.finding import Finding, Location, Severity
from pv.contract.model import Binding, Equation, Gate, Harness
from pv.engines.trial import Code, EquationMutants, Output, TrialStatus
from pv.report import matrix, render
from pv.results.comparison import Column, Comparison
from pv.results.evidence import PROOFS, DeviceInfo, MutationScore, RunTrace
from pv.results.outcome import Selection
from pv.results.saved.changes import BaseComparison, Change, ChangeKind, FailOn
from pv.results.steps import ObservedStep
from pv.results.verdict import ContractVerdict, Report, Shard, Status, decide
from tests.report.handmade import FILE, MISSED, claim, counterexample, mutant, trial_of
from tests.results.handmade import contract, evidence, recorded

EXPECTED = Path(__file__).parent / "expected"
ERRORS = tuple(
    Finding(code="PV101", severity=severity, location=replace(FILE, line=2, column=1), message="m", hint="h")
    for severity in (Severity.ERROR, Severity.NOTICE)
)
CLAIMS: dict[str, dict[str, Any]] = {
    "F-REFUTED": {"devices": ("cpu", "cuda")},
    "F-RAISED": {},
    "F-RAISED-TOO": {},
    "F-STOPPED": {},
    "F-BROKEN": {},
    "F-UNJUDGED": {},
    "F-SURVIVED": {"kills": ("m", "n")},
    "F-DRAWN": {"kills": ()},
    "F-EQUATION": {"kills": (), "test": None, "equation": "double"},
    "F-SKIPPED": {},
    "F-SKIPPED-TOO": {},
    "F-UNCLAIMED": {},
    "F-FEW": {},
    "F-WAIVED": {"kills": ("m", "waived")},
    "F-RAISED-ELSEWHERE": {},
}


def validated() -> Report:
    """Return a report of a validation with every kind of result, of three contracts."""
    at = replace(FILE, line=3, column=1)
    box: dict[str, Any] = {"rule": "r", "if_fails": "i", "test": Binding("f.py", "p"), "bounds": {"n": "0..9"}}
    ids = ("H-PROVED", "H-RECORDED", "H-UNPROVED")
    boxes = tuple(Harness(id=id_, location=replace(at, line=40 + n), **box) for n, id_ in enumerate(ids))
    raised = {
        "counterexample": replace(counterexample("e"), error="KeyError: 'x'", blob="", frames=("tiny.py:3 in double",))
    }
    refuted = replace(
        counterexample("2 == 3"), call="double(1)", right="2 * n", code=(Code("tiny.py", 4, 4, "double"),)
    )
    under_way = replace(
        counterexample(""), error="", arguments={"n": 7}, exact=False, blob="", frames=("tiny.py:3 in double",)
    )
    survivors = EquationMutants(killed=0, total=2, survivors=(MISSED,))
    held, killed = TrialStatus.HELD, TrialStatus.REFUTED
    trials = [
        trial_of("F-REFUTED", TrialStatus.REFUTED, valid=12, counterexample=refuted),
        trial_of("F-REFUTED", TrialStatus.REFUTED, device="cuda", valid=12, counterexample=replace(refuted, blob="")),
        *(trial_of(id_, TrialStatus.RAISED, **raised) for id_ in ("F-RAISED", "F-RAISED-TOO")),
        trial_of(
            "F-RAISED-ELSEWHERE",
            TrialStatus.RAISED,
            counterexample=replace(raised["counterexample"], frames=("tiny.py:9 in halve",)),
        ),
        trial_of("F-STOPPED", TrialStatus.TIMEOUT, detail="limit of 60 s", seconds=61.0, current_arguments=under_way),
        trial_of("F-BROKEN", TrialStatus.ERROR, detail="ImportError: x", output=Output(head=" said\n", size=6)),
        *(trial_of(id_, held, valid=100, asked=100) for id_ in ("F-UNJUDGED", "F-SURVIVED", "F-DRAWN", "F-WAIVED")),
        trial_of("F-EQUATION", held, valid=100, asked=100, equation_mutants=survivors),
        trial_of("F-FEW", held, valid=1, asked=200),
        *(trial_of(id_, TrialStatus.SKIPPED, detail="no network") for id_ in ("F-SKIPPED", "F-SKIPPED-TOO")),
        trial_of("F-UNCLAIMED", TrialStatus.NOT_CLAIMED, detail="it has no state"),
        trial_of("H-PROVED", held, detail="10 of 10 cases", cpu_s=50.0, valid=10),
        trial_of("H-RECORDED", TrialStatus.TIMEOUT, detail="no answer in 60 s"),
        trial_of("H-UNPROVED", TrialStatus.INCONCLUSIVE, detail="a path is too long"),
        trial_of("F-UNJUDGED", TrialStatus.CRASHED, mutant="m", detail="SIGSEGV"),
        trial_of("F-SURVIVED", held, mutant="m", mutant_reached=True),
        trial_of("F-SURVIVED", held, mutant="n"),
        trial_of("F-DRAWN", held, mutant="tiny.double:1"),
        trial_of("F-FEW", killed, mutant="m"),
        *(trial_of(id_, killed, mutant="auto") for id_ in ids),
        trial_of("F-WAIVED", killed, mutant="m"),
        trial_of("F-WAIVED", held, mutant="waived"),
    ]
    claims = [claim(id_, "stated", 5 + n, **{"kills": ("m",), **keys}) for n, (id_, keys) in enumerate(CLAIMS.items())]
    equation = Equation(
        name="double",
        location=at,
        executable={"tolerance": {"relative": 0.5, "why": "8 bits"}},
        texts={"expression": lambda line, column: replace(at, line=line + 3, column=column)},
    )
    main = contract(
        *claims,
        location=FILE,
        mutants=tuple(mutant(id_, 60 + n) for n, id_ in enumerate(("m", "n", "waived"))),
        harnesses=boxes,
        equations=(replace(equation, name="other", texts={"expression": lambda *_: at}), equation),
        gate=Gate(mutants=frozenset("mn"), mutation_score=0.9),
    )
    full_evidence = replace(
        evidence(*trials),
        recorded={("H-RECORDED", PROOFS): recorded(id_="H-RECORDED", detail="10 of 10 cases")},
        drawn_mutants={"F-DRAWN": 1, **dict.fromkeys(ids, 1)},
        score=MutationScore(total=9, judged=9, killed=4, sampled=3, changed=("tiny.py",), when="2026-11-20"),
        runs=(
            RunTrace(run="whole", device="cpu", events=(("step", 3), ("save", 1)), losses=((1.0, 0.5), (2.0, 0.25))),
        ),
    )
    linted = contract(claim("F-LINTED", "linted", 1), location=FILE, id="linted")
    prose = contract(*(claim(id_, "prose", 1, test=None) for id_ in ("F-ONE", "F-TWO")), location=FILE, id="prose")
    both = {"devices": ("cpu", "cuda"), "kills": ()}
    cuda = contract(*(claim(id_, "cuda", 1, **both) for id_ in ("F-CUDA", "F-STALE")), location=FILE, id="recorded")
    kept = (recorded(id_="F-CUDA"), recorded(id_="F-STALE", changed=("tiny.py",)))
    fine = evidence(*(trial_of(id_, held, valid=5, asked=5) for id_ in ("F-CUDA", "F-STALE")), recorded=kept)
    absent = ContractVerdict(contract=contract(id="absent"), status=Status.UNDECIDED, results=(), absent="in no report")
    verdicts = (
        decide(main, full_evidence, Selection(devices=("cpu", "cuda"))),
        decide(linted, evidence(), Selection(), ERRORS),
        decide(prose, evidence(), Selection()),
        absent,
        replace(decide(cuda, fine, Selection(mutants=False, examples=5)), subject="theirs:Loss"),
    )
    return Report(
        contracts=verdicts,
        findings=ERRORS,
        devices={"cpu": DeviceInfo(torch="2.13.0"), "cuda": DeviceInfo(name="NVIDIA H200", torch="2.13.0")},
        seconds=1.25,
        started="2026-11-20T12:00:00+00:00",
        version="0.1.0",
        python="3.11.7",
        hypothesis="6.0",
        notes=("a note",),
        unmatched=("--only X",),
        commit="abc+",
        shards=(Shard(1, 3),),
        missing=(Shard(2, 3), Shard(3, 3)),
    )


def compared() -> BaseComparison:
    place = replace(FILE, line=9, column=3)
    removal = {"claim": "F-GONE", "name": "F-GONE", "location": place, "removed": True}
    changes = (
        Change(kind=ChangeKind.WEAKER, contract="c", text="removed: r", **removal),
        Change(kind=ChangeKind.LESS, contract="c", text="mutation score 80 %, was 90 %"),
        Change(kind=ChangeKind.ADDED, contract="d", text="contract with 1 claims"),
    )
    return BaseComparison(changes=changes, fail_on=FailOn.WEAKER, notes=("the base's d.yaml is not compared: m",))


def observed() -> Report:
    """Return a report of a run of a script: a wrong claim, one that held, one that was not reached, and its steps."""
    names = ("TR-WRONG", "TR-HELD", "TR-UNREACHED")
    place = Location(Path("lib/pv/suites/training_run/training-run.yaml"), 5, 3)
    fields: dict[str, Any] = {"test": None, "location": place}
    claims = [replace(claim(id_, "run", 5, kills=()), options={"observed": id_}, **fields) for id_ in names]
    code = (Code("train.py", 4, 4, "main"), Code("data.py", 2, 9, "load"), Code("loss.py", 7, 9, "mean"))
    wrong = replace(
        counterexample("seen"), error="the loss is 2.0", right="divide by 2", blob="", arguments={}, code=code
    )
    trials = [
        trial_of("TR-WRONG", TrialStatus.REFUTED, counterexample=replace(wrong, frames=("train.py:4 in main",))),
        trial_of("TR-HELD", TrialStatus.HELD, valid=3),
        trial_of("TR-UNREACHED", TrialStatus.NOT_CLAIMED, detail="no checkpoint was saved"),
    ]
    unknown: dict[str, Any] = dict.fromkeys(ObservedStep.__slots__)
    first = {"rank": 0, "optimizer": 1, "step": 1, "micro_batches": 2}
    values = {"examples": 8, "scored": 6.0, "loss": 0.5, "weight": 1.0, "lowest_weight": 0.125, "highest_weight": 0.25}
    values |= {"norm": 1.5, "rate": 0.001, "limit": 1.0, "scale": 1024.0}
    steps = [ObservedStep(**{**unknown, **first, **values}), ObservedStep(**{**unknown, **first, "step": 2})]
    steps += [replace(steps[0], step=3, loss=0.25), replace(steps[0], step=5, loss=0.125, norm=None)]
    verdict = decide(contract(*claims, mutants=(), id="training-run"), evidence(*trials), Selection())
    verdict = replace(verdict, repeat=("pv check", "-- python train.py"))
    steps.append(replace(steps[0], optimizer=2, lowest_weight=0.25))
    versions = {"version": "0.1.0", "python": "3.11.7", "hypothesis": "6.0"}
    return Report(contracts=(verdict,), steps=tuple(steps), closing="1 wrong of 3 claims", **versions)


def several() -> Comparison:
    """Return a comparison of a contract on five subjects."""
    ends = {
        "own": (TrialStatus.HELD, TrialStatus.HELD),
        "wrong": (TrialStatus.REFUTED, TrialStatus.ERROR),
        "modest": (TrialStatus.HELD, TrialStatus.NOT_CLAIMED),
        "untried": (TrialStatus.SKIPPED, TrialStatus.SKIPPED),
    }
    example = contract(*(claim(id_, "stated", 5, kills=()) for id_ in ("F-FIRST", "F-SECOND")), location=FILE)
    columns = []
    for name, statuses in ends.items():
        trials = [trial_of(f.id, status, detail="why") for f, status in zip(example.falsifiers, statuses, strict=True)]
        trials = [
            replace(t, counterexample=counterexample("2 == 3")) if t.status is TrialStatus.REFUTED else t
            for t in trials
        ]
        verdict = decide(example, evidence(*trials), Selection(mutants=False))
        verdict = replace(verdict, repeat=("pv validate", f"--subject c={name}"))
        report = replace(validated(), contracts=(verdict,), findings=())
        columns.append(Column(name=name, target=f"{name}s:Loss", own=name == "own", package="p 1.0", report=report))
    columns.append(Column(name="gone", target="gone", package="p", missing="p is not installed"))
    return Comparison(contract=example, columns=tuple(columns))


BRIEF = ("F-REFUTED", "F-RAISED", "F-RAISED-TOO", "F-EQUATION", "F-SKIPPED", "F-WAIVED", "H-PROVED")


def shown(name: str, form: str) -> str:
    if form == "color":
        return render(observed(), "text", width=44, color=True, verbose=True).replace("\x1b", "ESC")
    if name == "compared":
        return matrix.render(several(), form, width=60)
    if name == "observed":
        return lines(render(observed(), form, width=300))
    report = validated()
    if form != "text":
        first, *rest = report.contracts
        brief = tuple(result for result in first.results if result.falsifier.id in BRIEF and result.device == "cpu")
        report = replace(report, contracts=(replace(first, results=brief), *rest))
    return lines(render(report, form, width=300, verbose=True, compared=compared()))


def lines(text: str) -> str:
    """Return the text of a report; SARIF as one line for each rule and result, a page as its body in blocks."""
    if text.startswith("{"):
        (run,) = json.loads(text)["runs"]
        parts = [*run["tool"]["driver"].pop("rules"), *run.pop("results"), run]
        return "".join(f"{json.dumps(part)}\n" for part in parts)
    if not text.startswith("<!doctype html>"):
        return text
    body = re.sub("<script>.*?</script>", "", text[text.index("<body>") :], flags=re.DOTALL)
    return re.sub("(?=<(tr|h[1-6]|ul|figure|section|dl|details|search|footer)[ >])", "\n", body)


CASES = [(name, form) for name in ("validated", "observed") for form in ("text", "markdown", "github", "html")]
CASES += [("observed", "color"), ("observed", "junit"), ("observed", "sarif")]
CASES += [("validated", "sarif"), ("compared", "text"), ("compared", "markdown")]


@pytest.mark.parametrize(("name", "form"), CASES)
def test_a_whole_report_is_as_expected(name: str, form: str) -> None:
    assert shown(name, form) == (EXPECTED / f"{name}.{form}").read_text(encoding="utf-8")


def test_less_is_shown_without_verbose() -> None:
    terse, verbose = (render(validated(), "text", width=300, verbose=flag).splitlines() for flag in (False, True))
    assert [line for line in terse if line not in verbose] == []
    assert [line.split(":")[0].strip() for line in verbose if line not in terse] == [
        *("c 1.0.0", "linted 1.0.0", "prose 1.0.0", "absent 1.0.0", "recorded 1.0.0 on theirs"),
        *("PROVED     H-PROVED on cpu", "NOT CLAIMED F-UNCLAIMED on cpu", "note"),
    ]


if __name__ == "__main__":
    for case in CASES:
        (EXPECTED / ".".join(case)).write_text(shown(*case), encoding="utf-8")
