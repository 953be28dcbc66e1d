"""Read a contract of the provable-contracts format into the same model as a `pv/1` contract.

Falsifiers and harnesses in this format are plain text: they are counted but never run, so they never pass. Alternative
names of keys, and keys that the format does not define, are accepted. Unknown keys, wrong counts and dangling
references are reported as notices, not as errors: the authors of such a file did not write it for pv.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator

from pv.contract.finding import Finding, notice
from pv.contract.model import Contract, Equation, Falsifier, Gate, Harness, Obligation
from pv.contract.strict_yaml import Node

# The keys that the format defines, by the path of their mapping. pv reads some of them; the others are documentation.
# Source: the contracts of the format's own repository; tests/corpus has copies of them.
FORMAT_KEYS = {
    "": {
        *("metadata", "equations", "proof_obligations", "falsification_tests", "kani_harnesses", "qa_gate"),
        *("kernel_structure", "simd_dispatch", "enforcement", "verification_summary", "type_invariants"),
    },
    "metadata": {"version", "created", "author", "description", "references", "depends_on", "kind", "registry"},
    "equations.*": {
        *("id", "formula", "domain", "codomain", "invariants", "preconditions", "postconditions"),
        *("lean_theorem", "float_tolerance", "assumes", "guarantees"),
    },
    "proof_obligations.*": {
        *("id", "type", "property", "statement", "formal", "verification", "tolerance", "applies_to"),
        *("applies_to_phase", "lean", "requires", "parent_contract", "na_reason", "na_owner"),
    },
    "proof_obligations.*.lean": {"theorem", "module", "status", "depends_on", "mathlib_imports", "notes"},
    "kernel_structure": {"phases"},
    "kernel_structure.phases.*": {"name", "description", "invariant"},
    "enforcement.*": {"description", "check", "severity", "reference"},
    "falsification_tests.*": {
        *("id", "name", "rule", "description", "prediction", "expected"),
        *("if_fails", "fails_if", "test", "command", "test_harness"),
    },
    "kani_harnesses.*": {
        *("id", "obligation", "property", "description", "bound", "strategy", "solver", "harness"),
        "actually_verified",
    },
    "qa_gate": {"id", "name", "description", "checks", "pass_criteria", "falsification"},
    "verification_summary": {
        *("total_obligations", "l2_property_tested", "l3_kani_proved"),
        *("l4_lean_proved", "l4_sorry_count", "l4_not_applicable"),
    },
    "type_invariants.*": {"name", "type", "predicate", "description"},
    # The items of these lists are texts: a mapping among them has no defined key.
    **{f"equations.*.{texts}.*": set() for texts in ("invariants", "preconditions", "postconditions")},
    **{f"{texts}.*": set() for texts in ("metadata.references", "qa_gate.checks")},
}
SCOPES = {"all", "scalar", "simd", "converter", "not_applicable"}
"""The values of `applies_to` that name no equation."""
# Patterns of the counts in the text of 'pass_criteria', and the blocks that they count.
COUNTED = {
    re.compile(r"\b(\d{1,9}) (?:falsification|FALSIFY) tests?\b"): "falsification_tests",
    re.compile(r"\b(\d{1,9}) Kani harness(?:es)?\b"): "kani_harnesses",
}
ENFORCED_BY = re.compile(r"\bcontract_tests::([\w.-]+)")


def build(tree: Node, stem: str) -> tuple[Contract, list[Finding]]:
    """Return the contract of a file in the provable-contracts format, and the notices about it.

    Args:
        tree: The tree of the file, which follows the schema `existing`.
        stem: The name of the file without its ending, which becomes the id of the contract.
    """
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
    """Return the text of the first of `keys` that has a scalar, as it is written; "" if none has."""
    for key in keys:
        value = node.get(key) if node is not None else None
        if value is not None and not isinstance(value.value, dict | list):
            return value.text  # not `value.value`: `version: 1.0` means the text '1.0', not a number
    return ""


def _entries(tree: Node, key: str) -> list[Node]:
    node = tree.get(key)
    return node.items() if node is not None else []


def _equations(node: Node | None) -> Iterator[Equation]:
    if node is None or node.value is None:
        return
    # The format allows a mapping by name, and a list whose items may have an `id`.
    equations = (
        list(node.value.items())
        if isinstance(node.value, dict)
        else [(_text(item, "id") or f"equation_{i}", item) for i, item in enumerate(node.items())]
    )
    for name, item in equations:
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
    )


def _harness(node: Node, number: int) -> Harness:
    return Harness(
        id=_text(node, "id") or f"harness-{number}",
        rule=_text(node, "property", "description").strip(),
        if_fails="",
        location=node.location,
    )


def notices(tree: Node) -> list[Finding]:
    """Return a notice for every unknown key, every wrong count and every dangling reference, in order of location."""
    findings = (*_unknown_keys(tree), *_wrong_counts(tree), *_dangling_references(tree))
    return sorted(findings, key=lambda finding: (finding.location.line, finding.location.column))


def _unknown_keys(tree: Node) -> Iterator[Finding]:
    for path, format_keys in FORMAT_KEYS.items():
        block = f" in {path.removesuffix('.*').rpartition('.')[2]!r}" if path else ""
        for node in _nodes(tree, path):
            for key, location in node.keys.items():
                if key not in format_keys:
                    message = f"unknown key {key!r}{block}: pv does not read it"
                    yield notice("PV201", location, message, "no result depends on it")


def _wrong_counts(tree: Node) -> Iterator[Finding]:
    exact, limits = _summary_counts(tree)
    for key, number in (exact | limits).items():
        for node in _nodes(tree, f"verification_summary.{key}"):
            if type(node.value) is not int:
                yield _wrong_count(node, f"{key!r} is {node.text!r}; expected a number")
            elif node.value > number or (node.value < number and key in exact):
                at_most = "at most " if key in limits else ""
                yield _wrong_count(node, f"{key!r} is {node.value}; the file has {at_most}{number}")
    for pattern, block in COUNTED.items():
        number = _count(tree, block)
        for node in _nodes(tree, "qa_gate.pass_criteria"):
            for stated in sorted({*pattern.findall(node.text)} - {str(number)}):
                yield _wrong_count(node, f"'pass_criteria' counts {stated} {block}; the file has {number}")


def _summary_counts(tree: Node) -> tuple[dict[str, int], dict[str, int]]:
    """Return the correct numbers of `verification_summary` by key, and upper limits where the number is unknown."""
    obligations, harnesses = (_count(tree, block) for block in ("proof_obligations", "kani_harnesses"))
    lean = Counter(_one_line(node.get("status")) or "sorry" for node in _nodes(tree, "proof_obligations.*.lean"))
    applicable = lean["proved"] + lean["sorry"] + lean["wip"]
    # The file does not say which obligations are tested or proved by Kani, so these numbers have only upper limits.
    exact = {"total_obligations": obligations, "l4_lean_proved": lean["proved"], "l4_sorry_count": lean["sorry"]}
    tested = obligations if _count(tree, "falsification_tests") else 0
    limits = {"l2_property_tested": tested, "l3_kani_proved": min(obligations, harnesses)}
    return exact, {**limits, "l4_not_applicable": obligations - applicable}


def _count(tree: Node, block: str) -> int:
    return sum(1 for _ in _nodes(tree, f"{block}.*"))


def _wrong_count(node: Node, message: str) -> Finding:
    return notice("PV205", node.location, message, "correct the number or the file")


def _dangling_references(tree: Node) -> Iterator[Finding]:
    for path, (kind, names) in _targets(tree).items():
        for node in _nodes(tree, path):
            for reference in node.items() or [node]:
                if (name := _one_line(reference)) and name not in names:
                    yield _dangling(reference, path, name, f"{kind} of this file")
    tests = _names(tree, "falsification_tests.*.id")
    # A check refers to a test as `contract_tests::ID`.
    for node in _nodes(tree, "enforcement.*.check"):
        for name in ENFORCED_BY.findall(node.text):
            if name not in tests:
                yield _dangling(node, "enforcement.*.check", name, "a falsification test of this file")
    for node in _nodes(tree, "metadata.depends_on.*"):
        dependency = node.location.path.parent / f"{_one_line(node)}.yaml"
        if not os.path.exists(dependency):  # noqa: PTH110  (Path.exists raises for a name that is too long)
            yield _dangling(node, "metadata.depends_on", _one_line(node), "a contract beside this file")


def _targets(tree: Node) -> dict[str, tuple[str, set[str]]]:
    """Return, by path of a reference, the kind of object that the reference must name (as text) and the valid names."""
    obligations = _names(tree, *(f"proof_obligations.*.{key}" for key in ("id", "property", "statement")))
    by_name = tree.get("equations")
    equations = _names(tree, "equations.*.id") | (by_name.keys.keys() if by_name is not None else set())
    return {
        "kani_harnesses.*.obligation": ("an obligation or equation", obligations | equations),
        "proof_obligations.*.requires": ("an obligation", obligations),
        "proof_obligations.*.applies_to": ("an equation", equations | SCOPES),
        "proof_obligations.*.applies_to_phase": ("a phase", _names(tree, "kernel_structure.phases.*.name")),
        "proof_obligations.*.parent_contract": ("in 'depends_on'", _names(tree, "metadata.depends_on.*")),
    }


def _dangling(node: Node, path: str, name: str, kind: str) -> Finding:
    message = f"{path.rpartition('.')[2]!r} names {name[:200]!r}, which is not {kind}"
    return notice("PV206", node.location, message, "correct the name, or remove the reference")


def _nodes(node: Node, path: str) -> Iterator[Node]:
    """Yield the nodes at a path of keys; `*` is every item of a list, and every value of a mapping."""
    step, _, rest = path.partition(".")
    if not step:
        yield node
    elif step == "*":
        for item in node.value.values() if isinstance(node.value, dict) else node.items():
            yield from _nodes(item, rest)
    elif (value := node.get(step)) is not None:
        yield from _nodes(value, rest)


def _names(tree: Node, *paths: str) -> set[str]:
    return {_one_line(node) for path in paths for node in _nodes(tree, path)} - {""}


def _one_line(node: Node | None) -> str:
    """Return the text of a scalar on one line; "" for anything else."""
    return " ".join(node.text.split()) if node is not None else ""
