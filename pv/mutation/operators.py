"""The mutation operators on functions: small changes of the syntax tree.

Not changed are docstrings, annotations, decorators, f-strings, what `raise` raises, messages of `assert`, calls that
log, and the types of `isinstance`: a change there is noise, or no fault of the computation.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pv.mutation.edits import ARITHMETIC, OPERATORS, TAKES_TYPES, changed_source, constants, negated, root
from pv.source.syntax import statements

Function = ast.FunctionDef | ast.AsyncFunctionDef

LOGS = {"log", "logger", "logging", "_log", "_logger", "warnings"}


@dataclass(frozen=True, slots=True)
class Fault:
    """A change of one node of a function: `new` is the source that takes its place, "" where a statement is dropped.

    statement: the statement that runs it; None for the default of a parameter, which the whole function depends on.
    """

    operator: str
    node: ast.AST
    new: str
    statement: ast.stmt | None


def faults(function: Function, foreign: frozenset[str] = frozenset()) -> Iterator[Fault]:
    """Yield every fault of a function's own code, in source order. `foreign`: the names that the module imports."""
    arguments = function.args
    for default in filter(None, [*arguments.defaults, *arguments.kw_defaults]):
        yield from (Fault("default", place, new, None) for place, new in constants(default))
    for _, statement in statements(function.body):
        if may_drop(statement, function):
            yield Fault("removed call" if isinstance(statement, ast.Expr) else "dropped", statement, "", statement)
        for part in _own_expressions(statement):
            for operator, place, new in _changes(part, foreign):
                if not (place is part and isinstance(statement, ast.Expr) and operator == "removed call"):
                    yield Fault(operator, place, new, statement)  # a call for nothing is dropped as a whole instead
        if isinstance(statement, ast.AugAssign) and type(statement.op) in ARITHMETIC:
            changed = changed_source(statement, op=ARITHMETIC[type(statement.op)]())
            yield Fault("arithmetic", statement, changed, statement)
        if isinstance(statement, ast.If | ast.While | ast.Assert):
            yield from (Fault("condition", place, new, statement) for place, new in negated(statement.test))


def _changes(expression: ast.expr, foreign: frozenset[str]) -> Iterator[tuple[str, ast.AST, str]]:
    for node in _expressions(expression):
        for operator, changes in OPERATORS.items():
            yield from ((operator, place, new) for place, new in changes(node, foreign))


def _own_expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    if isinstance(statement, ast.Raise | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    for name, value in ast.iter_fields(statement):
        if name in ("annotation", "msg", "target", "targets"):
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.withitem):
                yield part.context_expr
            elif isinstance(part, ast.expr):
                yield part


def _expressions(node: ast.AST) -> Iterator[ast.AST]:
    """Yield an expression and its parts that may be changed."""
    if isinstance(node, ast.JoinedStr) or is_log(node):
        return
    yield node
    children: list[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TAKES_TYPES:
        children = list(node.args[:1])
    for child in children:
        if not isinstance(child, ast.arguments):
            yield from _expressions(child)


def is_log(node: ast.AST) -> bool:
    """Return whether it is a call such as `logger.info(...)`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and root(node.func) in LOGS


def may_drop(statement: ast.stmt, function: Function) -> bool:
    """Return whether the code has no undefined name once the statement is removed."""
    match statement:
        case ast.Expr(value=ast.Call() as call):
            return not is_log(call)
        case ast.Expr(value=ast.Await(value=ast.Call())):
            return True
        case ast.Raise() | ast.AugAssign() | ast.Break() | ast.Continue() | ast.Delete() | ast.Assert():
            return True
        case ast.Return():
            return statement is not function.body[-1]
        case ast.Assign(targets=targets):
            return all(_is_set_elsewhere(target, function) for target in targets)
        case ast.AnnAssign(target=target, value=ast.expr()):
            return _is_set_elsewhere(target, function)
    return False


def _is_set_elsewhere(target: ast.expr, function: Function) -> bool:
    if isinstance(target, ast.Attribute | ast.Subscript):
        return True
    if not isinstance(target, ast.Name):
        return False
    stored = [n for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    taken = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
    first = min((n for n in stored if n.id == target.id), key=lambda n: (n.lineno, n.col_offset))
    return target.id in taken or first is not target
