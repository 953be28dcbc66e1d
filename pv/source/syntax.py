"""Walk syntax trees: definitions, imports, blocks and statements. Standard library only."""

import ast
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""The errors that Python's parser raises: for invalid code, for a NUL byte, and for code that is nested too deeply."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign
# A tuple, because `isinstance` is faster with a tuple than with a union, and whole modules are walked.
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def names(tree: ast.Module) -> list[str]:
    """Return the dotted names of the definitions that `walk` yields for a module."""
    return [name for name, _ in walk(tree.body)]


def exported_names(tree: ast.Module) -> list[str]:
    """Return the names in the `__all__` of a module, if it is a literal list or tuple."""
    values = [node.value for name, node in walk(tree.body) if name == "__all__" and isinstance(node, ast.Assign)]
    items = [item for value in values if isinstance(value, (ast.List, ast.Tuple)) for item in value.elts]
    return [item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)]


def walk(body: Sequence[ast.AST], prefix: str = "") -> Iterator[tuple[str, Definition]]:
    """Yield every definition in a block with its dotted name, also definitions inside statements such as `if`.

    Definitions are functions, classes and assignments to a name. Assignments to tuples of names, imports and the
    variables of loops are not yielded.
    """
    for node in body:
        if isinstance(node, DEFINITIONS):
            yield prefix + node.name, node
            yield from walk(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((prefix + target.id, node) for target in targets if isinstance(target, ast.Name))
        else:
            for block in _block_fields(node._fields):
                yield from walk(getattr(node, block), prefix)


@cache
def _block_fields(fields: tuple[str, ...]) -> tuple[str, ...]:
    """Return the fields of a type of nodes that contain statements, handlers or cases.

    Args:
        fields: All fields of the type, which are the key of the cache. The result is cached because whole modules are
            walked.
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
    """Return whether a function with this body is a generator. A `yield` of a nested function does not count."""
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in nodes_inside(body))


def nodes_inside(body: Iterable[ast.AST], *leaves: type[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of a block, a node before its children, and children in the order of their fields.

    Functions, lambdas and classes are yielded without their nodes.

    Args:
        body: The statements.
        leaves: Further types of nodes that are yielded without the nodes inside them.
    """
    # Without recursion: the trees of users may be nested more deeply than Python's stack allows.
    todo = [*body][::-1]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, (*DEFINITIONS, ast.Lambda, *leaves)):
            todo += [*ast.iter_child_nodes(node)][::-1]


def required_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the names of the parameters that have no default."""
    arguments = function.args
    # `defaults` belong to the last positional parameters; `kw_defaults` has one entry for every keyword-only parameter.
    positional = [parameter.arg for parameter in (*arguments.posonlyargs, *arguments.args)]
    keyword_only = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    required = [parameter.arg for parameter, default in keyword_only if default is None]
    return [*positional[: len(positional) - len(arguments.defaults)], *required]


def package_of(module: str, path: Path) -> list[str]:
    """Return the name of the package from which relative imports of a module start, split at the dots."""
    return module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]


def imported_module(node: ast.ImportFrom, package: Sequence[str]) -> str:
    """Return the absolute name of the module that `node` imports from; `package` is the package of its own module."""
    # One leading dot means the package, every further dot the next parent package.
    base = package[: len(package) - node.level + 1] if node.level else []
    return ".".join([*base, *([node.module] if node.module else [])])


def blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of statements directly inside a statement; none for a definition, since its body is separate."""
    if isinstance(node, DEFINITIONS):
        return
    # The handlers of a `try` and the cases of a `match` are not statements, but have a block.
    parents = [node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())]
    fields = [getattr(parent, name, None) for parent in parents for name in ("body", "orelse", "finalbody")]
    yield from (block for block in fields if block)


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield every function of a module, also methods and nested functions, with its dotted name."""
    for name, node in walk(tree.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, node


def statements(body: list[ast.stmt]) -> Iterator[tuple[list[ast.stmt], ast.stmt]]:
    """Yield (block, statement) for every statement that a block runs, also in nested blocks, but not in definitions.

    Docstrings and other constants are omitted, so that changes of comments, docstrings or layout do not change the
    index of a statement.
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
    # Its decorator is, for example, `triton.jit` or `torch.jit.script`, with or without arguments.
    return any(name_of(decorator) in ("jit", "njit", "script") for decorator in function.decorator_list)


def name_of(decorator: ast.expr) -> str:
    """Return the last name of a decorator, such as `given` of `hypothesis.given(...)`."""
    return ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator).rpartition(".")[2]
