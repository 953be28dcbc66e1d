"""Hand-made reports: one falsifier for each kind of outcome, one equation, and many falsifiers."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from pv.contract.finding import Finding, Location, Severity
from pv.contract.model import Edit, Equation, Falsifier, Mutant, Target
from pv.engines.trial import Counterexample, EquationMutant, EquationMutants, Output, Trial, TrialStatus
from pv.results.evidence import DeviceInfo
from pv.results.outcome import Selection
from pv.results.verdict import Report, decide
from tests.results.handmade import contract, evidence, falsifier, recorded, trial

NASTY = "a\0b\x1b[31mred\x07\ud800 <b>&amp;]]> | `x` *y* [z](u)\u2028```\n::error::no\n````\nend"
FILE = Location(Path("c.yaml"))


def mutant(id_: str, line: int) -> Mutant:
    change = Edit(function=Target("tiny", "double"), find="2", replace="3")
    return Mutant(id=id_, fault="three", change=change, location=replace(FILE, line=line, column=3))


def claim(id_: str, text: str, line: int, **fields: Any) -> Falsifier:
    words = {"rule": f"rule {text}", "prediction": f"prediction {text}", "if_fails": f"cause {text}"}
    return falsifier(id_, location=replace(FILE, line=line, column=3), **words, **fields)


def trial_of(id_: str, status: TrialStatus, **fields: Any) -> Trial:
    return trial(status, id_, **{"valid": 0, "seed": 7} | fields)


def counterexample(text: str) -> Counterexample:
    return Counterexample(
        arguments={"number": 1, "values": {"$tensor": {"dtype": "float32", "shape": [1], "data": [{"$float": "nan"}]}}},
        exact=True,
        error=f"AssertionError: {text}",
        frames=(f"falsifiers/falsify_tiny.py:9 in falsify_double: {text}",),
        shrunk=True,
        blob="AAE=",
        hypothesis="6.0",
    )


def report(text: str) -> Report:
    """Return a report with one falsifier for each kind of outcome, and `text` in every field that a user can fill."""
    names = ("HELD", "REFUTED", "BROKEN", "BARREN", "SKIPPED")
    claims = [claim(f"F-{name}", text, line, kills=("tripled",)) for line, name in enumerate(names, start=5)]
    claims[0] = replace(claims[0], devices=("cpu", "cuda"))
    contract_ = contract(*claims, description=text, location=FILE, mutants=(mutant("tripled", 20),))
    printed = text.replace("\ud800", "")  # a worker's output is decoded, so it has no half surrogates
    trials = (
        trial_of("F-HELD", TrialStatus.HELD, valid=100, invalid=3, seconds=0.25),
        trial_of("F-HELD", TrialStatus.REFUTED, mutant="tripled", counterexample=counterexample(text)),
        trial_of("F-REFUTED", TrialStatus.REFUTED, valid=12, counterexample=counterexample(text)),
        trial_of("F-BROKEN", TrialStatus.ERROR, detail=text, output=Output(head=printed, size=len(printed.encode()))),
        trial_of("F-BARREN", TrialStatus.NO_EXAMPLES, detail=text),
        trial_of("F-SKIPPED", TrialStatus.SKIPPED, detail=text),
    )
    locations = Location(Path("d.yaml"), 2, 1), Location(Path("e.yaml"), 3, 4)
    notice = Finding(code="PV201", severity=Severity.NOTICE, location=locations[0], message=text)
    refusal = Finding(code="PV002", severity=Severity.REFUSAL, location=locations[1], message=text, hint=text)
    return Report(
        contracts=(decide(contract_, evidence(*trials, recorded=(recorded(id_="F-HELD"),)), Selection()),),
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
"""Reports with a harmless text, and with a text that tries to break every format."""


REPORTS = {
    "plain": PLAIN,
    "hostile": HOSTILE,
    "nothing": replace(PLAIN, contracts=(), findings=()),
    "interrupted": replace(PLAIN, interrupted=True),
}


@cache
def report_of_many(number: int) -> Report:
    """Return a report of many falsifiers, each with a mutant: a third falsified, vacuous and held."""
    claims = [claim(f"F-{n}", NASTY, n + 1, kills=(f"m-{n}",)) for n in range(number)]
    trials = []
    for n in range(number):
        if n % 3 == 0:
            trials.append(trial_of(f"F-{n}", TrialStatus.REFUTED, valid=3, counterexample=counterexample(NASTY)))
        else:
            trials.append(trial_of(f"F-{n}", TrialStatus.HELD, valid=100))
            judged = TrialStatus.HELD if n % 3 == 1 else TrialStatus.REFUTED
            trials.append(trial_of(f"F-{n}", judged, mutant=f"m-{n}"))
    contract_ = contract(*claims, location=FILE, mutants=tuple(mutant(f"m-{n}", n + 1) for n in range(number)))
    return replace(PLAIN, contracts=(decide(contract_, evidence(*trials), Selection()),), findings=())


MISSED = EquationMutant(equation="double", line=1, column=5, before="2 * n", after="2 + n")


def report_of_equation(mutants: EquationMutants | None, **executable: object) -> Report:
    """Return a report of one equation falsifier, which killed some of the mutants of its equation."""

    def place(line: int, column: int) -> Location:
        return replace(FILE, line=line + 2, column=column + 10)

    texts = {"expression": place}
    equation = Equation(name="double", location=replace(FILE, line=3), executable=executable, texts=texts)
    claims = falsifier("F-E", kills=(), test=None, equation="double")
    contract_ = contract(claims, mutants=(), subject=Target("tiny"), equations=(equation,))
    held = trial(id_="F-E", equation_mutants=mutants)
    return replace(PLAIN, contracts=(decide(contract_, evidence(held), Selection()),), findings=(), notes=())
