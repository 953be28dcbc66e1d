"""Claims and evidence, made by hand, and what is decided of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pv.cells import Cell, Outcome
from pv.evidence import Counterexample, DeviceInfo, Ending, Evidence, Recorded, Trial
from pv.model import Binding, Contract, Edit, Falsifier, Gate, Mutant, Target, Where
from pv.verdict import ContractVerdict, Status

HERE = Where(Path("contract.yaml"), 3, 1)
FOUND = Counterexample(arguments={"n": 1}, exact=True, error="AssertionError: 2 == 3")
REACHED = frozenset({"tiny:double"})


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


def two(first: Ending, second: Ending) -> Evidence:
    return evidence(
        trial(first, "F", counterexample=FOUND), judged(), trial(second, "G", counterexample=FOUND), judged(id_="G")
    )


BOTH = (falsifier("F"), falsifier("G"))
