"""Two reports with a falsifier of each kind of end: one plainly worded, one with the worst that code can say."""

from pathlib import Path
from typing import Any

from pv.contract.claims import Falsifier
from pv.contract.finding import Finding, Location, Severity
from pv.contract.model import Contract
from pv.contract.mutants import Edit, Mutant
from pv.contract.names import Binding, Target
from pv.results.outcome import Selection
from pv.results.trial import Counterexample, DeviceInfo, Evidence, Output, Recorded, Trial, TrialStatus
from pv.results.verdict import Report, decide

NASTY = "a\0b\x1b[31mred\x07\ud800 <b>&amp;]]> | `x` *y* [z](u)\u2028```\n::error::no\n````\nend"
MUTANT = Mutant(
    id="tripled",
    fault="three",
    change=Edit(function=Target("tiny", "double"), find="2", replace="3"),
    location=Location(Path("c.yaml"), 20, 3),
)


def falsifier(id_: str, text: str, line: int, devices: tuple[str, ...] = ("cpu",)) -> Falsifier:
    return Falsifier(
        id=id_,
        rule=f"rule {text}",
        prediction=f"prediction {text}",
        if_fails=f"cause {text}",
        location=Location(Path("c.yaml"), line, 3),
        test=Binding("falsifiers/falsify_tiny.py", "falsify_double"),
        devices=devices,
        kills=("tripled",),
    )


def trial(id_: str, status: TrialStatus, **fields: Any) -> Trial:
    return Trial(falsifier=id_, device="cpu", status=status, reached=frozenset({"tiny:double"}), seed=7, **fields)


def found(text: str) -> Counterexample:
    return Counterexample(
        arguments={"number": 1, "values": {"$tensor": {"dtype": "float32", "shape": [1], "data": [{"$float": "nan"}]}}},
        exact=True,
        error=f"AssertionError: {text}",
        frames=(f"falsifiers/falsify_tiny.py:9 in falsify_double: {text}",),
        shrunk=True,
        blob="AAE=",
        hypothesis="6.0",
    )


def recorded(id_: str) -> Recorded:
    return Recorded(
        falsifier=id_,
        device="cuda",
        status=TrialStatus.HELD,
        valid=100,
        detail="",
        when="2026-11-20",
        hardware=DeviceInfo(name="NVIDIA H200", torch="2.11.0"),
        commit="abc",
    )


def report(text: str) -> Report:
    """One falsifier of each kind of end, with `text` in every field that a user's code or contract fills."""
    claims = (
        falsifier("F-HELD", text, 5, ("cpu", "cuda")),
        falsifier("F-REFUTED", text, 6),
        falsifier("F-BROKEN", text, 7),
        falsifier("F-BARREN", text, 8),
        falsifier("F-SKIPPED", text, 9),
    )
    contract = Contract(
        id="c",
        version="1.0.0",
        description=text,
        location=Location(Path("c.yaml")),
        strict=True,
        falsifiers=claims,
        mutants=(MUTANT,),
    )
    printed = text.replace("\ud800", "")  # a worker's output is decoded, so it has no half surrogates
    trials = (
        trial("F-HELD", TrialStatus.HELD, valid=100, invalid=3, seconds=0.25),
        trial("F-REFUTED", TrialStatus.REFUTED, valid=12, counterexample=found(text)),
        trial("F-BROKEN", TrialStatus.ERROR, detail=text, output=Output(head=printed, size=len(printed.encode()))),
        trial("F-BARREN", TrialStatus.NO_EXAMPLES, detail=text),
        trial("F-SKIPPED", TrialStatus.SKIPPED, detail=text),
    )
    evidence = Evidence(
        trials={(t.falsifier, t.device): t for t in trials},
        mutants={
            ("F-HELD", "tripled"): trial("F-HELD", TrialStatus.REFUTED, mutant="tripled", counterexample=found(text))
        },
        recorded={("F-HELD", "cuda"): recorded("F-HELD")},
    )
    notice = Finding(code="PV201", severity=Severity.NOTICE, location=Location(Path("d.yaml"), 2, 1), message=text)
    refusal = Finding(
        code="PV002", severity=Severity.REFUSAL, location=Location(Path("e.yaml"), 3, 4), message=text, hint=text
    )
    return Report(
        contracts=(decide(contract, evidence, Selection()),),
        findings=(notice, refusal),
        devices={"cpu": DeviceInfo(torch="2.13.0")},
        seed=0,
        seconds=1.25,
        started="2026-11-20T12:00:00+00:00",
        version="0.1.0",
        python="3.11.7",
        hypothesis="6.0",
        notes=(text,),
    )


PLAIN, HOSTILE = report("plainly said"), report(NASTY)
