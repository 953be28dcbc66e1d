"""The schema and the model have the same shape, and a contract is built from what its file says."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from pv.contract.build import PROSE, RENAMED, build
from pv.contract.check import check, schema
from pv.contract.claims import Equation, Falsifier, Harness, Obligation, Run
from pv.contract.model import Contract, Gate, NotClaimed, OtherSubject
from pv.contract.mutants import Edit, Equivalent, Mutant, Swap
from pv.contract.names import Binding, Target
from pv.contract.strict_yaml import parse
from pv.engines.kinds import KINDS

SCHEMA = schema("contract")
PLACES = {"location", "places"}
METADATA = SCHEMA["properties"]["metadata"]["properties"]
GATE = SCHEMA["properties"]["qa_gate"]["properties"]
SUBJECT = SCHEMA["properties"]["subjects"]["items"]["properties"]
MUTANT = SCHEMA["properties"]["mutants"]["items"]["properties"]


def items(section: str) -> dict[str, Any]:
    found: dict[str, Any] = SCHEMA["properties"][section]["items"]["properties"]
    return found


def keys_of_kinds(section: str) -> set[str]:
    return {key for kind in KINDS.values() if kind.section == section for key in kind.keys}


# The class, the properties that fill it, and with the reason: the properties and the fields that have no partner.
SHAPES: list[tuple[type, dict[str, Any], set[str], set[str]]] = [
    (
        Contract,
        {**SCHEMA["properties"], **METADATA},
        # the format's name; gathered above; for people; read as `harnesses`
        {"schema", "metadata", "author", "created", "kani_harnesses"},
        {"strict", "known"},  # whether the file says `schema: pv/1`
    ),
    (Equation, SCHEMA["properties"]["equations"]["additionalProperties"]["properties"], set(), {"name", "texts"}),
    (Obligation, items("obligations"), set(), set()),
    (Falsifier, items("falsifiers"), keys_of_kinds("falsifiers"), {"options"}),
    # a proof is made once and on the CPU
    (Harness, SCHEMA["$defs"]["harnesses"]["items"]["properties"], set(), {"devices", "examples", "run", "options"}),
    (Run, items("runs"), set(), set()),
    (Mutant, MUTANT, {"edit", "swap"}, {"change"}),  # `change` is the one of the two that is there
    (Edit, MUTANT["edit"]["properties"], set(), {"occurrence"}),  # of automatic mutants
    (Swap, MUTANT["swap"]["properties"], set(), set()),
    (OtherSubject, SUBJECT, set(), set()),
    (NotClaimed, SUBJECT["not_claimed"]["items"]["properties"], set(), set()),
    (Equivalent, items("equivalents"), {"function", "find", "replace"}, {"change"}),  # an `Edit`
    (
        Gate,
        {**GATE, **GATE["require"]["properties"]},
        {"description", "require", "cuda"},  # for people; gathered here; in `fresh`
        {"fresh"},
    ),
]


@pytest.mark.parametrize(
    ("cls", "properties", "without_field", "without_key"), SHAPES, ids=[shape[0].__name__ for shape in SHAPES]
)
def test_schema_and_model_name_the_same_things(
    cls: type, properties: dict[str, Any], without_field: set[str], without_key: set[str]
) -> None:
    renamed = RENAMED.get(cls, {})
    fields = {renamed.get(field.name, field.name) for field in dataclasses.fields(cls)} - PLACES
    if cls is Equation:
        properties = {key: value for key, value in properties.items() if key in PROSE} | {"executable": None}
    assert set(properties) - without_field == fields - without_key
    assert without_field <= set(properties)
    assert without_key <= fields


TEXT = """\
schema: pv/1
metadata: {id: tiny, version: 1.0.0, description: d, references: [r]}
subject: tiny:part
falsifiers:
- id: F-1
  rule: |
    Twice is double
  prediction: p
  if_fails: i
  test: falsifiers/f.py::falsify_it
  kills: [m]
  limit: 5
harnesses:
- {id: H-1, rule: r, if_fails: i, predicate: "f.py::prove", bounds: {n: 0..8}, kills: [m]}
runs:
- {name: once, callable: "runs.py::run", small: {n: 1}}
mutants:
- {id: m, fault: f, swap: {object: "tiny:f", with: "faults:g"}}
qa_gate: {id: G, name: g, devices: [cpu], require: {falsifiers: [F-1], harnesses: proved, cuda: fresh}}
"""


def built(folder: Path, text: str = TEXT) -> Contract:
    path = folder / "tiny.yaml"
    path.write_text(text, encoding="utf-8")
    tree, findings = parse(path, path)
    assert [*findings, *check(tree, "contract")] == []
    return build(tree)


def test_values_get_the_types_of_the_model(tmp_path: Path) -> None:
    contract = built(tmp_path)
    (claim,), (harness,), (run,), (mutant,) = contract.falsifiers, contract.harnesses, contract.runs, contract.mutants
    assert (contract.id, contract.references, contract.subject) == ("tiny", ("r",), Target("tiny", "part"))
    assert claim.test == Binding("falsifiers/f.py", "falsify_it")
    assert (claim.rule, claim.limit_s, type(claim.limit_s), claim.kills) == ("Twice is double", 5.0, float, ("m",))
    assert (harness.test, harness.bounds, harness.prediction) == (Binding("f.py", "prove"), {"n": "0..8"}, "")
    assert (run.small, run.arguments, run.limit_s) == ({"n": 1}, {}, 120.0)
    assert mutant.change == Swap(object=Target("tiny", "f"), replacement=Target("faults", "g"))


def test_a_selection_of_all_is_none(tmp_path: Path) -> None:
    gate = built(tmp_path).gate
    assert (gate.falsifiers, gate.mutants, gate.harnesses) == (frozenset({"F-1"}), None, None)
    assert (gate.devices, gate.fresh) == (("cpu",), frozenset({"cuda"}))


def test_every_key_and_item_has_its_location(tmp_path: Path) -> None:
    contract = built(tmp_path)
    claim, harness = contract.claims
    assert (claim.location.line, claim.at("kills/0").line, claim.at("kills/0").column) == (5, 11, 11)
    assert harness.at("test").column == TEXT.splitlines()[13].index('"f.py') + 1
    assert harness.at("bounds/n").line == 14
    assert claim.at("no such key") == claim.location


def test_a_key_without_a_field_is_an_option_of_its_claim(tmp_path: Path) -> None:
    """A new kind reads its own keys from there; whether they are allowed is for the schema to say."""
    path = tmp_path / "tiny.yaml"
    path.write_text(TEXT.replace("  limit: 5", "  limit: 5\n  rates: {low: 0.5}"), encoding="utf-8")
    claim = build(parse(path, path)[0]).falsifiers[0]
    assert (claim.options, claim.limit_s) == ({"rates": {"low": 0.5}}, 5.0)
    assert claim.at("rates/low").line == 13
    assert built(tmp_path).falsifiers[0].options == {}
