"""Decides quickly whether data follows a JSON Schema; `jsonschema` is needed only to say what is wrong with it.

A schema is compiled once into functions. Its keywords mean what `pv.contract.check` and `jsonschema` make of them.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

Accepts = Callable[[Any], bool]
IGNORED = {"$schema", "$id", "$defs", "title", "description", "default", "examples", "additionalProperties"}
TYPES: Mapping[str, Accepts] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: value.is_integer() if isinstance(value, float) else type(value) is int,
}


class Unsupported(Exception):
    """A schema has a keyword, or a form of one, that only `jsonschema` handles."""


def accepts(schema: Mapping[str, Any]) -> Accepts:
    """Return the predicate of a schema. Raise Unsupported."""
    return _Compiler(schema).compiled(schema)


def no_item_twice(items: list[Any]) -> bool:
    """Return whether a list has no duplicate, in linear time: a hostile list must not hold up the check."""
    return len({json.dumps(item, sort_keys=True) for item in items}) == len(items)


class _Compiler:
    """Compiles the parts of one schema, each definition once."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.definitions: Mapping[str, Any] = root.get("$defs", {})
        self._compiled: dict[str, Accepts] = {}

    def compiled(self, schema: Any) -> Accepts:
        if isinstance(schema, bool):
            return lambda value: schema
        parts = [self._keyword(key, value, schema) for key, value in schema.items() if key not in IGNORED]
        parts += [self._others(schema)] if "additionalProperties" in schema else []
        return parts[0] if len(parts) == 1 else lambda value: all(part(value) for part in parts)

    def _keyword(self, key: str, wanted: Any, schema: Mapping[str, Any]) -> Accepts:
        if key in _LEAVES:
            return _LEAVES[key](wanted)
        match key:
            case "$ref":
                return self._reference(wanted)
            case "properties":
                return self._properties(wanted)
            case "items" if "prefixItems" not in schema:
                each = self.compiled(wanted)
                return lambda value: not isinstance(value, list) or all(each(item) for item in value)
            case "propertyNames":
                name = self.compiled(wanted)
                return lambda value: not isinstance(value, dict) or all(name(key) for key in value)
            case "anyOf" | "oneOf":
                options, most = [self.compiled(option) for option in wanted], 1 if key == "oneOf" else len(wanted)
                return lambda value: 1 <= sum(option(value) for option in options) <= most
        raise Unsupported(key)

    def _reference(self, reference: str) -> Accepts:
        name = reference.removeprefix("#/$defs/")
        if name not in self.definitions:
            raise Unsupported(reference)
        if name not in self._compiled:
            self._compiled[name] = lambda value: self._compiled[name](value)  # for a definition that refers to itself
            self._compiled[name] = self.compiled(self.definitions[name])
        return self._compiled[name]

    def _properties(self, schemas: Mapping[str, Any]) -> Accepts:
        known = {name: self.compiled(schema) for name, schema in schemas.items()}
        return lambda value: (
            not isinstance(value, dict) or all(known[key](item) for key, item in value.items() if key in known)
        )

    def _others(self, schema: Mapping[str, Any]) -> Accepts:
        if "patternProperties" in schema:
            raise Unsupported("patternProperties")
        known, other = schema.get("properties", {}), self.compiled(schema["additionalProperties"])
        return lambda value: (
            not isinstance(value, dict) or all(other(item) for key, item in value.items() if key not in known)
        )


def _type(wanted: Any) -> Accepts:
    kinds = [TYPES[kind] for kind in ([wanted] if isinstance(wanted, str) else wanted)]
    return kinds[0] if len(kinds) == 1 else lambda value: any(kind(value) for kind in kinds)


def _one_of_texts(wanted: Any) -> Accepts:
    if not all(isinstance(text, str) for text in wanted):
        raise Unsupported("enum")  # of numbers and booleans, some that are equal in Python differ in JSON
    return lambda value: isinstance(value, str) and value in wanted


def _only_for(kind: str, test: Accepts) -> Accepts:
    return lambda value: not TYPES[kind](value) or test(value)


def _matches(pattern: str) -> Accepts:
    whole = re.compile(pattern).fullmatch
    return lambda value: not isinstance(value, str) or whole(value) is not None


# Negated comparisons, since no bound refuses NaN.
_LEAVES: Mapping[str, Callable[[Any], Accepts]] = {
    "type": _type,
    "enum": _one_of_texts,
    "const": lambda text: _one_of_texts([text]),
    "pattern": _matches,
    "required": lambda keys: _only_for("object", lambda value: all(key in value for key in keys)),
    "minLength": lambda least: _only_for("string", lambda value: len(value) >= least),
    "minItems": lambda least: _only_for("array", lambda value: len(value) >= least),
    "minProperties": lambda least: _only_for("object", lambda value: len(value) >= least),
    "uniqueItems": lambda wanted: _only_for("array", lambda value: not wanted or no_item_twice(value)),
    "minimum": lambda least: _only_for("number", lambda value: not value < least),
    "maximum": lambda most: _only_for("number", lambda value: not value > most),
    "exclusiveMinimum": lambda bound: _only_for("number", lambda value: not value <= bound),
}
