"""Changes of a contract's subject, equations or runs are reported with the old and the new text."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pv.contract.model import Binding, Contract, Equation, OtherSubject, Run, Target
from pv.report import render
from pv.results.definitions import definitions, find_changes
from pv.results.outcome import Selection
from pv.results.saved import report as saved
from pv.results.verdict import decide
from tests.report.handmade import PLAIN
from tests.results.handmade import HELD, HERE, contract, evidence, falsifier

KEYS = {
    "domain": {"x": "real 0..2", "a": "$small"},
    "requires": "a > 0",
    "expression": "x * a",
    "implemented_by": "scaled(x, a)",
    "checks": ["repeatable", "finite"],
    "invariants": ["scaled(x, a) >= 0"],
}
RUN = Run(name="whole", callable=Binding("f.py", "go"), location=HERE, arguments={"steps": 5})
PEER = OtherSubject(name="peer", target=Target("peers", "tiny"), location=HERE)
BASE = replace(
    contract(falsifier()),
    subject=Target("tiny"),
    subjects=(PEER,),
    domains={"small": "real 0..1"},
    equations=(Equation(name="scaled", location=HERE, executable=KEYS),),
    runs=(RUN,),
)


def without(*keys: str, **keys_of_equation: object) -> Contract:
    executable = {key: value for key, value in (KEYS | keys_of_equation).items() if key not in keys}
    return replace(BASE, equations=(Equation(name="scaled", location=HERE, executable=executable),))


def changes(old: Contract, new: Contract) -> list[tuple[str, str]]:
    return [(claim, text) for claim, _, text in find_changes(definitions(old), definitions(new))]


NARROW = KEYS["domain"] | {"x": "int 0..1"}
WORSE, SHORT = replace(PEER, target=Target("worse")), replace(RUN, arguments={"steps": 1})
CHANGES = [
    (without(domain=NARROW), "domain of equation scaled changed: 'x int 0..1', was 'x real 0..2'"),
    (without("checks"), "checks of equation scaled changed: none, was 'repeatable, finite'"),
    (without(checks=["finite"]), "checks of equation scaled changed: 'finite', was 'repeatable, finite'"),
    (without("domain"), "domain of equation scaled changed: none, was 'x real 0..2; a real 0..1'"),
    (without(requires="a > 1"), "requires of equation scaled changed: 'a > 1', was 'a > 0'"),
    (without(expression="x" * 200), f"expression of equation scaled changed: {'x' * 117 + '...'!r}, was 'x * a'"),
    (replace(BASE, subjects=(WORSE,)), "target of subject peer changed: 'worse', was 'peers:tiny'"),
    (replace(BASE, runs=(replace(RUN, small={"n": 1}),)), "small of run whole changed: 'n 1', was none"),
    (replace(BASE, runs=(SHORT,)), "arguments of run whole changed: 'steps 1', was 'steps 5'"),
]


@pytest.mark.parametrize(("new", "text"), CHANGES, ids=[text[:50] for _, text in CHANGES])
def test_changed_definition_is_reported_with_both_texts(new: Contract, text: str) -> None:
    assert changes(BASE, new) == [("", text)]


SAME = [
    without(domain={"a": "real 0..1", "x": "real  0..2"}),
    without(requires="( a>0 )", expression="x*a", implemented_by="scaled(x,  a)"),
    without(checks=["repeatable", "other", "finite"]),
    without("requires", domain=KEYS["domain"] | {"x": "real 0..3"}),
    replace(BASE, constants={"scale": 0}, equations=without(requires="a > $scale").equations),
    replace(BASE, falsifiers=(falsifier(options={"faults": ("m", "n"), "least": float("nan")}),)),
]


@pytest.mark.parametrize("new", SAME)
def test_layout_and_python_types_are_not_compared(new: Contract) -> None:
    old = BASE if new.falsifiers == BASE.falsifiers else new
    assert list(find_changes(json.loads(json.dumps(definitions(old))), definitions(new))) == []
    assert list(find_changes(definitions(old), definitions(new))) == []


def test_arguments_of_a_run_are_compared_with_their_layout() -> None:
    spaced = (replace(RUN, arguments={"steps": "a  b"}), replace(RUN, arguments={"steps": "a b"}))
    assert len(changes(*(replace(BASE, runs=(run,)) for run in spaced))) == 1


def test_changed_subject_and_keys_are_reported_with_the_claim() -> None:
    moved = replace(BASE, falsifiers=(falsifier(subject=Target("worse"), options={"depth": 2}),))
    least = (replace(BASE, falsifiers=(falsifier(options={"least": number}),)) for number in (1, float("nan")))
    assert changes(*least) == [("F", "least changed: 'nan', was '1'")]
    fewer, more = (replace(BASE, falsifiers=(falsifier(options={"faults": [*names]}),)) for names in ("m", "mn"))
    assert changes(fewer, more) == [] != changes(more, fewer)
    assert changes(BASE, moved) == [("F", "subject changed: 'worse', was none"), ("F", "depth changed: '2', was none")]


def test_definitions_are_saved_and_an_older_report_has_none(tmp_path: Path) -> None:
    verdict = decide(BASE, evidence(*HELD), Selection())
    path = tmp_path / "r.json"
    path.write_text(render(replace(PLAIN, contracts=(verdict,), findings=()), "json"))
    assert saved.load(path).contracts[0].definitions == definitions(BASE)
    older: dict[str, Any] = json.loads(path.read_text())
    del older["contracts"][0]["definitions"]
    path.write_text(json.dumps(older))
    assert saved.load(path).contracts[0].definitions is None
