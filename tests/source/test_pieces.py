"""Which pieces of a module an edit changes."""

import pytest

from pv.source.pieces import outermost, pieces

SOURCE = """
'''A module.'''
LIMIT = 3

def plain(x, y=1):
    '''Add.'''
    def inner():
        return x
    return inner() + y  # a comment

@command
def shown(x):
    '''Help.'''
    return x

class Base(Model):
    '''A schema.'''
    size = 4

    def method(self):
        '''Return.'''
        return [each for each in ()]

@triton.jit
def kernel(x):
    return x
"""
NOTHING = frozenset[str]()


def changed(find: str, replace: str) -> frozenset[str]:
    """Return the pieces that an edit changes."""
    assert SOURCE.count(find) == 1
    before, after = pieces(SOURCE), pieces(SOURCE.replace(find, replace))
    single = {n for n in ("at_import", "docs", "shown_docs", "constants") if getattr(before, n) != getattr(after, n)}
    names = {*before.functions, *after.functions}
    return frozenset(single | {n for n in names if before.functions.get(n) != after.functions.get(n)})


@pytest.mark.parametrize(
    ("find", "replace", "pieces"),
    [
        ("# a comment", "", {}),
        ("inner() + y", "(inner()\n        + y)", {}),
        ("Add.", "Sum.", {"docs"}),
        ("A module.", "Another.", {"docs"}),
        ("Help.", "Text.", {"docs", "shown_docs"}),
        ("A schema.", "Fields.", {"docs", "shown_docs"}),
        ("Return.", "Give.", {"docs"}),
        ("inner() + y", "inner() - y", {"plain"}),
        ("        return x\n    return inner", "        return -x\n    return inner", {"plain"}),
        ("LIMIT = 3", "LIMIT = 5", {"at_import", "constants"}),
        ("y=1", "y=4", {"at_import", "constants"}),
        ("y=1", "*, y=1", {"at_import"}),
        ("@command\n", "", {"at_import", "shown_docs"}),
        ("Base(Model)", "Base", {"at_import", "shown_docs"}),
        ("size = 4", "size = 3", {"at_import", "constants"}),
        ("[each for each in ()]", "[each for each in (1,)]", {"Base.method"}),
        ("return [each", "yield [each", {"at_import", "Base.method"}),
        ("def kernel(x):\n    return x", "def kernel(x):\n    return -x", {"at_import"}),
        ("def plain", "async def plain", {"at_import"}),
    ],
)
def test_edit_changes_the_pieces_that_hold_it(find: str, replace: str, pieces: set[str]) -> None:
    assert changed(find, replace) == frozenset(pieces)


def test_definitions_of_one_name_are_one_piece() -> None:
    one = "if A:\n    def f():\n        return 1\nelse:\n    def f():\n        return 2\n"
    assert pieces(one).functions.keys() == {"f"}
    assert pieces(one).functions != pieces(one.replace("return 2", "return 3")).functions


def test_function_inside_another_belongs_to_it() -> None:
    functions = pieces(SOURCE).functions
    assert outermost("plain.inner", functions) == "plain"
    assert outermost("Base.method", functions) == "Base.method"
    assert outermost("kernel", functions) == ""
