"""Coverage of statements: each statement that runs is recorded under its line and column."""

import ast
from typing import Any

from pv.instrument.coverage import instrument, seen

SOURCE = '''def f(a):
    """A text."""
    if a > 1:
        b = [c
             for c in range(a)]
    elif a == 1:
        return g(a)
    else:
        try:
            b = 1 // a
        except ZeroDivisionError:
            b = 0
        finally:
            a = 2
    def g(d):
        return d
    return b
'''


def run(*arguments: Any) -> tuple[Any, set[str]]:
    tree = ast.parse(SOURCE)
    instrument(tree, "m", statements=True)
    names: dict[str, Any] = {}
    before = set(seen)
    try:
        seen.clear()
        exec(compile(tree, "m", "exec"), names)
        return names["f"](*arguments), set(seen)
    finally:
        seen.clear()
        seen.update(before)


def test_every_statement_that_runs_is_noted_and_no_other() -> None:
    given, noted = run(2)
    assert given == [0, 1]
    assert noted == {"m:f", "m:f@3:4", "m:f@4:8", "m:f@15:4", "m:f@17:4"}
    given, noted = run(0)
    assert given == 0
    assert {"m:f@10:12", "m:f@12:12", "m:f@14:12"} <= noted and "m:f@4:8" not in noted


def test_functions_alone_are_noted_without_being_asked_for_more() -> None:
    tree = ast.parse(SOURCE)
    instrument(tree, "m")
    assert "@" not in ast.unparse(tree)
