"""What notes which functions of a module run, and with statements which of these: calls put into its syntax tree.

Standard library only: it runs inside code under contract.
"""

import ast

from pv import syntax

seen: set[str] = set()
"""The functions entered in this process, as `module:name`."""
at_import: set[str] = set()
"""What ran before the claim was tried: a fault there is in whatever it made."""


def imported() -> None:
    """Sets aside what ran at import: it is no sign that a claim runs the subject, and counts once one does."""
    at_import.update(seen)
    seen.clear()


def add_probes(tree: ast.Module, module: str, *, statements: bool = False) -> None:
    """Makes every function note its name when it is entered, with `statements` also what of it is run."""
    for name, node in list(syntax.functions(tree)):
        if not compiles_source(node):
            if statements:
                _probe_statements(node.body, f"{module}:{name}")
            _insert(node.body, f"__pv_seen__.add({f'{module}:{name}'!r})")
    # An import, not a global set from outside: `python -m` runs the code in a namespace that we never see.
    _insert(tree.body, f"from {__name__} import seen as __pv_seen__")


def _probe_statements(body: list[ast.stmt], name: str) -> None:
    """Puts a note before each statement of a function; those of functions and classes in it are their own."""
    for node in list(body):
        if _is_text(node):
            continue
        for block in syntax.blocks(node):
            _probe_statements(block, name)
        note = ast.parse(f"__pv_seen__.add({f'{name}@{node.lineno}:{node.col_offset}'!r})").body[0]
        for part in ast.walk(note):
            ast.copy_location(part, node)
        body.insert(body.index(node), note)


def compiles_source(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a compiler that reads source makes something else of the function; such code is left alone."""
    return any(_compiles_source(decorator) for decorator in function.decorator_list)


def _compiles_source(decorator: ast.expr) -> bool:
    """Whether it is `triton.jit`, `torch.jit.script` or the like, bare or called."""
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
