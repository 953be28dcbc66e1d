"""Validate data against a JSON Schema, and return findings with locations for invalid data.

A schema is compiled to a predicate, which accepts the same data as `jsonschema` in the configuration of this module.
`jsonschema` is imported only to explain invalid data, since its import takes longer than all checks.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pv.contract import plugins
from pv.contract.finding import Finding, refusal
from pv.contract.model import hyphen_hint
from pv.contract.strict_yaml import Node, walk
from pv.contract.wording import cut, did_you_mean, has_open_bracket
from pv.errors import PluginError

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError


Json = Any
"""Data as `json.loads` returns it."""
Schema = Mapping[str, Json]
Predicate = Callable[[Json], bool]
"""Returns whether data are valid."""
# Annotations, and `additionalProperties`, which is compiled together with `properties`.
IGNORED = {"$schema", "$id", "$defs", "title", "description", "default", "examples", "additionalProperties"}
TYPES: Mapping[str, Predicate] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: value.is_integer() if isinstance(value, float) else type(value) is int,
}


class Unsupported(Exception):
    """A schema has a keyword, or an argument of a keyword, that only `jsonschema` supports."""


def compile_schema(schema: Schema) -> Predicate:
    """Return the predicate of a schema.

    Raises:
        Unsupported: The schema needs `jsonschema`.
    """
    return _Compiler(schema).compile(schema)


def has_no_duplicate(items: list[Json]) -> bool:
    """Return whether all items of a list differ."""
    # In linear time: `jsonschema` compares all pairs, so that a long list would block the check.
    return len({json.dumps(item, sort_keys=True) for item in items}) == len(items)


class _Compiler:
    """Compiles the parts of one schema, each definition once."""

    def __init__(self, root: Schema) -> None:
        self.definitions: Schema = root.get("$defs", {})
        self._compiled: dict[str, Predicate] = {}

    def compile(self, schema: bool | Schema) -> Predicate:
        """Return the predicate of a schema that is a part of the root."""
        if isinstance(schema, bool):
            return lambda value: schema
        parts = [self._keyword(key, value, schema) for key, value in schema.items() if key not in IGNORED]
        if "additionalProperties" in schema:
            parts.append(self._additional_properties(schema))
        return parts[0] if len(parts) == 1 else lambda value: all(part(value) for part in parts)

    def _keyword(self, key: str, argument: Json, schema: Schema) -> Predicate:
        """Return the predicate of a keyword, which accepts values of types to which the keyword does not apply."""
        if key in _SIMPLE_KEYWORDS:
            return _SIMPLE_KEYWORDS[key](argument)
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
            case "anyOf":
                options = [self.compile(option) for option in argument]
                return lambda value: any(option(value) for option in options)
            case "oneOf":
                options = [self.compile(option) for option in argument]
                return lambda value: sum(option(value) for option in options) == 1
        raise Unsupported(key)

    def _reference(self, reference: str) -> Predicate:
        name = reference.removeprefix("#/$defs/")
        if name not in self.definitions:
            raise Unsupported(reference)
        if name not in self._compiled:
            # A definition may refer to itself, so look up such a reference when data are tested, not while compiling.
            self._compiled[name] = lambda value: self._compiled[name](value)
            self._compiled[name] = self.compile(self.definitions[name])
        return self._compiled[name]

    def _properties(self, schemas: Schema) -> Predicate:
        tests = {name: self.compile(schema) for name, schema in schemas.items()}
        return lambda value: (
            not isinstance(value, dict) or all(tests[key](item) for key, item in value.items() if key in tests)
        )

    def _additional_properties(self, schema: Schema) -> Predicate:
        if "patternProperties" in schema:
            raise Unsupported("patternProperties")
        properties, additional = schema.get("properties", {}), self.compile(schema["additionalProperties"])
        return lambda value: (
            not isinstance(value, dict) or all(additional(item) for key, item in value.items() if key not in properties)
        )


def _type(names: str | list[str]) -> Predicate:
    types = [TYPES[name] for name in ([names] if isinstance(names, str) else names)]
    return types[0] if len(types) == 1 else lambda value: any(type_(value) for type_ in types)


def _one_of_texts(texts: list[Json]) -> Predicate:
    if not all(isinstance(text, str) for text in texts):
        raise Unsupported("enum")  # True == 1 in Python, but not in JSON
    return lambda value: isinstance(value, str) and value in texts


def _only_for(kind: str, test: Predicate) -> Predicate:
    return lambda value: not TYPES[kind](value) or test(value)


def _matches(pattern: str) -> Predicate:
    fullmatch = re.compile(pattern).fullmatch
    return lambda value: not isinstance(value, str) or fullmatch(value) is not None


# Keywords without nested schemas. Negated comparisons accept NaN, as `jsonschema` does: comparisons of NaN are false.
_SIMPLE_KEYWORDS: Mapping[str, Callable[[Json], Predicate]] = {
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


SPLIT = "quote the value: inside [ ] and { } YAML splits it at commas"

Path = list[str | int]
"""The keys and indices from the root of a tree to a node."""


def schema(name: str) -> dict[str, Json]:
    """Return a published JSON Schema.

    Args:
        name: `contract`, `existing`, `report`, `evidence`, `mutants` or `comparison`.

    Raises:
        PluginError: An engine of another package cannot be imported, or has a key that exists already.
    """
    loaded: dict[str, Json] = json.loads(
        files("pv.contract").joinpath("schema", f"{name}.json").read_text(encoding="utf-8")
    )
    if name == "contract":
        _add_keys_of_engines(loaded)
    return loaded


def _add_keys_of_engines(contract: dict[str, Json]) -> None:
    """Add the keys of claims that the engines of other packages read.

    Raises:
        PluginError: An engine cannot be imported, or a key exists already.
    """
    # The schema refuses unknown keys by `additionalProperties: false`, so add the keys to the claims of the section.
    for name in plugins.declared(plugins.ENGINES):
        engine = plugins.load(plugins.ENGINES, name)
        claim = contract["properties"][engine.section]["items"]
        if engine.schema and "anyOf" in claim:
            # A claim must have a `test`, an `equation`, or else the keys of an engine.
            claim["anyOf"].append({"required": list(engine.schema)})
        properties = claim["properties"]
        for key, schema_of_key in engine.schema.items():
            if key in properties:
                raise PluginError(f"the engine {name!r} in {plugins.ENGINES} has the key {key!r}, which exists already")
            properties[key] = schema_of_key


@cache
def _validator(name: str) -> Any:
    # Imported late: the import takes longer than the check of all contracts, and only invalid contracts need it.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError
    from jsonschema.validators import extend

    def matches_whole(_: object, pattern: str, instance: object, __: object) -> Iterator[ValidationError]:
        """Match the whole text, since Python's `$` also matches before a final newline."""
        if isinstance(instance, str) and not re.fullmatch(pattern, instance):
            yield ValidationError(f"{instance!r} does not match {pattern!r}")

    def unique(_: object, enabled: bool, instance: object, __: object) -> Iterator[ValidationError]:
        if enabled and isinstance(instance, list) and not has_no_duplicate(instance):
            yield ValidationError("duplicate item")

    keywords = {"pattern": matches_whole, "uniqueItems": unique}
    validator: Any = extend(Draft202012Validator, keywords)  # type: ignore[no-untyped-call]  # its stub has no types
    return validator(schema(name))


