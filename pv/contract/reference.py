"""Write the reference of the contract format as Markdown, from its JSON Schema."""

from collections.abc import Iterator

from pv.contract.check import Schema

INTRO = """\
# Contract reference

Every key of a contract (format `pv/1`). This page is written by `pv schema --format markdown` from the JSON Schema that
`pv` checks contracts against; edit the schema, not this page. Keys in bold are required, unknown keys are errors.
[authoring.md](authoring.md), [equations.md](equations.md), [harnesses.md](harnesses.md) and [runs.md](runs.md) show how
the keys are used, [api.md](api.md) how a contract is read from Python.

An editor with the YAML language server (VS Code, Neovim, Emacs, Helix, ...) checks and completes a contract, and shows
these descriptions, if the contract starts with this line:

```yaml
# yaml-language-server: $schema=pv-1.schema.json
```

The schema must be beside the contract: run `pv schema > contracts/pv-1.schema.json`. `pv new` writes both the line and
the schema. Without such a line, map the schema to the files in the settings of the editor, in VS Code by
`"yaml.schemas": {"contracts/pv-1.schema.json": "contracts/*.yaml"}`.
"""
NAMES = {
    "slug": "id",
    "name": "name",
    "prose": "text",
    "seconds": "number of seconds",
    "target": "`module` or `module:attribute`",
    "attribute": "`module:attribute`",
    "binding": "`path/to/file.py::function`",
    "selection": "`all` or list of ids",
    "modules": "list of modules",
    "argument": "name",
    "variable": "name",
    "bound": "text",
}
"""Definitions of the schema that the page describes by words rather than by their keys."""


def markdown(schema: Schema) -> str:
    """Return the reference page of the contract schema.

    Args:
        schema: The JSON Schema.
    """
    blocks = [INTRO, _table(schema, schema)]
    for name, node in schema["properties"].items():
        blocks += _sections(schema, name, node)
    return "\n".join(blocks)


def _sections(schema: Schema, path: str, node: Schema) -> Iterator[str]:
    """Yield a section for every mapping with named keys, outer mappings before the mappings in them."""
    mapping, path = _mapping(schema, node, path)
    if mapping is None:
        return
    yield f"{'##' if '.' not in path.removesuffix('.NAME') else '###'} `{path}`\n"
    # The description of the `$ref`, then the description of the definition, which may be the same text.
    notes = dict.fromkeys(filter(None, (node.get("description"), mapping.get("description"))))
    yield "".join(f"{_sentence(note)}\n" for note in notes)
    yield _table(schema, mapping)
    for name, child in mapping["properties"].items():
        yield from _sections(schema, f"{path}.{name}", child)


def _mapping(schema: Schema, node: Schema, path: str) -> tuple[Schema | None, str]:
    """Return the mapping with named keys in a node, and the path to it; None if there is no such mapping.

    The node may be the mapping itself, a list of such mappings (path `x[]`), a mapping of names to such mappings (path
    `x.NAME`), or an `anyOf` of these, whose first item counts.
    """
    node = _resolve(schema, node)
    if "properties" in node:
        return node, path
    if isinstance(node.get("items"), dict):
        return _mapping(schema, node["items"], f"{path}[]")
    if isinstance(node.get("additionalProperties"), dict):
        return _mapping(schema, node["additionalProperties"], f"{path}.NAME")
    options = (_mapping(schema, option, path) for option in node.get("anyOf", ()))
    return next(((mapping, inner) for mapping, inner in options if mapping is not None), (None, path))


def _table(schema: Schema, node: Schema) -> str:
    """Return the Markdown table of the keys of a mapping."""
    required = node.get("required", ())
    rows = [_row(schema, name, value, name in required) for name, value in node["properties"].items()]
    return "".join(f"{row}\n" for row in ("| key | value | meaning |", "|---|---|---|", *rows))


def _row(schema: Schema, name: str, node: Schema, required: bool) -> str:
    key = f"**`{name}`**" if required else f"`{name}`"
    meaning = _sentence(node.get("description") or _resolve(schema, node).get("description", ""))
    return f"| {key} | {_value(schema, node)} | {meaning} |"


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if not text or text.endswith(".") else f"{text}."


def _value(schema: Schema, node: Schema) -> str:
    """Return the values that a node accepts, in words."""
    name = node.get("$ref", "").rpartition("/")[2]
    if name in NAMES:
        return NAMES[name]
    node = _resolve(schema, node)
    if "const" in node or "enum" in node:
        return ", ".join(f"`{value}`" for value in node.get("enum", [node.get("const")]))
    if "anyOf" in node and "type" not in node:
        return " or ".join(_value(schema, option) for option in node["anyOf"])
    return _value_of_type(schema, node)


def _value_of_type(schema: Schema, node: Schema) -> str:
    match node.get("type"):
        case "array":
            return f"list of {_plural(_value(schema, node.get('items', {})))}"
        case "object":
            values = node.get("additionalProperties")
            return f"mapping of names to {_plural(_value(schema, values))}" if isinstance(values, dict) else "mapping"
        case "number" | "integer" as kind:
            noun = "number" if kind == "number" else "integer"
            return f"{noun}{_range(node)}"
        case "boolean" | "null" as kind:
            return "`true` or `false`" if kind == "boolean" else "`null`"
        case list() as kinds:
            return " or ".join(_value_of_type(schema, {**node, "type": kind}) for kind in kinds)
        case _:
            return "text"


def _range(node: Schema) -> str:
    low, high = node.get("minimum"), node.get("maximum")
    if low is None:
        return "" if high is None else f" up to {high:,}"
    return f" from {low:,}" + (f" to {high:,}" if high is not None else "")


def _plural(noun: str) -> str:
    return f"{noun}s" if noun in ("id", "name", "mapping", "number", "text") else noun


def _resolve(schema: Schema, node: Schema) -> Schema:
    """Return the definition that a `$ref` refers to; any other node unchanged."""
    name = node.get("$ref", "").rpartition("/")[2]
    return schema["$defs"][name] if name else node
