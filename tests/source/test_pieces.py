"""Pieces of a module that no change of tests/commands/test_reuse_changes.py shows."""

from pv.source.pieces import outermost, pieces

SOURCE = """
def plain(x):
    def inner():
        return x
    return inner()

class Base:
    def method(self):
        return 1

@triton.jit
def kernel(x):
    return x
"""


def test_kernel_that_is_compiled_from_its_source_is_a_piece_of_the_import() -> None:
    before, after = pieces(SOURCE), pieces(SOURCE.replace("kernel(x):\n    return x", "kernel(x):\n    return -x"))
    assert before.at_import != after.at_import and before.functions == after.functions


def test_definitions_of_one_name_are_one_piece() -> None:
    one = "if A:\n    def f():\n        return 1\nelse:\n    def f():\n        return 2\n"
    assert pieces(one).functions.keys() == {"f"}
    assert pieces(one).functions != pieces(one.replace("return 2", "return 3")).functions


def test_function_inside_another_belongs_to_it() -> None:
    functions = pieces(SOURCE).functions
    assert outermost("plain.inner", functions) == "plain"
    assert outermost("Base.method", functions) == "Base.method"
    assert outermost("kernel", functions) == ""
