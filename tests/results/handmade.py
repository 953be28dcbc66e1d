"""Hand-made claims and evidence, and the verdicts that follow from them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pv.contract.finding import Location
from pv.contract.model import Binding, Contract, Edit, Falsifier, Gate, Mutant, Target
from pv.engines.trial import Counterexample, Trial, TrialStatus
from pv.results.evidence import DeviceInfo, Evidence, Recorded
from pv.results.outcome import Selection
from pv.results.verdict import ContractVerdict, decide

HERE = Location(Path("contract.yaml"), 3, 1)
FOUND = Counterexample(arguments={"n": 1}, exact=True, error="AssertionError: 2 == 3")
REACHED = frozenset({"tiny:double"})


def falsifier(id_: str = "F", *, kills: tuple[str, ...] = ("m",), **fields: Any) -> Falsifier:
    test = Binding("falsifiers/falsify_tiny.py", "falsify_double")
    usual = {"rule": "r", "prediction": "p", "if_fails": "i", "location": HERE, "test": test}
    return Falsifier(**{"id": id_, "kills": kills, **usual, **fields})


def contract(*falsifiers: Falsifier, gate: Gate | None = None, **fields: Any) -> Contract:
    edit = Edit(function=Target("tiny", "double"), find="2", replace="3")
    mutants = tuple(Mutant(id=id_, fault="f", change=edit, location=HERE) for id_ in ("m", "n"))
    usual = {"id": "c", "version": "1.0.0", "description": "d", "location": HERE, "strict": True, "mutants": mutants}
    return Contract(**{**usual, "falsifiers": falsifiers, "gate": gate or Gate(), **fields})


def trial(status: TrialStatus = TrialStatus.HELD, id_: str = "F", device: str = "cpu", **fields: Any) -> Trial:
    fields = {"reached": REACHED, "valid": 100, **fields}
    return Trial(falsifier=id_, device=device, status=status, **fields)


def judged(status: TrialStatus = TrialStatus.REFUTED, id_: str = "F", mutant: str = "m", **fields: Any) -> Trial:
    return trial(status, id_, mutant=mutant, **fields)


def evidence(
    *trials: Trial, recorded: tuple[Recorded, ...] = (), unavailable: Mapping[str, str] | None = None
) -> Evidence:
    return Evidence(
        trials={(t.falsifier, t.device): t for t in trials if t.mutant is None},
        mutants={(t.falsifier, t.mutant): t for t in trials if t.mutant is not None},
        recorded={(r.falsifier, r.device): r for r in recorded},
        unavailable=unavailable or {},
    )


def recorded(status: TrialStatus = TrialStatus.HELD, id_: str = "F", **fields: Any) -> Recorded:
    return Recorded(
        falsifier=id_,
        device="cuda",
        status=status,
        valid=100,
        detail=fields.pop("detail", ""),
        when="2026-11-20",
        hardware=DeviceInfo(name="NVIDIA H200", torch="2.11.0"),
        commit="abc",
        **fields,
    )


def decided(
    *trials: Trial,
    claims: tuple[Falsifier, ...] = (falsifier(),),
    gate: Gate | None = None,
    recorded: tuple[Recorded, ...] = (),
    **options: Any,
) -> ContractVerdict:
    """Return the verdict on a contract of these claims; `options` are passed to `Selection`."""
    return decide(contract(*claims, gate=gate), evidence(*trials, recorded=recorded), Selection(**options))


HELD = (trial(), judged())
BOTH = (falsifier("F"), falsifier("G"))


def two(first: TrialStatus, second: TrialStatus, **options: Any) -> ContractVerdict:
    """Return the verdict on two claims whose trials have these statuses; `options` are passed to `decided`."""
    trials = [trial(status, id_, counterexample=FOUND) for status, id_ in ((first, "F"), (second, "G"))]
    return decided(*trials, judged(), judged(id_="G"), claims=BOTH, **options)