@cache
def _predicate(name: str) -> Predicate:
    try:
        return compile_schema(schema(name))
    except Unsupported:  # a keyword in the schema of another package's engine
        is_valid: Predicate = _validator(name).is_valid
        return is_valid


def check(tree: Node, name: str) -> list[Finding]:
    """Return a finding for every violation of a schema, in the order of the file; for a contract, also for NaN and inf.

    Args:
        tree: The tree of a file.
        name: The name of the schema, `contract` or `existing`.
    """
    plain = tree.plain()
    findings: list[Finding] = []
    if not _predicate(name)(plain):
        findings += [finding for error in _validator(name).iter_errors(plain) for finding in _findings(tree, error)]
    if name == "contract":
        findings += _not_finite(tree)
    # jsonschema reports every missing key separately, but `_findings` names all missing keys of the mapping each time.
    return sorted(dict.fromkeys(findings), key=lambda finding: (finding.location, finding.code))


def _not_finite(tree: Node) -> Iterator[Finding]:
    """Yield a finding for every infinity or NaN: JSON has no such numbers, and NaN passes every bound of the schema."""
    for node in walk(tree):
        if isinstance(node.value, float) and not math.isfinite(node.value):
            yield refusal(
                "PV012",
                node.location,
                f"invalid value {_short(node.text)}: expected a finite number",
                "quote the value if it is text",
            )


