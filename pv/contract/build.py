"""Builds a `Contract` from the tree of a `pv/1` file that the schema has accepted.

The schema says which keys there are and of which types. cattrs fills the dataclasses of `pv.contract` by the
names and types of their fields; what has another name or form in the file is listed here.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin

from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, override

from pv.contract.claims import Falsifier, Harness, Run
from pv.contract.finding import Location
from pv.contract.model import Contract, Gate, NotClaimed
from pv.contract.mutants import Edit, Equivalent, Mutant, MutationScope, Name, Swap
from pv.contract.names import Binding, Target
from pv.contract.strict_yaml import Node

RENAMED: Mapping[type, Mapping[str, str]] = {
    Falsifier: {"limit_s": "limit"},
    Harness: {"limit_s": "limit", "test": "predicate"},
    Run: {"limit_s": "limit"},
    Swap: {"replacement": "with"},
    Contract: {"gate": "qa_gate"},
}
"""The fields of a class that have another name than their key."""
PROSE = ("formula", "unit", "description", "source")
"""The keys of an equation that are for people; the others make it executable."""
TRIMMED = ("rule", "prediction", "if_fails", "fault", "why", "reason", "reference")
"""Text that YAML's block style ends with a line break."""


def build(tree: Node) -> Contract:
    """Return the contract of a tree that follows the schema `contract`."""
    return _converter.structure(tree, Contract)


def _fields(node: Node) -> dict[str, Any]:
    """Return the values of a mapping by key, with its own location and those of its keys and items."""
    values = {key: item.value.strip() if key in TRIMMED else item for key, item in node.value.items()}
    return {**values, "location": node.location, "places": dict(_places(node))}


def _places(node: Node) -> Iterator[tuple[str, Location]]:
    """Yield the location of each key, and as `kills/0` or `bounds/n` that of what is in it."""
    for key, value in node.value.items():
        yield key, value.location
        if key == RENAMED[Harness]["test"]:
            yield "test", value.location  # where rules look for the function of any claim
        yield from ((f"{key}/{name}", item.location) for name, item in _inside(value))


def _inside(node: Node) -> list[tuple[Any, Node]]:
    return list(node.value.items() if isinstance(node.value, dict) else enumerate(node.items()))


def _contract(tree: Node) -> dict[str, Any]:
    found: dict[str, Any] = {**tree.value, **tree.value["metadata"].value, "location": tree.location, "strict": True}
    harnesses = [item for key in ("harnesses", "kani_harnesses") if key in found for item in found[key].items()]
    equations = found.get("equations")
    named = [_equation(equations, name) for name in equations.value] if equations is not None else []
    return found | {"harnesses": harnesses, "equations": named, "places": dict(_places(tree))}


def _equation(equations: Node, name: str) -> dict[str, Any]:
    node = equations.value[name]
    raw: dict[str, Any] = node.plain()
    executable = {key: value for key, value in raw.items() if key not in PROSE}
    texts = {path: _finder(item) for path, item in _paths(node)}
    return {**raw, "name": name, "location": equations.keys[name], "executable": executable, "texts": texts}


def _paths(node: Node) -> Iterator[tuple[str, Node]]:
    for key, value in node.value.items():
        yield key, value
        yield from ((f"{key}/{name}", item) for name, item in _inside(value))


def _finder(node: Node) -> Callable[[int, int], Location]:
    """Return what turns a line and column of a text, from 1, into a location in the file."""
    return node.inside.place if node.inside is not None else lambda line, column: node.location


def _claim(cls: type) -> Callable[[Node], dict[str, Any]]:
    """Return what gathers the fields of a claim; keys that its class has no field for are its options."""
    taken = {RENAMED[cls].get(field.name, field.name) for field in fields(cls)}

    def gather(node: Node) -> dict[str, Any]:
        options = {key: item.plain() for key, item in node.value.items() if key not in taken}
        return _fields(node) | {"options": options}

    return gather


