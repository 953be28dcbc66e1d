"""Definitions and import statements are found by syntax tree, also below other statements."""

import ast

from pv.source import syntax

SOURCE = """
SCALE = 2.0

def loss(student, teacher):
    difference = student - teacher

class Step:
    size: int = 4
    def run(self):
        def inner(value):
            import json
        total = 0

try:
    import a, b.c
except ImportError:
    def fallback(): ...
finally:
    last = 1
match SCALE:
    case 2.0:
        class Case: ...
if SCALE:
    from . import d as e
else:
    def other(): ...
"""
TREE = ast.parse(SOURCE)


def test_names_are_dotted_and_found_below_any_statement() -> None:
    assert syntax.names(TREE) == [
        *("SCALE", "loss", "loss.difference", "Step", "Step.size", "Step.run", "Step.run.inner", "Step.run.total"),
        *("last", "fallback", "Case", "other"),
    ]


def test_functions_and_classes_are_told_from_variables() -> None:
    assert syntax.defined(TREE) == ["loss", "Step", "Step.run", "Step.run.inner", "fallback", "Case", "other"]
    assert [name for name, _ in syntax.functions(TREE)] == [
        *("loss", "Step.run", "Step.run.inner", "fallback", "other"),
    ]


def test_imports_are_found_wherever_they_are() -> None:
    found = [alias.name for node in syntax.imports(TREE) for alias in node.names]
    assert sorted(found) == ["a", "b.c", "d", "json"]


def test_a_definition_has_no_blocks_of_its_own() -> None:
    blocks = [len(list(syntax.blocks(node))) for node in TREE.body]
    assert blocks == [0, 0, 0, 3, 1, 2]
