"""Checks a tree against a JSON Schema and says each problem in words, at its place."""

import json
import math
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from pv.loading.strict_yaml import Node, walk
from pv.model import Finding, Severity, Where
from pv.spelling import nearest

MAX_NAMED = 16


def schema(name: str) -> dict[str, Any]:
    """The published JSON Schema `contract`, `existing`, `report`, `evidence` or `mutants`."""
    loaded: dict[str, Any] = json.loads(files("pv").joinpath("schema", f"{name}.json").read_text(encoding="utf-8"))
    return loaded


def _matches_whole(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    """`pattern` as JSON Schema means it: Python's `$` would also match before a last line end."""
    if isinstance(instance, str) and not re.fullmatch(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _no_item_twice(_: Any, wanted: bool, instance: Any, __: Any) -> Iterator[ValidationError]:
    """`uniqueItems` in linear time: a hostile list must not hold up the check."""
    if wanted and isinstance(instance, list):
        items = [json.dumps(item, sort_keys=True) for item in instance]
        if len(set(items)) < len(items):
            yield ValidationError("an item stands twice")


_KEYWORDS = {"pattern": _matches_whole, "uniqueItems": _no_item_twice}
_Validator: Any = extend(Draft202012Validator, _KEYWORDS)  # type: ignore[no-untyped-call]  # so in its stubs


@cache
def _validator(name: str) -> Any:
    return _Validator(schema(name))


def check(tree: Node, name: str) -> list[Finding]:
    """Every place where `tree` departs from the schema `name`, in the order of the file."""
    found = [f for error in _validator(name).iter_errors(tree.plain()) for f in _findings(tree, error)]
    if name == "contract":
        found += _not_finite(tree)
    return sorted(found, key=lambda f: (f.where, f.code))


def _not_finite(tree: Node) -> Iterator[Finding]:
    """Numbers that JSON cannot carry to a worker. No bound catches a limit of .nan: it is neither too low nor high."""
    for node in walk(tree):
        if isinstance(node.value, float) and not math.isfinite(node.value):
            yield _refusal(
                "PV012", node.where, f"the number {_short(node.text)} is not finite", "quote it if it is text"
            )


def _findings(tree: Node, error: ValidationError) -> Iterator[Finding]:
    path = list(error.absolute_path)
    instance: Any = error.instance
    value: Any = error.validator_value
    if error.validator == "additionalProperties":
        yield from _unknown_keys(tree, path, error)
    elif "propertyNames" in error.schema_path:
        where = _node(tree, path).keys.get(instance, tree.at(path))
        yield _refusal("PV012", where, f"{_name(path)}: a key {_expected(error)}, not {_short(instance)}")
    elif error.validator == "required":
        missing = [key for key in value if key not in instance]
        yield _refusal("PV011", tree.at(path), f"{_name(path)} has no {_words(missing)}", "it is required")
    elif error.validator == "oneOf":
        keys = [option["required"][0] for option in value]
        yield _refusal("PV012", tree.at(path), f"{_name(path)} needs exactly one of {_words(keys)}")
    else:
        yield _refusal("PV012", tree.at(path), f"{_name(path)}: {_expected(error)}, not {_short(error.instance)}")


def _unknown_keys(tree: Node, path: list[str | int], error: ValidationError) -> Iterator[Finding]:
    known = list(error.schema.get("properties", ())) if isinstance(error.schema, dict) else []
    holder = _node(tree, path)
    unknown: Any = error.instance
    for key in unknown:
        if key in known:
            continue
        where = holder.keys.get(key, holder.where)
        yield _refusal("PV010", where, f"{_name(path)} has no key {key!r}", did_you_mean(key, known))


def did_you_mean(word: str, known: list[str]) -> str:
    """A hint naming the nearest known word, or the known words."""
    if near := nearest(word, known):
        return f"did you mean {near!r}?"
    return f"known: {', '.join(sorted(known)[:MAX_NAMED])}" if known else "none is declared"


def _expected(error: ValidationError) -> str:
    value: Any = error.validator_value
    match error.validator:
        case "anyOf":
            return f"must be {error.schema['description']}" if isinstance(error.schema, dict) else error.message
        case "type":
            return f"must be {_article(value)}"
        case "const":
            return f"must be {value!r}"
        case "enum":
            return f"must be one of {_words(value)}"
        case "pattern":
            said = error.schema.get("description") if isinstance(error.schema, dict) else None
            return f"must look like {said or value}"
        case "minLength" | "minItems":
            return "must not be empty"
        case "uniqueItems":
            return "must not repeat an item"
        case "minimum" | "exclusiveMinimum" | "maximum":
            bound = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most"}[error.validator]
            return f"must be {bound} {value}"
        case _:
            return error.message


def _article(kind: object) -> str:
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


def _node(tree: Node, path: list[str | int]) -> Node:
    for step in path:
        tree = tree.value[step]
    return tree


def _name(path: list[str | int]) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.lstrip(".") or "the contract"


def _words(items: list[str]) -> str:
    return ", ".join(repr(item) for item in items)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _refusal(code: str, where: Where, message: str, hint: str = "") -> Finding:
    return Finding(code=code, severity=Severity.REFUSAL, where=where, message=message, hint=hint)
