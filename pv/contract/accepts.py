"""Decides whether data follows a JSON Schema, without `jsonschema`, whose import takes longer than all checks.

A schema is compiled once: each keyword becomes a predicate of a value, and a schema the conjunction of its predicates.
The predicates agree with `jsonschema` as `pv.contract.check` configures it; only invalid data need its messages.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

Json = Any
"""Data as `json.loads` returns it."""
Schema = Mapping[str, Json]
Accepts = Callable[[Json], bool]
"""A predicate of data."""
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


def accepts(schema: Schema) -> Accepts:
    """Return the predicate of a schema.

    Raises:
        Unsupported: The schema needs `jsonschema`.
    """
    return _Compiler(schema).compile(schema)


def has_no_duplicate(items: list[Json]) -> bool:
    """Return whether all items of a list differ."""
    # In linear time, unlike the comparison of all pairs in `jsonschema`: a hostile list must not hold up the check.
    return len({json.dumps(item, sort_keys=True) for item in items}) == len(items)


class _Compiler:
    """Compiles the parts of one schema, each definition once."""

    def __init__(self, root: Schema) -> None:
        self.definitions: Schema = root.get("$defs", {})
        self._compiled: dict[str, Accepts] = {}

    def compile(self, schema: bool | Schema) -> Accepts:
        if isinstance(schema, bool):
            return lambda value: schema
        parts = [self._keyword(key, value, schema) for key, value in schema.items() if key not in IGNORED]
        parts += [self._additional_properties(schema)] if "additionalProperties" in schema else []
        return parts[0] if len(parts) == 1 else lambda value: all(part(value) for part in parts)

    def _keyword(self, key: str, argument: Json, schema: Schema) -> Accepts:
        """Return the predicate of one keyword with its argument. Values of a type that it is not about are accepted."""
        if key in _LEAVES:
            return _LEAVES[key](argument)
        match key:
            case "$ref":
                return self._reference(argument)
            case "properties":
                return self._properties(argument)
            case "items" if "prefixItems" not in schema:
                item_test = self.compile(argument)
                return lambda value: not isinstance(value, list) or all(item_test(item) for item in value)
            case "propertyNames":
                name_test = self.compile(argument)
                return lambda value: not isinstance(value, dict) or all(name_test(name) for name in value)
            case "anyOf" | "oneOf":
                options = [self.compile(option) for option in argument]
                most = 1 if key == "oneOf" else len(options)
                return lambda value: 1 <= sum(option(value) for option in options) <= most
        raise Unsupported(key)

    def _reference(self, reference: str) -> Accepts:
        name = reference.removeprefix("#/$defs/")
        if name not in self.definitions:
            raise Unsupported(reference)
        if name not in self._compiled:
            # A definition may refer to itself: such a reference is looked up when data are tested, not while compiling.
            self._compiled[name] = lambda value: self._compiled[name](value)
            self._compiled[name] = self.compile(self.definitions[name])
        return self._compiled[name]

    def _properties(self, schemas: Schema) -> Accepts:
        tests = {name: self.compile(schema) for name, schema in schemas.items()}
        return lambda value: (
            not isinstance(value, dict) or all(tests[key](item) for key, item in value.items() if key in tests)
        )

    def _additional_properties(self, schema: Schema) -> Accepts:
        if "patternProperties" in schema:
            raise Unsupported("patternProperties")
        properties, additional = schema.get("properties", {}), self.compile(schema["additionalProperties"])
        return lambda value: (
            not isinstance(value, dict) or all(additional(item) for key, item in value.items() if key not in properties)
        )


def _type(names: str | list[str]) -> Accepts:
    types = [TYPES[name] for name in ([names] if isinstance(names, str) else names)]
    return types[0] if len(types) == 1 else lambda value: any(type_(value) for type_ in types)


def _one_of_texts(texts: list[Json]) -> Accepts:
    if not all(isinstance(text, str) for text in texts):
        raise Unsupported("enum")  # 1, 1.0 and True are equal in Python and differ in JSON
    return lambda value: isinstance(value, str) and value in texts


def _only_for(kind: str, test: Accepts) -> Accepts:
    return lambda value: not TYPES[kind](value) or test(value)


def _matches(pattern: str) -> Accepts:
    whole = re.compile(pattern).fullmatch
    return lambda value: not isinstance(value, str) or whole(value) is not None


# Negated comparisons accept NaN, as `jsonschema` does: NaN compares as false with every bound.
_LEAVES: Mapping[str, Callable[[Json], Accepts]] = {
    "type": _type,
    "enum": _one_of_texts,
    "const": lambda text: _one_of_texts([text]),
    "pattern": _matches,
    "required": lambda keys: _only_for("object", lambda value: all(key in value for key in keys)),
    "minLength": lambda least: _only_for("string", lambda value: len(value) >= least),
    "minItems": lambda least: _only_for("array", lambda value: len(value) >= least),
    "minProperties": lambda least: _only_for("object", lambda value: len(value) >= least),
    "uniqueItems": lambda unique: _only_for("array", lambda value: not unique or has_no_duplicate(value)),
    "minimum": lambda least: _only_for("number", lambda value: not value < least),
    "maximum": lambda most: _only_for("number", lambda value: not value > most),
    "exclusiveMinimum": lambda bound: _only_for("number", lambda value: not value <= bound),
}
