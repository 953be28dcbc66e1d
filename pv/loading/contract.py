"""Builds a Contract from the tree of a `pv/1` file that the schema has accepted."""

from collections.abc import Callable, Iterator
from typing import Any

from pv.loading.strict_yaml import Node
from pv.model import (
    Binding,
    Contract,
    Edit,
    Equation,
    Equivalent,
    Falsifier,
    Gate,
    Harness,
    Mutant,
    Mutated,
    NotClaimed,
    Obligation,
    OtherSubject,
    Run,
    Swap,
    Target,
    Where,
)


def build(tree: Node) -> Contract:
    """The contract of a tree that follows the schema `contract`."""
    raw: dict[str, Any] = tree.plain()
    meta = raw["metadata"]
    return Contract(
        id=meta["id"],
        version=meta["version"],
        description=meta["description"],
        references=tuple(meta["references"]),
        where=tree.where,
        strict=True,
        subject=_target(raw.get("subject")),
        equations=tuple(_equation(tree, name) for name in raw.get("equations", {})),
        obligations=tuple(Obligation(**item.plain(), where=item.where) for item in _list(tree, "obligations")),
        falsifiers=tuple(_falsifier(item) for item in _list(tree, "falsifiers")),
        runs=tuple(_run(item) for item in _list(tree, "runs")),
        mutants=tuple(_mutant(item) for item in _list(tree, "mutants")),
        subjects=tuple(_other(item) for item in _list(tree, "subjects")),
        equivalents=tuple(_equivalent(item) for item in _list(tree, "equivalents")),
        mutated=tuple(Mutated(target=Target.parse(i.value), where=i.where) for i in _list(tree, "mutated")),
        harnesses=tuple(_harness(item) for key in ("harnesses", "kani_harnesses") for item in _list(tree, key)),
        gate=_gate(tree.get("qa_gate")),
    )


def _list(tree: Node, key: str) -> list[Node]:
    node = tree.get(key)
    return node.items() if node is not None else []


def _target(text: str | None) -> Target | None:
    return Target.parse(text) if text is not None else None


def _binding(text: str) -> Binding:
    file, _, name = text.partition("::")
    return Binding(file, name)


PROSE = ("formula", "unit", "description", "source")


def _equation(tree: Node, name: str) -> Equation:
    node = tree.value["equations"].value[name]
    raw: dict[str, Any] = node.plain()
    return Equation(
        name=name,
        where=tree.value["equations"].keys[name],
        executable={key: value for key, value in raw.items() if key not in PROSE},
        texts=dict(_texts(node)),
        **{key: value for key, value in raw.items() if key in PROSE},
    )


def _texts(node: Node) -> Iterator[tuple[str, Callable[[int, int], Where]]]:
    """For each key, and `invariants/0` or `domain/x` for what is in it: from a place in its text to one in the file."""
    for key, value in node.value.items():
        inner = value.value.items() if isinstance(value.value, dict) else enumerate(value.items())
        for name, each in [(key, value), *((f"{key}/{place}", item) for place, item in inner)]:
            yield name, each.inside.place if each.inside is not None else _always(each.where)


def _always(where: Where) -> Callable[[int, int], Where]:
    return lambda line, column: where


def _falsifier(node: Node) -> Falsifier:
    raw: dict[str, Any] = node.plain()
    return Falsifier(
        id=raw["id"],
        rule=raw["rule"].strip(),
        prediction=raw["prediction"].strip(),
        if_fails=raw["if_fails"].strip(),
        where=node.where,
        test=_binding(raw["test"]) if "test" in raw else None,
        obligation=raw.get("obligation"),
        equation=raw.get("equation"),
        subject=_target(raw.get("subject")),
        devices=tuple(raw.get("devices", ("cpu",))),
        kills=tuple(raw.get("kills", ())),
        run=raw.get("run"),
        examples=int(raw.get("examples", 100)),
        limit_s=float(raw.get("limit", 60)),
        places=_places(node),
    )


