"""Names are yielded with the local names around them."""

import ast

from pv.engines.harness.scopes import Scope, uses

TEXT = """
def start(n, *rest, scale: float = FACTOR):
    total = sum(k for k in rest)
    return total + outside
"""


def free() -> set[str]:
    """The names that no local one around them binds."""
    found = uses(ast.parse(TEXT), Scope())
    return {node.id for node, scope in found if isinstance(node, ast.Name) and node.id not in scope.bound}


def test_locals_parameters_and_comprehensions_bind_names() -> None:
    assert free() == {"FACTOR", "sum", "outside"}


def test_annotations_are_not_evaluated() -> None:
    assert "float" not in free()
