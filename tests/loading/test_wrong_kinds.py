"""A value of another kind than its key has is refused at its place."""

# ruff: noqa: E501  (a case and what is said of it stand in one line)

from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[[str | bytes], Path]
Refusals = Callable[[Path], list[str]]

GOOD = (Path(__file__).parents[1] / "bad_contracts" / "good.yaml").read_text(encoding="utf-8")


def spoilt(name: str, old: str, new: str, says: str) -> tuple[str, str, str]:
    """The sound contract with one place changed."""
    assert GOOD.count(old) == 1, old
    return name, GOOD.replace(old, new), says


KINDS = [
    spoilt("version is a number", "1.0.0", "1.0", "2:31 PV012 metadata.version: must be text (quote it), not 1.0"),
    spoilt(
        "references are text",
        "[the definition]",
        "the definition",
        "2:73 PV012 metadata.references: must be a list, not 'the definition'",
    ),
    spoilt(
        "references are numbers",
        "[the definition]",
        "[1]",
        "2:74 PV012 metadata.references[0]: must be text (quote it), not 1",
    ),
    spoilt(
        "an id in two lines",
        "id: good",
        'id: "good\\n"',
        "2:16 PV012 metadata.id: must look like ^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$, not 'good\\n'",
    ),
    spoilt("subject is empty", "subject: tiny", "subject:", "3:9 PV012 subject: must be text (quote it), not None"),
    spoilt(
        "subject is a path",
        "subject: tiny",
        "subject: ../tiny.py",
        "3:10 PV012 subject: must look like module or module:attribute, not '../tiny.py'",
    ),
    spoilt(
        "obligations are a mapping",
        "[{id: O, statement: doubling doubles}]",
        "{id: O}",
        "4:14 PV012 obligations: must be a list, not {'id': 'O'}",
    ),
    spoilt(
        "an obligation is text",
        "[{id: O, statement: doubling doubles}]",
        "[O]",
        "4:15 PV012 obligations[0]: must be a mapping, not 'O'",
    ),
    spoilt(
        "test is outside",
        "falsifiers/falsify_tiny.py",
        "/etc/passwd.py",
        "11:9 PV012 falsifiers[0].test: must look like path/to/file.py::function, not '/etc/passwd.py::falsify_double'",
    ),
    spoilt("kills is text", "[tripled]", "tripled", "12:10 PV012 falsifiers[0].kills: must be a list, not 'tripled'"),
    spoilt(
        "kills twice",
        "[tripled]",
        "[tripled, tripled]",
        "12:10 PV012 falsifiers[0].kills: must not repeat an item, not ['tripled', 'tripled']",
    ),
    spoilt(
        "an unknown device",
        "  kills:",
        "  devices: [tpu]\n  kills:",
        "12:13 PV012 falsifiers[0].devices[0]: must be one of 'cpu', 'cuda', not 'tpu'",
    ),
    spoilt(
        "no device",
        "  kills:",
        "  devices: []\n  kills:",
        "12:12 PV012 falsifiers[0].devices: must not be empty, not []",
    ),
    spoilt(
        "no examples",
        "  kills:",
        "  examples: 0\n  kills:",
        "12:13 PV012 falsifiers[0].examples: must be at least 1, not 0",
    ),
    spoilt(
        "examples is a boolean",
        "  kills:",
        "  examples: true\n  kills:",
        "12:13 PV012 falsifiers[0].examples: must be a whole number, not True",
    ),
    spoilt(
        "limit is no number",
        "  kills:",
        "  limit: .nan\n  kills:",
        "12:10 PV012 the number '.nan' is not finite; quote it if it is text",
    ),
    spoilt(
        "limit is negative",
        "  kills:",
        "  limit: -1e-6\n  kills:",
        "12:10 PV012 falsifiers[0].limit: must be more than 0, not -1e-06",
    ),
    spoilt(
        "a bad equation name",
        "obligations:",
        "equations: {a b: {formula: x}}\nobligations:",
        "4:13 PV012 equations: a key must look like ^[A-Za-z_][A-Za-z0-9_]{0,99}$, not 'a b'",
    ),
    spoilt(
        "two changes",
        "edit: {",
        "swap: {object: a:b, with: a:c}, edit: {",
        "14:3 PV012 mutants[0] needs exactly one of 'edit', 'swap'",
    ),
    (
        "a gate of words",
        GOOD + "qa_gate: {id: G, name: g, require: {mutants: some}}",
        "15:46 PV012 qa_gate.require.mutants: must be 'all' or a list of ids, not 'some'",
    ),
    (
        "an unknown requirement",
        GOOD + "qa_gate: {id: G, name: g, require: {mutant: all}}",
        "15:37 PV010 qa_gate.require has no key 'mutant'; did you mean 'mutants'?",
    ),
    (
        "merge key as a key",
        GOOD + "<<: 1",
        "15:1 PV010 the contract has no key '<<'; known: equations, equivalents, falsifiers, harnesses, kani_harnesses, metadata, mutants, mutated, obligations, qa_gate, runs, schema, subject, subjects",
    ),
    (
        "a null key",
        GOOD + "? \n: 1",
        "15:2 PV010 the contract has no key ''; known: equations, equivalents, falsifiers, harnesses, kani_harnesses, metadata, mutants, mutated, obligations, qa_gate, runs, schema, subject, subjects",
    ),
    ("existing: metadata is text", "metadata: x\nequations: {}", "1:11 PV012 metadata: must be a mapping, not 'x'"),
    (
        "existing: equations are numbers",
        "metadata: {}\nequations: [1]",
        "2:12 PV012 equations: must be a mapping or a list of equations, not [1]",
    ),
    (
        "existing: references are text",
        "metadata: {references: x}\nequations: {}",
        "1:24 PV012 metadata.references: must be a list or nothing, not 'x'",
    ),
    (
        "existing: tests are a mapping",
        "metadata: {}\nfalsification_tests: {a: 1}",
        "2:22 PV012 falsification_tests: must be a list or nothing, not {'a': 1}",
    ),
    (
        "existing: a test is text",
        "metadata: {}\nfalsification_tests: [a]",
        "2:23 PV012 falsification_tests[0]: must be a mapping, not 'a'",
    ),
]


@pytest.mark.parametrize(("content", "says"), [pytest.param(*rest, id=name) for name, *rest in KINDS])
def test_a_value_of_another_kind_is_refused_at_its_place(
    content: str, says: str, write: Write, refusals: Refusals
) -> None:
    assert refusals(write(content)) == [says]
