"""Reads the field's existing contract format into the same model.

Its falsifiers and harnesses are prose: these stay unbound, are counted, and never pass. What the format leaves open
(other spellings, extra keys) is accepted; see `existing_notices` for what is reported.
"""

from collections.abc import Iterator

from pv.contract.claims import Equation, Falsifier, Harness, Obligation
from pv.contract.existing_notices import notices
from pv.contract.finding import Finding
from pv.contract.model import Contract, Gate
from pv.contract.strict_yaml import Node


def build(tree: Node, stem: str) -> tuple[Contract, list[Finding]]:
    """Return the contract of a file in the existing format, and notices about what it states in vain."""
    meta = tree.value["metadata"]
    references = meta.get("references")
    gate = tree.get("qa_gate")
    contract = Contract(
        id=stem,
        version=_text(meta, "version"),
        description=_text(meta, "description").strip(),
        references=tuple(node.text for node in references.items()) if references else (),
        location=tree.location,
        strict=False,
        equations=tuple(_equations(tree.get("equations"))),
        obligations=tuple(_obligation(n, i) for i, n in enumerate(_entries(tree, "proof_obligations"), 1)),
        falsifiers=tuple(_falsifier(n, i) for i, n in enumerate(_entries(tree, "falsification_tests"), 1)),
        harnesses=tuple(_harness(n, i) for i, n in enumerate(_entries(tree, "kani_harnesses"), 1)),
        gate=Gate(id=_text(gate, "id"), name=_text(gate, "name"), location=gate.location) if gate else Gate(),
    )
    return contract, notices(tree)


def _text(node: Node | None, *keys: str) -> str:
    """Return the raw text of the first of `keys` that is there: `version: 1.0` is '1.0' and not a number."""
    for key in keys:
        found = node.get(key) if node is not None else None
        if found is not None and not isinstance(found.value, dict | list):
            return found.text
    return ""


def _entries(tree: Node, key: str) -> list[Node]:
    node = tree.get(key)
    return node.items() if node is not None else []


def _equations(node: Node | None) -> Iterator[Equation]:
    if node is None or node.value is None:
        return
    named = (
        list(node.value.items())
        if isinstance(node.value, dict)
        else [(_text(item, "id") or f"equation_{i}", item) for i, item in enumerate(node.items())]
    )
    for name, item in named:
        yield Equation(name=name, formula=_text(item, "formula").strip(), location=node.keys.get(name, item.location))


def _obligation(node: Node, number: int) -> Obligation:
    return Obligation(
        id=_text(node, "id") or f"obligation-{number}",
        statement=_text(node, "property", "statement").strip(),
        location=node.location,
    )


def _falsifier(node: Node, number: int) -> Falsifier:
    return Falsifier(
        id=_text(node, "id") or f"falsifier-{number}",
        rule=_text(node, "rule", "description", "name").strip(),
        prediction=_text(node, "prediction", "expected").strip(),
        if_fails=_text(node, "if_fails", "fails_if").strip(),
        location=node.location,
        test=None,
    )


def _harness(node: Node, number: int) -> Harness:
    return Harness(
        id=_text(node, "id") or f"harness-{number}",
        rule=_text(node, "property", "description").strip(),
        prediction="",
        if_fails="",
        location=node.location,
        test=None,
    )
