"""Checks a tree against a JSON Schema and says each problem in words, at its place."""

import json
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match

from pv.loading.strict_yaml import Node
from pv.model import Finding, Severity, Where

# Keys of the format whose engine is not in this version: refused by name, so that a claim is never read and ignored.
NOT_YET = {
    "harnesses": "bounded proofs",
    "kani_harnesses": "bounded proofs",
    "expression": "executable equations",
    "domain": "executable equations",
    "requires": "executable equations",
    "result": "executable equations",
    "implemented_by": "executable equations",
    "returns": "executable equations",
    "derivative_of": "executable equations",
    "invariants": "executable equations",
}


def schema(name: str) -> dict[str, Any]:
    """The published JSON Schema `contract`, `existing`, `report` or `evidence`."""
    loaded: dict[str, Any] = json.loads(files("pv.schema").joinpath(f"{name}.json").read_text(encoding="utf-8"))
    return loaded


@cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(schema(name))


def check(tree: Node, name: str) -> list[Finding]:
    """Every place where `tree` departs from the schema `name`, in the order of the file."""
    found = [f for error in _validator(name).iter_errors(tree.plain()) for f in _findings(tree, error)]
    return sorted(found, key=lambda f: (f.where, f.code))


def _findings(tree: Node, error: ValidationError) -> Iterator[Finding]:
    path = list(error.absolute_path)
    instance: Any = error.instance
    value: Any = error.validator_value
    if error.validator == "additionalProperties":
        yield from _unknown_keys(tree, path, error)
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
        if key in NOT_YET:
            yield _refusal(
                "PV013", where, f"{_name(path)} has {key!r}: this version of pv has no {NOT_YET[key]}", "remove the key"
            )
        else:
            yield _refusal("PV010", where, f"{_name(path)} has no key {key!r}", did_you_mean(key, known))


def did_you_mean(word: str, known: list[str]) -> str:
    """A hint naming the nearest known word, or the known words."""
    near = get_close_matches(word, known, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known: {', '.join(sorted(known)[:12])}" if known else "none is declared"


def _expected(error: ValidationError) -> str:
    if error.validator == "anyOf" and error.context:
        inner = best_match(iter(error.context))
        return "must be 'all' or a list of ids" if inner is not None else error.message
    value: Any = error.validator_value
    match error.validator:
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
    names = {
        "object": "a mapping",
        "array": "a list",
        "string": "text (quote it)",
        "integer": "a whole number",
        "number": "a number",
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
