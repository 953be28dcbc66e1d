"""Pieces of a module that no change of tests/commands/test_reuse_changes.py shows."""

import pytest

from pv.source.pieces import outermost, pieces

SOURCE = """
def plain(x):
    def inner():
        return x
    return inner()

class Base:
    @property
    def method(self):
        return 1

@triton.jit
def kernel(x):
    return x
"""


@pytest.mark.parametrize(
    ("find", "replace"),
    [
        ("kernel(x):\n    return x", "kernel(x):\n    return -x"),  # it is compiled from its source
        ("return 1", "yield 1"),
        ("def plain", "async def plain"),
        ("    @property\n", ""),
    ],
)
def test_change_of_what_a_call_does_before_the_body_runs_is_one_of_the_import(find: str, replace: str) -> None:
    assert SOURCE.count(find) == 1
    assert pieces(SOURCE).at_import != pieces(SOURCE.replace(find, replace)).at_import


def test_definitions_of_one_name_are_one_piece() -> None:
    one = "if A:\n    def f():\n        return 1\nelse:\n    def f():\n        return 2\n"
    assert pieces(one).functions.keys() == {"f"}
    assert pieces(one).functions != pieces(one.replace("return 2", "return 3")).functions


def test_function_inside_another_belongs_to_it() -> None:
    functions = pieces(SOURCE).functions
    assert outermost("plain.inner", functions) == "plain"
    assert outermost("Base.method", functions) == "Base.method"
    assert outermost("kernel", functions) == ""
