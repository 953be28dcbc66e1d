"""Build a `Contract` from the tree of a `pv/1` file that the schema has accepted.

cattrs fills the dataclasses of `pv.contract` by the names and types of their fields. `RENAMED` has the fields whose key
in the file has another name. `FORMS` has functions for the classes whose fields are not the keys of one mapping.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin

from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, override

from pv.contract.finding import Location
from pv.contract.model import (
    Binding,
    Contract,
    Edit,
    Equivalent,
    Falsifier,
    Gate,
    Harness,
    Mutant,
    MutationScope,
    Name,
    NotClaimed,
    Run,
    Swap,
    Target,
)
from pv.contract.strict_yaml import Node

Fields = dict[str, Any]
"""The values of a dataclass by the keys of the file: nodes, or values that are ready to use."""

RENAMED: Mapping[type, Mapping[str, str]] = {
    Falsifier: {"limit_s": "limit"},
    Harness: {"limit_s": "limit", "test": "predicate"},
    Run: {"limit_s": "limit"},
    Swap: {"replacement": "with"},
    Contract: {"gate": "qa_gate"},
}
"""By class: the fields whose key in the file has another name, with this key."""
PROSE = ("formula", "unit", "description", "source")
"""The keys of an equation that are for people; all other keys make it executable."""
TRIMMED = ("rule", "prediction", "if_fails", "fault", "why", "reason", "reference")
"""The keys of text that is stripped: YAML's block style ends it with a line break."""


def build(tree: Node) -> Contract:
    """Return the contract of a tree that follows the schema `contract`."""
    return _converter.structure(tree, Contract)


def _fields(node: Node) -> Fields:
    """Return the values of a mapping by key, its location, and as `places` the locations of its keys and items."""
    values = {key: item.value.strip() if key in TRIMMED else item for key, item in node.value.items()}
    return {**values, "location": node.location, "places": _places(node)}


def _places(node: Node) -> dict[str, Location]:
    """Return the location of every key and of every nested item, for example of `kills/0` or `bounds/n`."""
    places = {path: item.location for path, item in _paths(node)}
    # A harness has its function in another key than a falsifier; rules use the key `test` for both.
    predicate_key = RENAMED[Harness]["test"]
    return places | ({"test": places[predicate_key]} if predicate_key in places else {})


def _paths(node: Node) -> Iterator[tuple[str, Node]]:
    """Yield (path, node) for every key and for every nested item, for example `domain/x`."""
    for key, value in node.value.items():
        yield key, value
        items = value.value.items() if isinstance(value.value, dict) else enumerate(value.items())
        yield from ((f"{key}/{name}", item) for name, item in items)


def _contract(tree: Node) -> Fields:
    values: Fields = {**tree.value, **tree.value["metadata"].value, "location": tree.location, "strict": True}
    # `kani_harnesses` is the name of the section in the field's existing format.
    harnesses = [item for key in ("harnesses", "kani_harnesses") if key in values for item in values[key].items()]
    by_name = values.get("equations")
    equations = [_equation(by_name, name) for name in by_name.value] if by_name is not None else []
    return values | {"harnesses": harnesses, "equations": equations, "places": _places(tree)}


def _equation(equations: Node, name: str) -> Fields:
    node = equations.value[name]
    raw: Fields = node.plain()
    executable = {key: value for key, value in raw.items() if key not in PROSE}
    texts = {path: _locator(item) for path, item in _paths(node)}
    return {**raw, "name": name, "location": equations.keys[name], "executable": executable, "texts": texts}


def _locator(node: Node) -> Callable[[int, int], Location]:
    """Return a function that maps a line and a column of a scalar's text, from 1, to a location in the file."""
    position = node.text_position
    return position.locate if position is not None else lambda line, column: node.location


def _claim(cls: type) -> Callable[[Node], Fields]:
    """Return the function that collects the fields of a claim; keys without a field become its `options`."""
    keys = {RENAMED[cls].get(field.name, field.name) for field in fields(cls)}

    def collect(node: Node) -> Fields:
        options = {key: item.plain() for key, item in node.value.items() if key not in keys}
        return _fields(node) | {"options": options}

    return collect


def _mutant(node: Node) -> Fields:
    edit = node.get("edit")
    change = _converter.structure(edit, Edit) if edit is not None else _converter.structure(node.get("swap"), Swap)
    return _fields(node) | {"change": change}


def _run(node: Node) -> Fields:
    values = _fields(node)
    if "command" in values:
        # A command always has small arguments: `arguments`, where `small` may replace some values.
        values["small"] = {**_plain(values.get("arguments", {})), **_plain(values.get("small", {}))}
    if "claims" in values and isinstance(values["claims"].value, str):
        values["claims"] = [values["claims"]]
    return values


def _gate(node: Node) -> Fields:
    # The file has `require: {cuda: fresh, falsifiers: all, ...}`, whose keys are fields of the class.
    required = node.value["require"].value if "require" in node.value else {}
    fresh = [key for key, value in required.items() if _plain(value) == "fresh"]
    return _fields(node) | required | {"fresh": fresh}


FORMS: Mapping[type, Callable[[Node], Fields]] = {
    Contract: _contract,
    # An equivalent change is one mapping, with the keys of an edit and with `reason`.
    Equivalent: lambda node: _fields(node) | {"change": node},
    Falsifier: _claim(Falsifier),
    Harness: _claim(Harness),
    Gate: _gate,
    Mutant: _mutant,
    # A list is short for {modules: list}.
    MutationScope: lambda node: node.value if isinstance(node.value, dict) else {"modules": node},
    Name: lambda node: {"text": node.value, "location": node.location},
    NotClaimed: lambda node: _fields(node) | {"places": [n.location for n in node.value["falsifiers"].items()]},
    Run: _run,
}
"""Functions that collect the fields of a class, if these are not the keys of one mapping."""


def _plain(value: object) -> Any:
    return value.plain() if isinstance(value, Node) else value


def _items(value: Any) -> Sequence[object]:
    return value.items() if isinstance(value, Node) else list(value)


def _origin(kind: object) -> object:
    """Return `get_origin(kind)` as an object: mypy refuses to compare its declared type with `tuple` or `Mapping`."""
    return get_origin(kind)


Hook = Callable[[object, object], object]
"""A function of cattrs from a value of the file, and the type to build, to an object of that type."""


def _model_hook(cls: type) -> Hook:
    renamed: Any = {field: override(rename=key) for field, key in RENAMED.get(cls, {}).items()}
    structure: Any = make_dict_structure_fn(cls, _converter, **renamed)
    form = FORMS.get(cls, _fields)
    return lambda value, _: structure(form(value) if isinstance(value, Node) else value, cls)


def _tuple_hook(kind: type) -> Hook:
    item_type = get_args(kind)[0]
    return lambda value, _: tuple(_converter.structure(item, item_type) for item in _items(value))


def _selection(value: object, _: object) -> frozenset[str] | None:
    """Return the ids that are required; None for `all`."""
    ids = _plain(value)
    return None if ids is None or isinstance(ids, str) else frozenset(ids)


# The last hook that fits a type wins, so the special cases come after the general ones. Strings, numbers and booleans
# have hooks because their values may still be nodes.
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
