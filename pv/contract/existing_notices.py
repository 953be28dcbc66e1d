"""Finds what a contract in the field's existing format states in vain: unread keys, wrong numbers, dangling references.

They are notices: the format leaves much open, and nothing in such a file is run.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator

from pv.contract.finding import Finding, notice
from pv.contract.strict_yaml import Node

# The keys that the format defines, by the path of their mapping. Those that pv does not read are documentation.
KNOWN = {
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
    **{f"equations.*.{texts}.*": set() for texts in ("invariants", "preconditions", "postconditions")},
    **{f"{texts}.*": set() for texts in ("metadata.references", "qa_gate.checks")},
}
SCOPES = {"all", "scalar", "simd", "converter", "not_applicable"}
# Counts in the text of 'pass_criteria', and the blocks that they count.
COUNTED = {
    re.compile(r"\b(\d{1,9}) (?:falsification|FALSIFY) tests?\b"): "falsification_tests",
    re.compile(r"\b(\d{1,9}) Kani harness(?:es)?\b"): "kani_harnesses",
}
ENFORCED_BY = re.compile(r"\bcontract_tests::([\w.-]+)")


def notices(tree: Node) -> list[Finding]:
    """Return a notice for every key that is not read, number that contradicts the file, and dangling reference."""
    found = (*_unread(tree), *_miscounted(tree), *_dangling(tree))
    return sorted(found, key=lambda each: (each.location.line, each.location.column))


def _unread(tree: Node) -> Iterator[Finding]:
    for path, known in KNOWN.items():
        block = f" in {path.removesuffix('.*').rpartition('.')[2]!r}" if path else ""
        for node in _nodes(tree, path):
            for key, location in node.keys.items():
                if key not in known:
                    message = f"unknown key {key!r}{block}: pv does not read it"
                    yield notice("PV201", location, message, "no result depends on it")


def _miscounted(tree: Node) -> Iterator[Finding]:
    exact, most = _counts(tree)
    for key, number in (exact | most).items():
        for node in _nodes(tree, f"verification_summary.{key}"):
            if type(node.value) is not int:
                yield _wrong(node, f"{key!r} is {node.text!r}; expected a number")
            elif node.value > number or (node.value < number and key in exact):
                least = "at most " if key in most else ""
                yield _wrong(node, f"{key!r} is {node.value}; the file has {least}{number}")
    for pattern, block in COUNTED.items():
        number = _number(tree, block)
        for node in _nodes(tree, "qa_gate.pass_criteria"):
            for stated in sorted({*pattern.findall(node.text)} - {str(number)}):
                yield _wrong(node, f"'pass_criteria' counts {stated} {block}; the file has {number}")


def _counts(tree: Node) -> tuple[dict[str, int], dict[str, int]]:
    """Return what the numbers of the summary must be, and what they can be at most."""
    obligations, harnesses = (_number(tree, block) for block in ("proof_obligations", "kani_harnesses"))
    lean = Counter(_text(node.get("status")) or "sorry" for node in _nodes(tree, "proof_obligations.*.lean"))
    applicable = lean["proved"] + lean["sorry"] + lean["wip"]
    exact = {"total_obligations": obligations, "l4_lean_proved": lean["proved"], "l4_sorry_count": lean["sorry"]}
    tested = obligations if _number(tree, "falsification_tests") else 0
    most = {"l2_property_tested": tested, "l3_kani_proved": min(obligations, harnesses)}
    return exact, {**most, "l4_not_applicable": obligations - applicable}


def _number(tree: Node, block: str) -> int:
    return sum(1 for _ in _nodes(tree, f"{block}.*"))


def _wrong(node: Node, message: str) -> Finding:
    return notice("PV205", node.location, message, "correct one of them")


def _dangling(tree: Node) -> Iterator[Finding]:
    for path, (kind, names) in _targets(tree).items():
        for node in _nodes(tree, path):
            for each in node.items() or [node]:
                if (name := _text(each)) and name not in names:
                    yield _lost(each, path, name, f"{kind} of this file")
    tests = _names(tree, "falsification_tests.*.id")
    for node in _nodes(tree, "enforcement.*.check"):
        for name in ENFORCED_BY.findall(node.text):
            if name not in tests:
                yield _lost(node, "enforcement.*.check", name, "a falsification test of this file")
    for node in _nodes(tree, "metadata.depends_on.*"):
        beside = node.location.path.parent / f"{_text(node)}.yaml"
        if not os.path.exists(beside):  # noqa: PTH110  (Path.exists raises for a name that is too long)
            yield _lost(node, "metadata.depends_on", _text(node), "a contract beside this file")


def _targets(tree: Node) -> dict[str, tuple[str, set[str]]]:
    """Return what each reference may name, by its path: in words, and the names that exist."""
    obligations = _names(tree, *(f"proof_obligations.*.{key}" for key in ("id", "property", "statement")))
    named = tree.get("equations")
    equations = _names(tree, "equations.*.id") | (named.keys.keys() if named is not None else set())
    return {
        "kani_harnesses.*.obligation": ("an obligation or equation", obligations | equations),
        "proof_obligations.*.requires": ("an obligation", obligations),
        "proof_obligations.*.applies_to": ("an equation", equations | SCOPES),
        "proof_obligations.*.applies_to_phase": ("a phase", _names(tree, "kernel_structure.phases.*.name")),
        "proof_obligations.*.parent_contract": ("in 'depends_on'", _names(tree, "metadata.depends_on.*")),
    }


def _lost(node: Node, path: str, name: str, kind: str) -> Finding:
    message = f"{path.rpartition('.')[2]!r} names {name[:200]!r}, which is not {kind}"
    return notice("PV206", node.location, message, "nothing checks what it names")


def _nodes(node: Node, path: str) -> Iterator[Node]:
    """Yield the nodes at a path of keys; `*` is every item of a list, and every value of a mapping."""
    step, _, rest = path.partition(".")
    if not step:
        yield node
    elif step == "*":
        for each in node.value.values() if isinstance(node.value, dict) else node.items():
            yield from _nodes(each, rest)
    elif (inside := node.get(step)) is not None:
        yield from _nodes(inside, rest)


def _names(tree: Node, *paths: str) -> set[str]:
    return {_text(node) for path in paths for node in _nodes(tree, path)} - {""}


def _text(node: Node | None) -> str:
    """Return the text of a scalar on one line; "" for anything else."""
    return " ".join(node.text.split()) if node is not None else ""