def _mutant(node: Node) -> dict[str, Any]:
    edit = node.get("edit")
    change = _converter.structure(edit, Edit) if edit is not None else _converter.structure(node.get("swap"), Swap)
    return _fields(node) | {"change": change}


def _run(node: Node) -> dict[str, Any]:
    """Return the fields of a run. A command has small arguments, too: its arguments, but for those that differ."""
    found = _fields(node)
    if "command" in found:
        found["small"] = {**_plain(found.get("arguments", {})), **_plain(found.get("small", {}))}
    if "claims" in found and isinstance(found["claims"].value, str):
        found["claims"] = [found["claims"]]
    return found


def _equivalent(node: Node) -> dict[str, Any]:
    return _fields(node) | {"change": node}


def _name(node: Node) -> dict[str, Any]:
    return {"text": node.value, "location": node.location}


def _mutation_scope(node: Node) -> dict[str, Any]:
    return node.value if isinstance(node.value, dict) else {"modules": node}


def _not_claimed(node: Node) -> dict[str, Any]:
    return _fields(node) | {"places": [item.location for item in node.value["falsifiers"].items()]}


def _gate(node: Node) -> dict[str, Any]:
    required = node.value["require"].value if "require" in node.value else {}
    fresh = [device for device, key in required.items() if _plain(key) == "fresh"]
    return _fields(node) | required | {"fresh": fresh}


FORMS: Mapping[type, Callable[[Node], dict[str, Any]]] = {
    Contract: _contract,
    Equivalent: _equivalent,
    Falsifier: _claim(Falsifier),
    Harness: _claim(Harness),
    Gate: _gate,
    Mutant: _mutant,
    MutationScope: _mutation_scope,
    Name: _name,
    NotClaimed: _not_claimed,
    Run: _run,
}
"""Functions that collect the fields of a class, if these are not the keys of one mapping."""


def _plain(value: Any) -> Any:
    return value.plain() if isinstance(value, Node) else value


def _items(value: Any) -> list[Any]:
    return value.items() if isinstance(value, Node) else list(value)


def _origin(kind: Any) -> Any:
    return get_origin(kind)


def _model_hook(cls: type) -> Callable[[Any, Any], Any]:
    renamed: dict[str, Any] = {field: override(rename=key) for field, key in RENAMED.get(cls, {}).items()}
    structure: Any = make_dict_structure_fn(cls, _converter, **renamed)
    form = FORMS.get(cls, _fields)
    return lambda value, _: structure(form(value) if isinstance(value, Node) else value, cls)


def _tuple_hook(kind: Any) -> Callable[[Any, Any], Any]:
    item = get_args(kind)[0]
    return lambda value, _: tuple(_converter.structure(each, item) for each in _items(value))


def _selection(value: Any, _: Any) -> frozenset[str] | None:
    """Return the ids that are required; None for all."""
    found = _plain(value)
    return None if found is None or isinstance(found, str) else frozenset(found)


_converter = Converter(detailed_validation=False)
_converter.register_structure_hook_factory(is_dataclass, _model_hook)
_converter.register_structure_hook_factory(lambda kind: _origin(kind) is tuple, _tuple_hook)
_converter.register_structure_hook_func(lambda kind: _origin(kind) is Mapping, lambda value, _: _plain(value))
_converter.register_structure_hook_func(lambda kind: kind == Edit | Swap, lambda value, _: value)
_converter.register_structure_hook_func(lambda kind: kind == frozenset[str] | None, _selection)
_converter.register_structure_hook_func(lambda kind: kind == frozenset[str], lambda value, _: frozenset(value))
_converter.register_structure_hook(Target, lambda value, _: Target.parse(_plain(value)))
_converter.register_structure_hook(Binding, lambda value, _: Binding(*_plain(value).split("::")))
_converter.register_structure_hook(Location, lambda value, _: value)
for _scalar in (str, int, float, bool):
    _converter.register_structure_hook(_scalar, lambda value, kind: kind(_plain(value)))
