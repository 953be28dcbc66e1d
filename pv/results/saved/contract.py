"""Rebuilds from a saved report what it holds of a contract: claims, declared mutants, gate, tolerances."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pv.contract.claims import Equation, Falsifier, Harness
from pv.contract.finding import Location
from pv.contract.model import Contract, Gate, Waiver
from pv.contract.mutants import Edit, Mutant, MutationScope, Name, Swap
from pv.contract.names import Binding, Target

Places = Mapping[str, Mapping[tuple[int, int], Location]]


def contract(data: Mapping[str, Any], places: Places) -> Contract:
    """Return the contract of a saved verdict. places: the locations in its equations, by line and column."""
    here = Location(Path(data["path"]))
    scope, judges = ([Name(text=text, location=here) for text in data[key]] for key in ("mutation_scope", "judges"))
    claims = [_claim(each) for each in data["claims"]]
    return Contract(
        id=data["id"],
        version=data["version"],
        description="",
        location=here,
        strict=data["strict"],
        equations=tuple(_equations(data["tolerances"], places, here)),
        falsifiers=tuple(claim for claim in claims if not isinstance(claim, Harness)),
        harnesses=tuple(claim for claim in claims if isinstance(claim, Harness)),
        mutants=tuple(_mutant(each) for each in data["declared_mutants"]),
        mutation_scope=MutationScope(modules=tuple(scope), judges=tuple(judges)),
        gate=_gate(data["gate"], here.path),
        waivers=tuple(_waiver(each) for each in data.get("waivers", ())),
    )


def _waiver(data: Mapping[str, Any]) -> Waiver:
    texts = {name: data[name] for name in ("owner", "reason", "expires", "weaker", "removed")}
    return Waiver(**texts, location=location(data))


def _claim(data: Mapping[str, Any]) -> Falsifier:
    common = {name: data[name] for name in ("id", "rule", "prediction", "if_fails", "equation", "run", "examples")}
    common |= {
        "location": location(data),
        "test": Binding(*data["test"].split("::", 1)) if data["test"] is not None else None,
        "devices": tuple(data["devices"]),
        "kills": tuple(data["kills"]),
        "limit_s": data["limit"],
        "options": {"observed": data["id"].rpartition(".")[2]} if data["kind"] == "observed" else {},
    }
    box = data["harness"]
    if box is None:
        return Falsifier(**common)
    return Harness(**common, bounds=box["bounds"], requires=box["requires"], engine=box["engine"])


def _mutant(data: Mapping[str, Any]) -> Mutant:
    fields = data["change"]
    change: Edit | Swap
    if "function" in fields:
        change = Edit(
            function=Target.parse(fields["function"]),
            find=fields["find"],
            replace=fields["replace"],
            occurrence=fields.get("occurrence"),
        )
    else:
        change = Swap(object=Target.parse(fields["object"]), replacement=Target.parse(fields["replacement"]))
    return Mutant(id=data["id"], fault=data["fault"], seen_in=data["seen_in"], change=change, location=location(data))


def _gate(data: Mapping[str, Any], path: Path) -> Gate:
    required = {key: _some(data[key]) for key in ("falsifiers", "mutants", "harnesses")}
    return Gate(
        id=data["id"],
        name=data["name"],
        **required,
        devices=tuple(data["devices"]),
        fresh=frozenset(data["fresh"]),
        mutation_score=data["mutation_score"],
        equivalents=data["equivalents"],
        location=Location(path, data["line"]) if data["line"] is not None else None,
    )


def _some(ids: list[str] | None) -> frozenset[str] | None:
    return None if ids is None else frozenset(ids)


def _equations(tolerances: list[dict[str, Any]], places: Places, here: Location) -> list[Equation]:
    """Return the equations of which the report holds something: a set tolerance, or the place of a survivor."""
    given = {each["equation"]: {"tolerance": {k: v for k, v in each.items() if k != "equation"}} for each in tolerances}
    return [
        Equation(name=name, location=here, executable=given.get(name, {}), texts=_texts(places.get(name, {})))
        for name in {**given, **places}
    ]


def _texts(places: Mapping[tuple[int, int], Location]) -> dict[str, Callable[[int, int], Location]]:
    return {"expression": lambda line, column: places[line, column]} if places else {}


def location(data: Mapping[str, Any]) -> Location:
    """Return the location of an object with path, line and column."""
    return Location(Path(data["path"]), data["line"], data["column"])
