"""Record which functions or statements of a module run, by statements that are added to its syntax tree.

Standard library only: it runs inside code under contract.
"""

import ast

from pv.source import syntax

seen: set[str] = set()
"""The functions of covered modules entered in this process, as `module:name`."""
ran: set[str] = set()
"""The functions of the project's other modules entered in this process."""
at_import: set[str] = set()
"""The code that ran before the claim was tried: a fault there affects every object it created."""


def imported() -> None:
    """Move the functions that ran at import to `at_import`: they count as reached only if a claim runs the subject."""
    at_import.update(seen)
    seen.clear()


def instrument(tree: ast.Module, module: str, *, covered: bool, statements: bool) -> None:
    """Make every function record its name when it is entered, with `statements` also each statement that runs.

    The functions of a module that is not `covered` are recorded in `ran`: results depend on them, but they are not
    under test.
    """
    for name, node in list(syntax.functions(tree)):
        if not syntax.compiles_source(node):
            if statements:
                _instrument_statements(node, f"{module}:{name}")
            insert(node.body, f"__pv_seen__.add({f'{module}:{name}'!r})")
    # The module imports the set itself: it cannot be added to the namespace of the module from outside, since
    # `python -m` runs the code in a namespace of its own.
    insert(tree.body, f"from {__name__} import {'seen' if covered else 'ran'} as __pv_seen__")


def _instrument_statements(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> None:
    """Add a record before each statement of a function, except in functions and classes that it defines."""
    for number, (block, node) in enumerate(list(syntax.statements(function.body))):
        record = ast.parse(f"__pv_seen__.add({f'{name}@{number}'!r})").body[0]
        for part in ast.walk(record):
            ast.copy_location(part, node)
        block.insert(block.index(node), record)


def insert(body: list[ast.stmt], code: str) -> None:
    """Insert a statement after the docstring and the `from __future__` imports."""
    position = 0
    while position < len(body) and (syntax.is_text(body[position]) or _is_future(body[position])):
        position += 1
    added = ast.parse(code).body[0]
    for part in ast.walk(added):
        if body:
            ast.copy_location(part, body[min(position, len(body) - 1)])
    body.insert(position, added)


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"
