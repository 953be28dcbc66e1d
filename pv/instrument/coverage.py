"""Instrument the syntax tree of a module, to record which functions or statements of the module run.

This module needs only the standard library and `pv`, because instrumented code imports it.
"""

import ast

from pv.source import syntax

seen: set[str] = set()
"""The functions of covered modules entered in this process, as `module:name`; statements as `module:name@number`."""
ran: set[str] = set()
"""The same for the modules of the project that are not covered."""
at_import: set[str] = set()
"""The entries of `seen` from before the claim was tried. A fault in this code affects all objects that it created."""


def separate_imports() -> None:
    """Move the entries of `seen` to `at_import`: they count as reached only if the claim then runs covered code."""
    at_import.update(seen)
    seen.clear()


def instrument(tree: ast.Module, module: str, *, covered: bool, statements: bool) -> None:
    """Make every function record its name when it is entered; functions that compile source are left unchanged.

    Args:
        tree: The syntax tree of the module, which is changed.
        module: The name of the module.
        covered: Whether to record in `seen`; otherwise in `ran`: results depend on the module, but it is not tested.
        statements: Whether to record each statement that runs, too.
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
    """Record each statement of a function before it runs, except in nested functions and classes."""
    for number, (block, node) in enumerate(list(syntax.statements(function.body))):
        record = ast.parse(f"__pv_seen__.add({f'{name}@{number}'!r})").body[0]
        for part in ast.walk(record):
            ast.copy_location(part, node)
        block.insert(block.index(node), record)


def insert(body: list[ast.stmt], code: str) -> None:
    """Insert the statement `code` into a block, after the docstring and the `from __future__` imports."""
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
