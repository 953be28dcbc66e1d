"""Checks a tree against a JSON Schema and reports each problem in words, at its location."""

import json
import math
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pv.contract import plugins
from pv.contract.accepts import Accepts, Unsupported, accepts, has_no_duplicate
from pv.contract.finding import Finding, refusal
from pv.contract.names import hyphen_hint
from pv.contract.strict_yaml import Node, walk
from pv.contract.wording import cut, did_you_mean
from pv.errors import PluginError

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

SPLIT = "quote the value: inside [ ] and { } YAML splits it at commas"

Path = list[str | int]
"""The keys and indices from the root of a tree to a node."""


def schema(name: str) -> dict[str, Any]:
    """Return a published JSON Schema.

    Args:
        name: `contract`, `existing`, `report`, `evidence`, `mutants` or `comparison`.

    Raises:
        PluginError: An engine of another package has a key that exists already.
    """
    loaded: dict[str, Any] = json.loads(
        files("pv.contract").joinpath("schema", f"{name}.json").read_text(encoding="utf-8")
    )
    if name == "contract":
        _add_keys_of_engines(loaded)
    return loaded


def _add_keys_of_engines(contract: dict[str, Any]) -> None:
    """Add the keys of claims that the engines of other packages read.

    Raises:
        PluginError: A key exists already.
    """
    # A claim of such an engine is a claim of a section, with the additional keys: `additionalProperties: false` of the
    # schema would refuse them otherwise.
    for name in plugins.declared(plugins.ENGINES):
        engine = plugins.load(plugins.ENGINES, name)
        claim = contract["properties"][engine.section]["items"]
        if engine.schema and "anyOf" in claim:  # its keys bind the claim, in place of a `test` or an `equation`
            claim["anyOf"].append({"required": list(engine.schema)})
        properties = claim["properties"]
        for key, schema_of_key in engine.schema.items():
            if key in properties:
                raise PluginError(f"the engine {name!r} in {plugins.ENGINES} has the key {key!r}, which exists already")
            properties[key] = schema_of_key


