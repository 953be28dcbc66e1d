"""The mutation operators: small changes of the syntax tree of a function.

Not changed are docstrings, annotations, decorators, f-strings, what `raise` raises, messages of `assert`, calls that
log, and the types of `isinstance`: a change there is noise, or no fault of the computation.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pv.source.syntax import statements

Change = tuple[ast.AST, str]

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
BOUNDARIES = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
# Symmetric functions, and `suppress`: swapping their arguments changes nothing.
ANY_ORDER = {"min", "max", "maximum", "minimum", "mul", "logaddexp", "hypot", "promote_types", "suppress"}
TAKES_TYPES = {"isinstance", "issubclass", "cast"}


def root(node: ast.AST) -> str:
    """Return the name at the root of an expression of attributes, calls and subscripts; "" if there is none."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def changed_source(node: ast.AST, **changed: Any) -> str:
    fields: dict[str, Any] = dict(ast.iter_fields(node)) | changed
    return ast.unparse(ast.fix_missing_locations(type(node)(**fields)))


# Neighbours only: `<` becomes `<=`, the usual slip at a boundary; `<` to `>` is killed by almost any test.
def _comparison(node: ast.AST, _: frozenset[str]) -> Iterator[Change]:
    if isinstance(node, ast.Compare):
        for place, op in enumerate(node.ops):
            yield node, changed_source(node, ops=[*node.ops[:place], COMPARISONS[type(op)](), *node.ops[place + 1 :]])


def _arithmetic(node: ast.AST, _: frozenset[str]) -> Iterator[Change]:
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not _is_text(node):
        yield node, changed_source(node, op=ARITHMETIC[type(node.op)]())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Invert | ast.Not):
        if _is_literal(node):
            return  # -1 is a number as it stands: another one is put there
        yield node, ast.unparse(node.operand)


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(
        isinstance(s, ast.JoinedStr) or (isinstance(s, ast.Constant) and isinstance(s.value, str)) for s in sides
    )


def _logic(node: ast.AST, _: frozenset[str]) -> Iterator[Change]:
    if isinstance(node, ast.BoolOp):
        yield node, changed_source(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())


def _condition(node: ast.AST, _: frozenset[str]) -> Iterator[Change]:
    tests = [node.test] if isinstance(node, ast.IfExp) else node.ifs if isinstance(node, ast.comprehension) else []
    for test in tests:
        yield from negated(test)


def negated(test: ast.expr) -> Iterator[Change]:
    """Yield the negated condition, unless another operator does that already."""
    # `not (a == b)` is what the comparison operator already gives; a boundary is not its negation.
    single = isinstance(test, ast.Compare) and len(test.ops) == 1 and not isinstance(test.ops[0], BOUNDARIES)
    turned = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    if not single and not turned and not isinstance(test, ast.Constant):
        yield test, ast.unparse(ast.UnaryOp(op=ast.Not(), operand=test))


def _constant(node: ast.AST, _: frozenset[str]) -> Iterator[Change]:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | float | int):
        yield from constants(node)
    elif isinstance(node, ast.Compare | ast.Subscript | ast.Dict):
        texts = [node.slice] if isinstance(node, ast.Subscript) else node.keys if isinstance(node, ast.Dict) else []
        texts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else texts
        for text in texts:
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield from constants(text)


def constants(node: ast.AST) -> Iterator[Change]:
    """Yield another value of a literal: the other truth value, plus one, doubled, a longer text."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield from constants(node.operand)
    match node:
        case ast.Constant(value=bool() as value):
            yield node, repr(not value)
        case ast.Constant(value=int() as value):
            yield node, repr(value + 1)
        case ast.Constant(value=float() as value):
            yield node, repr(value * 2 or 1.0)
        case ast.Constant(value=str() as value):
            yield node, repr(f"{value}~")


def _off_by_one(node: ast.AST, _: frozenset[str]) -> Iterator[Change]:
    """Yield the end of a range or slice plus one, unless it is a literal."""
    ends: list[ast.expr | None] = []
    if isinstance(node, ast.Slice):
        ends = [node.lower, node.upper]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        ends = list(node.args[:2])
    for end in ends:
        if end is not None and not _is_literal(end) and not isinstance(end, ast.Starred):
            yield end, ast.unparse(ast.BinOp(left=end, op=ast.Add(), right=ast.Constant(1)))


def _is_literal(node: ast.expr) -> bool:
    return isinstance(node.operand if isinstance(node, ast.UnaryOp) else node, ast.Constant)


def _swapped(node: ast.AST, _: frozenset[str]) -> Iterator[Change]:
    """Yield the call with two neighbouring arguments swapped."""
    if not isinstance(node, ast.Call) or any(isinstance(a, ast.Starred) for a in node.args):
        return
    if ast.unparse(node.func).rpartition(".")[2] in (TAKES_TYPES | ANY_ORDER):
        return
    for place in range(len(node.args) - 1):
        args = list(node.args)
        args[place : place + 2] = [args[place + 1], args[place]]
        yield node, changed_source(node, args=args)


def _removed_call(node: ast.AST, foreign: frozenset[str]) -> Iterator[Change]:
    """Yield the object or argument of a call: `x` for `x.abs()` and for `abs(x)`."""
    if not isinstance(node, ast.Call):
        return
    if isinstance(node.func, ast.Attribute):
        if root(node.func) not in {*foreign, "self", "cls", "super", ""} and not isinstance(
            node.func.value, ast.Constant
        ):
            yield node, ast.unparse(node.func.value)
    elif isinstance(node.func, ast.Name) and len(node.args) == 1 and not node.keywords:
        argument = node.args[0]
        # An upper-case name is a class: its argument is no value of the same kind.
        if not node.func.id[0].isupper() and not isinstance(argument, ast.Starred | ast.GeneratorExp):
            yield node, ast.unparse(argument)


OPERATORS: dict[str, Callable[[ast.AST, frozenset[str]], Iterator[Change]]] = {
    "comparison": _comparison,
    "arithmetic": _arithmetic,
    "logic": _logic,
    "condition": _condition,
    "constant": _constant,
    "off by one": _off_by_one,
    "swapped arguments": _swapped,
    "removed call": _removed_call,
}


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
                # A call whose result is unused would be replaced by its argument: the same as dropping it.
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
        # The types of isinstance and cast are no computation.
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
            # A dropped last return gives None: every caller notices.
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
    # Dropping a later assignment leaves the earlier value; dropping the first leaves an undefined name.
    first = min((n for n in stored if n.id == target.id), key=lambda n: (n.lineno, n.col_offset))
    return target.id in taken or first is not target
