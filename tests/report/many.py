"""A report of one contract with many falsifiers, each with a mutant: a third falsified, vacuous and held."""

from dataclasses import replace
from pathlib import Path

from pv.contract.finding import Location
from pv.contract.model import Contract
from pv.contract.mutants import Edit, Mutant
from pv.contract.names import Target
from pv.results.outcome import Selection
from pv.results.trial import Evidence, Trial, TrialStatus
from pv.results.verdict import Report, decide
from tests.report.handmade import NASTY, PLAIN, falsifier, found, trial


def many(number: int) -> Report:
    claims = [replace(falsifier(f"F-{n}", NASTY, n + 1), kills=(f"m-{n}",)) for n in range(number)]
    contract = Contract(
        id="c",
        version="1.0.0",
        description="",
        location=Location(Path("c.yaml")),
        strict=True,
        falsifiers=tuple(claims),
        mutants=tuple(_mutant(n) for n in range(number)),
    )
    evidence = Evidence(
        trials={(f"F-{n}", "cpu"): _trial(n) for n in range(number)},
        mutants={(f"F-{n}", f"m-{n}"): _judged(n) for n in range(number) if n % 3},
    )
    return replace(PLAIN, contracts=(decide(contract, evidence, Selection()),), findings=())


def _mutant(n: int) -> Mutant:
    change = Edit(function=Target("tiny", "double"), find="2", replace="3")
    return Mutant(id=f"m-{n}", fault="three", change=change, location=Location(Path("c.yaml"), n + 1, 3))


def _trial(n: int) -> Trial:
    if n % 3 == 0:
        return trial(f"F-{n}", TrialStatus.REFUTED, valid=3, counterexample=found(NASTY))
    return trial(f"F-{n}", TrialStatus.HELD, valid=100)


def _judged(n: int) -> Trial:
    return trial(f"F-{n}", TrialStatus.HELD if n % 3 == 1 else TrialStatus.REFUTED, mutant=f"m-{n}")