@cache
def _validator(name: str) -> Any:
    # Imported late: the import takes longer than the check of all contracts, and only invalid ones need it.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError
    from jsonschema.validators import extend

    def matches_whole(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
        """Check `pattern` against the whole text: Python's `$` would also match before a last line end."""
        if isinstance(instance, str) and not re.fullmatch(pattern, instance):
            yield ValidationError(f"{instance!r} does not match {pattern!r}")

    def unique(_: Any, enabled: bool, instance: Any, __: Any) -> Iterator[ValidationError]:
        if enabled and isinstance(instance, list) and not has_no_duplicate(instance):
            yield ValidationError("duplicate item")

    keywords = {"pattern": matches_whole, "uniqueItems": unique}
    validator: Any = extend(Draft202012Validator, keywords)  # type: ignore[no-untyped-call]  # its stub has no types
    return validator(schema(name))


@cache
def _accepts(name: str) -> Accepts:
    try:
        return accepts(schema(name))
    except Unsupported:  # a keyword in the schema of another package's engine
        is_valid: Accepts = _validator(name).is_valid
        return is_valid


def check(tree: Node, name: str) -> list[Finding]:
    """Return every difference of a tree from a schema, in the order of the file.

    Args:
        tree: The tree of a file.
        name: The name of the schema, `contract` or `existing`.
    """
    plain = tree.plain()
    findings: list[Finding] = []
    if not _accepts(name)(plain):
        findings += [finding for error in _validator(name).iter_errors(plain) for finding in _findings(tree, error)]
    if name == "contract":
        findings += _not_finite(tree)
    # jsonschema reports every missing key of a mapping apart, and each of these findings names all of them: one stays.
    return sorted(dict.fromkeys(findings), key=lambda finding: (finding.location, finding.code))


def _not_finite(tree: Node) -> Iterator[Finding]:
    """Yield a finding for every number that JSON cannot carry to a worker: .nan passes every bound of the schema."""
    for node in walk(tree):
        if isinstance(node.value, float) and not math.isfinite(node.value):
            yield refusal(
                "PV012",
                node.location,
                f"invalid value {_short(node.text)}: expected a finite number",
                "quote it if it is text",
            )


def _findings(tree: Node, error: "ValidationError") -> Iterator[Finding]:
    """Yield the findings of one error of jsonschema, in our words and with a location in the file."""
    path = list(error.absolute_path)
    instance: Any = error.instance
    value: Any = error.validator_value
    # The keyword that failed says what is wrong. A name that does not match its pattern fails below `propertyNames`.
    if error.validator == "additionalProperties":
        yield from _unknown_keys(tree, path, error)
    elif "propertyNames" in error.schema_path:
        location = _node(tree, path).keys.get(instance, tree.at(path))
        message = f"invalid key {_short(instance)} in {_name(path)}: expected {_expected(error)}"
        yield refusal("PV012", location, message, _hyphen(error))
    elif error.validator == "required":
        missing = [key for key in value if key not in instance]
        yield refusal("PV011", tree.at(path), f"missing key {_words(missing)} in {_name(path)}", "add it")
    elif error.validator == "anyOf" and not path:  # at the root: one of several sections is required
        missing = [key for option in value for key in option["required"]]
        hint = f"add it, or {' or '.join(map(repr, missing[1:]))}"
        yield refusal("PV011", tree.at(path), f"missing key {missing[0]!r} in {_name(path)}", hint)
    elif error.validator == "oneOf":
        keys = [option["required"][0] for option in value]
        yield refusal("PV012", tree.at(path), f"invalid {_name(path)}: expected exactly one of {_words(keys)}")
    else:
        message = f"invalid value {_short(error.instance)} for {_name(path)}: expected {_expected(error)}"
        yield refusal("PV012", tree.at(path), message, _hyphen(error))


def _hyphen(error: "ValidationError") -> str:
    """Return a hint if a name does not match its pattern because of hyphens."""
    pattern: Any = error.validator_value
    # A name with a hyphen is a file or distribution name; only with underscores can Python import it.
    fits = error.validator == "pattern" and re.fullmatch(pattern, str(error.instance).replace("-", "_"))
    return hyphen_hint(str(error.instance)) if fits else ""


def _unknown_keys(tree: Node, path: Path, error: "ValidationError") -> Iterator[Finding]:
    properties = list(error.schema.get("properties", ())) if isinstance(error.schema, dict) else []
    mapping = _node(tree, path)
    keys: Any = error.instance
    for key in keys:
        if key in properties:
            continue
        location = mapping.keys.get(key, mapping.location)
        hint = SPLIT if _is_cut(key) else did_you_mean(key, properties)
        yield refusal("PV010", location, f"unknown key {key!r} in {_name(path)}", hint)


def _is_cut(text: str) -> bool:
    """Return whether a text has an unmatched bracket.

    In `{a: f(x, y)}` YAML splits at the comma, and the rest `y)` becomes a key.
    """
    return any(text.count(left) != text.count(right) for left, right in ("()", "[]", "{}"))


def _expected(error: "ValidationError") -> str:
    value: Any = error.validator_value
    match error.validator:
        case "anyOf":
            return str(error.schema["description"]) if isinstance(error.schema, dict) else error.message
        case "type":
            return _article(value)
        case "const":
            return repr(value)
        case "enum":
            return f"one of {_words(value)}"
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


def _article(kind: object) -> str:
    """Return a type of JSON Schema, or a list of types, in words."""
    if isinstance(kind, list):
        return " or ".join(map(_article, kind))
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


def _name(path: Path) -> str:
    """Return a path as messages show it, such as `'runs.small[0]'`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return repr(text.lstrip(".")) if text else "the contract"


def _words(items: list[str]) -> str:
    return ", ".join(repr(item) for item in items)


def _short(value: object) -> str:
    return cut(repr(value), 60)
