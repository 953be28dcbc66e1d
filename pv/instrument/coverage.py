"""Records which functions of a module run, or which statements, by calls that it adds to the syntax tree.

Standard library only: it runs inside code under contract.
"""

import ast

from pv.source import syntax

seen: set[str] = set()
"""The functions entered in this process, as `module:name`."""
at_import: set[str] = set()
"""The code that ran before the claim was tried: a fault there affects every object it created."""


def imported() -> None:
    """Set aside what ran at import: it counts only once a claim runs the subject."""
    at_import.update(seen)
    seen.clear()


def instrument(tree: ast.Module, module: str, *, statements: bool = False) -> None:
    """Make every function record its name when it is entered, with `statements` also each statement that runs."""
    for name, node in list(syntax.functions(tree)):
        if not compiles_source(node):
            if statements:
                _instrument_statements(node.body, f"{module}:{name}")
            _insert(node.body, f"__pv_seen__.add({f'{module}:{name}'!r})")
    # An import, not a global set from outside: `python -m` runs the code in a namespace that we never see.
    _insert(tree.body, f"from {__name__} import seen as __pv_seen__")


def _instrument_statements(body: list[ast.stmt], name: str) -> None:
    """Add a record before each statement of a function, except in functions and classes that it defines."""
    for node in list(body):
        if _is_text(node):
            continue
        for block in syntax.blocks(node):
            _instrument_statements(block, name)
        note = ast.parse(f"__pv_seen__.add({f'{name}@{node.lineno}:{node.col_offset}'!r})").body[0]
        for part in ast.walk(note):
            ast.copy_location(part, node)
        body.insert(body.index(node), note)


def compiles_source(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a compiler reads the source of the function, which is then left alone."""
    return any(_compiles_source(decorator) for decorator in function.decorator_list)


def _compiles_source(decorator: ast.expr) -> bool:
    """Return whether it is `triton.jit`, `torch.jit.script` or the like, bare or called."""
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(function).rpartition(".")[2] in ("jit", "njit", "script")


def _insert(body: list[ast.stmt], code: str) -> None:
    place = 0
    while place < len(body) and (_is_text(body[place]) or _is_future(body[place])):
        place += 1
    added = ast.parse(code).body[0]
    for part in ast.walk(added):
        if body:
            ast.copy_location(part, body[min(place, len(body) - 1)])
    body.insert(place, added)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"
