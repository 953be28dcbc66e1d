"""Hand-made reports of one equation falsifier, which killed some of the mutants of its equation."""

from dataclasses import replace
from pathlib import Path

from pv.contract.claims import Equation, Falsifier
from pv.contract.finding import Location
from pv.contract.model import Contract
from pv.contract.names import Target
from pv.results.outcome import Selection
from pv.results.trial import EquationMutant, EquationMutants, Evidence, Trial, TrialStatus
from pv.results.verdict import Report, decide

MISSED = EquationMutant(equation="double", line=1, column=5, before="2 * n", after="2 + n")
CLAIM = Falsifier(
    id="F-E",
    rule="r",
    prediction="p",
    if_fails="i",
    location=Location(Path("c.yaml"), 9, 3),
    test=None,
    equation="double",
)


def equation(**executable: object) -> Equation:
    def place(line: int, column: int) -> Location:
        return Location(Path("c.yaml"), line + 2, column + 10)

    return Equation(
        name="double", location=Location(Path("c.yaml"), 3), executable=executable, texts={"expression": place}
    )


def report(mutants: EquationMutants | None, **executable: object) -> Report:
    held = Trial(falsifier="F-E", device="cpu", status=TrialStatus.HELD, valid=100, reached=frozenset({"a"}))
    contract = Contract(
        id="c",
        version="1.0.0",
        description="d",
        location=Location(Path("c.yaml")),
        strict=True,
        subject=Target("tiny"),
        equations=(equation(**executable),),
        falsifiers=(CLAIM,),
    )
    evidence = Evidence(trials={("F-E", "cpu"): replace(held, equation_mutants=mutants)})
    return Report(
        contracts=(decide(contract, evidence, Selection()),),
        findings=(),
        devices={},
        seed=0,
        seconds=1.0,
        started="2026-11-20T12:00:00+00:00",
        version="0.1.0",
        python="3.11.7",
        hypothesis="6.0",
    )
