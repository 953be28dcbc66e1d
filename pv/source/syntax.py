"""Walk syntax trees: definitions, imports, blocks and statements. Standard library only."""

import ast
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""The errors of Python's parser: for invalid code, a NUL byte, and code that is nested too deeply."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign
# A tuple, which isinstance checks faster than a union: whole modules are walked.
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def names(tree: ast.Module) -> list[str]:
    """Return the dotted names that a module defines."""
    return [name for name, _ in walk(tree.body)]


def exported_names(tree: ast.Module) -> list[str]:
    """Return the names in the `__all__` of a module, if it is a literal list or tuple."""
    values = [node.value for name, node in walk(tree.body) if name == "__all__" and isinstance(node, ast.Assign)]
    items = [item for value in values if isinstance(value, (ast.List, ast.Tuple)) for item in value.elts]
    return [item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)]


def walk(body: Sequence[ast.AST], prefix: str = "") -> Iterator[tuple[str, Definition]]:
    """Yield every definition in a block with its dotted name, also those below if, try and with."""
    for node in body:
        if isinstance(node, DEFINITIONS):
            yield prefix + node.name, node
            yield from walk(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((prefix + t.id, node) for t in targets if isinstance(t, ast.Name))
        else:
            for block in _block_fields(node._fields):
                yield from walk(getattr(node, block), prefix)


@cache
def _block_fields(fields: tuple[str, ...]) -> tuple[str, ...]:
    """Return the fields of a node that hold statements, handlers or cases.

    Args:
        fields: All fields of its type. The result is cached by them, since whole modules are walked.
    """
    return tuple(field for field in ("body", "orelse", "finalbody", "handlers", "cases") if field in fields)


def imports(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield every import statement of a module, wherever it is."""
    todo: deque[ast.AST] = deque([tree])
    while todo:
        node = todo.popleft()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif not isinstance(node, ast.expr):  # no expression contains a statement
            todo.extend(ast.iter_child_nodes(node))


def is_generator(body: Sequence[ast.AST]) -> bool:
    """Return whether a function with this body is a generator: functions inside it do not count."""
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in nodes_inside(body))


def nodes_inside(body: Iterable[ast.AST], *closed: type[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of a block in the order of the source, without the nodes inside its functions and classes.

    Args:
        body: The statements.
        closed: Further types of nodes that are yielded, and not entered.
    """
    # Without recursion: the trees of users may be nested more deeply than Python's stack allows.
    todo = [*body][::-1]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, (*DEFINITIONS, ast.Lambda, *closed)):
            todo += [*ast.iter_child_nodes(node)][::-1]


def required_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the names of the parameters that have no default."""
    arguments = function.args
    # `ast` has the defaults of the last positional parameters, and one entry for every keyword-only parameter.
    positional = [parameter.arg for parameter in (*arguments.posonlyargs, *arguments.args)]
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return [*positional[: len(positional) - len(arguments.defaults)], *(a.arg for a, d in named if d is None)]


def package_of(module: str, path: Path) -> list[str]:
    """Return the parts of the name of the package that relative imports of a module start from."""
    return module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]


def imported_module(node: ast.ImportFrom, package: Sequence[str]) -> str:
    """Return the absolute name of the module that a statement in a module of a package imports from."""
    # One leading dot is the package itself, every further dot its parent.
    base = package[: len(package) - node.level + 1] if node.level else []
    return ".".join([*base, *([node.module] if node.module else [])])


def blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of statements directly inside a statement; none for a definition, which does not run them."""
    if isinstance(node, DEFINITIONS):
        return
    # The handlers of a `try` and the cases of a `match` are no statements, but have a block.
    owners = [node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())]
    owned = [getattr(owner, name, None) for owner in owners for name in ("body", "orelse", "finalbody")]
    yield from (block for block in owned if block)


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield every function of a module with its dotted name, nested ones included."""
    for name, node in walk(tree.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, node


def statements(body: list[ast.stmt]) -> Iterator[tuple[list[ast.stmt], ast.stmt]]:
    """Yield (block, statement) for every statement that a block runs, without the bodies of definitions.

    Docstrings are left out, so the index of a statement identifies it also after a change of comments, docstrings or
    layout.
    """
    for node in body:
        if not is_text(node):
            yield body, node
            for block in blocks(node):
                yield from statements(block)


def is_text(node: ast.stmt) -> bool:
    """Return whether a statement is only a constant, such as a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def compiles_source(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a compiler reads the source of a function, so that the function must not be instrumented."""
    # Such as `triton.jit` or `torch.jit.script`, with or without arguments.
    return any(name_of(decorator) in ("jit", "njit", "script") for decorator in function.decorator_list)


def name_of(decorator: ast.expr) -> str:
    """Return the last name of a decorator, such as `given` of `hypothesis.given(...)`."""
    return ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator).rpartition(".")[2]
