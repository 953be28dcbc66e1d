"""State that outlives a call: globals, mutable defaults, caches, and objects of the module."""

import ast
from pathlib import Path

import pytest

from pv.engines.harness.modules import module_of
from pv.engines.harness.state import kept_state


def kept(text: str) -> list[str]:
    module = module_of("m", Path("m.py"), ast.parse(text))
    return [
        state
        for d in module.definitions
        if d.name == "f"
        for state in kept_state(d, {"subject", "ops", "package.ops"}.__contains__)
    ]


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("def f(n):\n    global total\n    total = n\n", "assigns the global 'total'"),
        ("seen = []\ndef f(n): seen.append(n)\n", "changes 'seen', which outlives the call"),
        ("seen = {}\ndef f(n): seen[n] = 1\n", "changes 'seen[n]', which outlives the call"),
        ("def f(n, seen=[]): seen += [n]; seen.append(n)\n", "changes 'seen', which outlives the call"),
        ("import m\ndef f(n): m.total += n\n", "changes 'm.total', which outlives the call"),
        (
            "import functools as t\n@t.lru_cache(8)\ndef f(n): return n\n",
            "keeps its results in a t.lru_cache",
        ),
        ("numbers = iter([])\ndef f(n): return next(numbers)\n", "changes 'numbers', which outlives the call"),
        ("def f(subject, n): subject.total = n\n", "changes 'subject.total', which outlives the call"),
    ],
)
def test_state_that_outlives_the_call_is_named(text: str, state: str) -> None:
    assert kept(text) == [state]


@pytest.mark.parametrize(
    "text",
    [
        "def f(n):\n    seen = []\n    seen.append(n)\n    return seen\n",
        "seen = []\ndef f(n): return [*seen, n]\n",
        "def f(items, n): items.append(n)\n",
        "seen = []\ndef f(n):\n    seen = {}\n    seen[n] = 1\n",
    ],
)
def test_local_state_and_arguments_are_not_kept(text: str) -> None:
    assert kept(text) == []


def test_a_call_of_a_modules_function_changes_nothing() -> None:
    assert kept("import ops\ndef f(subject, n): return subject.add(n, 1) + ops.update(n)\n") == []
    assert kept("from package import ops\ndef f(n): return ops.append(n, 1)\n") == []
    changes = "changes 'ops', which outlives the call"
    assert kept("from elsewhere import ops\ndef f(n): return ops.append(n)\n") == [changes]
    assert kept("import ops\ndef f(n): ops.rows.append(n)\n") == ["changes 'ops.rows', which outlives the call"]
    assert kept("def f(subject, n): subject.rows = n\n") == ["changes 'subject.rows', which outlives the call"]
