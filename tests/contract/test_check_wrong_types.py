"""A value of another kind than its key has is refused at its place."""

# ruff: noqa: E501  (each case is one line with its message)

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
    spoilt(
        "version is a number",
        "1.0.0",
        "1.0",
        "2:31 PV012 invalid value 1.0 for 'metadata.version': expected text (quote it)",
    ),
    spoilt(
        "subject is a path",
        "subject: tiny",
        "subject: ../tiny.py",
        "3:10 PV012 invalid value '../tiny.py' for 'subject': expected module or module:attribute",
    ),
    spoilt(
        "obligations are a mapping",
        "[{id: O, statement: doubling doubles}]",
        "{id: O}",
        "4:14 PV012 invalid value {'id': 'O'} for 'obligations': expected a list",
    ),
    spoilt(
        "test is outside",
        "falsifiers/falsify_tiny.py",
        "/etc/passwd.py",
        "11:9 PV012 invalid value '/etc/passwd.py::falsify_double' for 'falsifiers[0].test': expected path/to/file.py::function",
    ),
    spoilt(
        "kills twice",
        "[tripled]",
        "[tripled, tripled]",
        "12:10 PV012 invalid value ['tripled', 'tripled'] for 'falsifiers[0].kills': expected no duplicate item",
    ),
    spoilt(
        "an unknown device",
        "  kills:",
        "  devices: [tpu]\n  kills:",
        "12:13 PV012 invalid value 'tpu' for 'falsifiers[0].devices[0]': expected one of 'cpu', 'cuda'",
    ),
    spoilt(
        "no examples",
        "  kills:",
        "  examples: 0\n  kills:",
        "12:13 PV012 invalid value 0 for 'falsifiers[0].examples': expected at least 1",
    ),
    spoilt(
        "examples is a boolean",
        "  kills:",
        "  examples: true\n  kills:",
        "12:13 PV012 invalid value True for 'falsifiers[0].examples': expected a whole number",
    ),
    spoilt(
        "limit is no number",
        "  kills:",
        "  limit: .nan\n  kills:",
        "12:10 PV012 invalid value '.nan': expected a finite number; quote it if it is text",
    ),
    spoilt(
        "limit is negative",
        "  kills:",
        "  limit: -1e-6\n  kills:",
        "12:10 PV012 invalid value -1e-06 for 'falsifiers[0].limit': expected more than 0",
    ),
    spoilt(
        "two changes",
        "edit: {",
        "swap: {object: a:b, with: a:c}, edit: {",
        "14:3 PV012 invalid 'mutants[0]': expected exactly one of 'edit', 'swap'",
    ),
    (
        "a gate of words",
        GOOD + "qa_gate: {id: G, name: g, require: {mutants: some}}",
        "15:46 PV012 invalid value 'some' for 'qa_gate.require.mutants': expected 'all' or a list of ids",
    ),
    (
        "an unknown requirement",
        GOOD + "qa_gate: {id: G, name: g, require: {mutant: all}}",
        "15:37 PV010 unknown key 'mutant' in 'qa_gate.require'; did you mean 'mutants'?",
    ),
    (
        "a null key",
        GOOD + "? \n: 1",
        "15:2 PV010 unknown key '' in the contract; known: constants, domains, equations, equivalents, falsifiers, harnesses, kani_harnesses, metadata, mutants, mutation_scope, obligations, qa_gate, runs, schema, subject, subjects, suite, use",
    ),
    (
        "existing: metadata is text",
        "metadata: x\nequations: {}",
        "1:11 PV012 invalid value 'x' for 'metadata': expected a mapping",
    ),
]


@pytest.mark.parametrize(("content", "says"), [pytest.param(*rest, id=name) for name, *rest in KINDS])
def test_a_value_of_another_kind_is_refused_at_its_place(
    content: str, says: str, write: Write, refusals: Refusals
) -> None:
    assert refusals(write(content)) == [says]


def test_value_that_yaml_cut_at_its_comma_is_to_be_quoted(write: Write, refusals: Refusals) -> None:
    content = GOOD.replace("find: number * 2", "find: f(number, 2)")
    (found,) = refusals(write(content))
    assert "PV010 unknown key '2)' in 'mutants[0].edit'; quote the value: inside [ ] and { } YAML splits it" in found