def _harness(node: Node) -> Harness:
    raw: dict[str, Any] = node.plain()
    return Harness(
        id=raw["id"],
        rule=raw["rule"].strip(),
        prediction=raw.get("prediction", "").strip(),
        if_fails=raw["if_fails"].strip(),
        where=node.where,
        test=_binding(raw["predicate"]),
        obligation=raw.get("obligation"),
        equation=raw.get("equation"),
        subject=_target(raw.get("subject")),
        kills=tuple(raw.get("kills", ())),
        limit_s=float(raw.get("limit", 60)),
        places=_places(node) | {"test": node.value["predicate"].where},
        bounds=raw["bounds"],
        requires=raw.get("requires", ""),
        engine=raw.get("engine", ""),
    )


def _places(node: Node) -> dict[str, Where]:
    places = {key: value.where for key, value in node.value.items()}
    for key, value in node.value.items():
        places.update({f"{key}/{index}": item.where for index, item in enumerate(value.items())})
        places.update({f"{key}/{name}": item.where for name, item in _entries(value)})
    return places


def _entries(node: Node) -> Iterator[tuple[str, Node]]:
    if isinstance(node.value, dict):
        yield from node.value.items()


def _run(node: Node) -> Run:
    raw: dict[str, Any] = node.plain()
    return Run(
        name=raw["name"],
        callable=_binding(raw["callable"]),
        arguments=raw.get("arguments", {}),
        small=raw.get("small"),
        where=node.where,
        subject=_target(raw.get("subject")),
        limit_s=float(raw.get("limit", 120)),
    )


def _mutant(node: Node) -> Mutant:
    raw: dict[str, Any] = node.plain()
    change: Edit | Swap
    if "edit" in raw:
        edit = raw["edit"]
        change = Edit(function=Target.parse(edit["function"]), find=edit["find"], replace=edit["replace"])
    else:
        change = Swap(object=Target.parse(raw["swap"]["object"]), replacement=Target.parse(raw["swap"]["with"]))
    return Mutant(
        id=raw["id"], fault=raw["fault"].strip(), change=change, where=node.where, seen_in=raw.get("seen_in", "")
    )


def _other(node: Node) -> OtherSubject:
    raw: dict[str, Any] = node.plain()
    return OtherSubject(
        name=raw["name"],
        target=Target.parse(raw["target"]),
        where=node.where,
        package=raw.get("package", ""),
        claims_as=raw.get("claims_as", ""),
        not_claimed=tuple(_not_claimed(item) for item in _list(node, "not_claimed")),
    )


def _not_claimed(node: Node) -> NotClaimed:
    raw: dict[str, Any] = node.plain()
    return NotClaimed(
        falsifiers=tuple(raw["falsifiers"]),
        why=raw["why"].strip(),
        reference=raw["reference"].strip(),
        places=tuple(item.where for item in _list(node, "falsifiers")),
    )


def _equivalent(node: Node) -> Equivalent:
    raw: dict[str, Any] = node.plain()
    change = Edit(function=Target.parse(raw["function"]), find=raw["find"], replace=raw["replace"])
    return Equivalent(change=change, reason=raw["reason"].strip(), where=node.where)


def _gate(node: Node | None) -> Gate:
    if node is None:
        return Gate()
    raw: dict[str, Any] = node.plain()
    require = raw.get("require", {})
    return Gate(
        id=raw["id"],
        name=raw["name"],
        falsifiers=_selection(require.get("falsifiers", "all")),
        mutants=_selection(require.get("mutants", "all")),
        harnesses=_selection(require.get("harnesses", "proved")),
        devices=frozenset({"cuda"} if require.get("cuda") == "fresh" else ()),
        mutation_score=require.get("mutation_score"),
        where=node.where,
    )


def _selection(value: Any) -> frozenset[str] | None:
    return None if value in ("all", "proved") else frozenset(value)