def _findings(tree: Node, error: "ValidationError") -> Iterator[Finding]:
    """Yield the findings for one error of jsonschema, with the message of `pv` and a location in the file."""
    path = list(error.absolute_path)
    instance: Json = error.instance
    value: Json = error.validator_value
    # `error.validator` is the violated keyword. An invalid key violates a keyword inside `propertyNames`.
    if error.validator == "additionalProperties":
        yield from _unknown_keys(tree, path, error)
    elif "propertyNames" in error.schema_path:
        location = _node(tree, path).keys.get(instance, tree.at(path))
        message = f"invalid key {_short(instance)} in {_quoted_path(path)}: expected {_expected(error)}"
        yield refusal("PV012", location, message, _hyphen_hint(error))
    elif error.validator == "required":
        missing = [key for key in value if key not in instance]
        yield refusal("PV011", tree.at(path), f"missing key {_quoted(missing)} in {_quoted_path(path)}", "add it")
    elif error.validator == "anyOf" and not path:  # a contract without any section
        missing = [key for option in value for key in option["required"]]
        hint = f"add it, or {' or '.join(map(repr, missing[1:]))}"
        yield refusal("PV011", tree.at(path), f"missing key {missing[0]!r} in {_quoted_path(path)}", hint)
    elif error.validator == "oneOf":
        keys = [option["required"][0] for option in value]
        yield refusal("PV012", tree.at(path), f"invalid {_quoted_path(path)}: expected exactly one of {_quoted(keys)}")
    else:
        message = f"invalid value {_short(error.instance)} for {_quoted_path(path)}: expected {_expected(error)}"
        yield refusal("PV012", tree.at(path), message, _hyphen_hint(error))


def _hyphen_hint(error: "ValidationError") -> str:
    """Return a hint if a name is invalid only because of hyphens; "" otherwise."""
    pattern: Json = error.validator_value
    name = str(error.instance)
    if error.validator == "pattern" and re.fullmatch(pattern, name.replace("-", "_")):
        return hyphen_hint(name)
    return ""


def _unknown_keys(tree: Node, path: Path, error: "ValidationError") -> Iterator[Finding]:
    properties = list(error.schema.get("properties", ())) if isinstance(error.schema, dict) else []
    mapping = _node(tree, path)
    keys: Json = error.instance
    for key in keys:
        if key in properties:
            continue
        location = mapping.keys.get(key, mapping.location)
        # YAML splits `{a: f(x, y)}` at the comma, so that `y)` becomes a key.
        hint = SPLIT if has_open_bracket(key) else did_you_mean(key, properties)
        yield refusal("PV010", location, f"unknown key {key!r} in {_quoted_path(path)}", hint)


def _expected(error: "ValidationError") -> str:
    value: Json = error.validator_value
    match error.validator:
        case "anyOf":
            return str(error.schema["description"]) if isinstance(error.schema, dict) else error.message
        case "type":
            return _type_in_words(value)
        case "const":
            return repr(value)
        case "enum":
            return f"one of {_quoted(value)}"
        case "pattern":
            description = error.schema.get("description") if isinstance(error.schema, dict) else None
            return f"{description or value}"
        case "minLength" | "minItems":
            return "a value that is not empty"
        case "uniqueItems":
            return "no duplicate item"
        case "minimum" | "exclusiveMinimum" | "maximum":
            bound = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most"}[error.validator]
            return f"{bound} {value}"
        case _:
            return error.message


def _type_in_words(kind: object) -> str:
    """Return a type of JSON Schema, or a list of types, in words."""
    if isinstance(kind, list):
        return " or ".join(map(_type_in_words, kind))
    names = {
        "object": "a mapping",
        "array": "a list",
        "string": "text (quote it)",
        "integer": "a whole number",
        "number": "a number",
        "null": "nothing",
    }
    return names.get(str(kind), str(kind))


def _node(tree: Node, path: Path) -> Node:
    for step in path:
        tree = tree.value[step]
    return tree


def _quoted_path(path: Path) -> str:
    """Return a path as messages show it, such as `'runs.small[0]'`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return repr(text.lstrip(".")) if text else "the contract"


def _quoted(items: list[str]) -> str:
    return ", ".join(repr(item) for item in items)


def _short(value: object) -> str:
    return cut(repr(value), 60)
