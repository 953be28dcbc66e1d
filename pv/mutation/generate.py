"""Generate the mutants of a module: every fault of its functions that changes the compiled code, once.

The operators make small changes of the syntax tree of a function. They leave out docstrings, annotations, decorators,
f-strings, the exception of `raise`, messages of `assert`, calls that log, and the types of `isinstance`: such a change
is not a fault of the computation.
"""

import ast
import difflib
import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from types import CodeType

from pv.contract.finding import Location
from pv.contract.model import Edit, Mutant, Target
from pv.errors import BrokenMutant
from pv.source import resolve, syntax
from pv.source.patch import Source, patch, read
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


def changed_source(node: ast.AST, **changed: object) -> str:
    """Return the source of a copy of a node with other values of some fields."""
    fields: dict[str, object] = dict(ast.iter_fields(node)) | changed
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
            return  # -1 is one literal, whose number is replaced instead
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
    # The comparison operator already generates `a != b`. It generates `a <= b` for `a < b`, which is no negation.
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
    """A change of one node of a function.

    Attributes:
        operator: The name of the mutation operator.
        node: The node that is replaced.
        new: The source in its place; "" if a statement is dropped.
        statement: The statement that contains the node; None for the default of a parameter, on which the whole
            function depends.
    """

    operator: str
    node: ast.AST
    new: str
    statement: ast.stmt | None


def faults(function: Function, foreign: frozenset[str] = frozenset()) -> Iterator[Fault]:
    """Yield every fault of a function, without the functions inside it, in source order.

    Args:
        function: The function.
        foreign: The names that the module imports.
    """
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
                    yield Fault(operator, place, new, statement)
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
    """Yield the expressions of a statement that operators may change, without nested statements."""
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
        # The types in the arguments of isinstance and cast are left out.
        children = list(node.args[:1])
    for child in children:
        if not isinstance(child, ast.arguments):
            yield from _expressions(child)


def is_log(node: ast.AST) -> bool:
    """Return whether a node is a call such as `logger.info(...)`."""
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
            # Without its last return a function returns None, which nearly any test detects.
            return statement is not function.body[-1]
        case ast.Assign(targets=targets):
            return all(_is_set_elsewhere(target, function) for target in targets)
        case ast.AnnAssign(target=target, value=ast.expr()):
            return _is_set_elsewhere(target, function)
    return False


def _is_set_elsewhere(target: ast.expr, function: Function) -> bool:
    """Return whether the target is still defined once its assignment is dropped."""
    if isinstance(target, ast.Attribute | ast.Subscript):
        return True
    if not isinstance(target, ast.Name):
        return False
    stored = [n for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    taken = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
    # Dropping a later assignment leaves the earlier value; dropping the first leaves an undefined name.
    first = min((n for n in stored if n.id == target.id), key=lambda n: (n.lineno, n.col_offset))
    return target.id in taken or first is not target


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedMutant:
    """One generated mutant.

    Attributes:
        mutant: The mutant as an edit.
        operator: The name of the mutation operator.
        function: The mutated function, as `module:name`.
        diff: The changed lines of the module.
    """

    mutant: Mutant
    operator: str
    function: str
    # The name under which coverage records the changed code.
    place: str
    # The digest of the mutated module's code.
    result: str
    diff: str


@dataclass(frozen=True)
class Module:
    """A module of the project whose functions can be mutated."""

    name: str
    path: Path

    @cached_property
    def source(self) -> Source:
        return read(resolve.source(self.path))

    @cached_property
    def result(self) -> str:
        """Return the digest of the compiled, unchanged module."""
        return compiles_to(self.name, self.source.text)

    @cached_property
    def foreign(self) -> frozenset[str]:
        """Return the names that the module imports: `torch` in place of `torch.zeros(2)` is not a realistic fault."""
        imports = (node for node in ast.walk(self.source.tree) if isinstance(node, ast.Import | ast.ImportFrom))
        return frozenset(a.asname or a.name.split(".")[0] for node in imports for a in node.names)

    def mutants(self, reached: frozenset[str]) -> Iterator[GeneratedMutant]:
        """Yield the mutants of the functions in `reached`, without those that compile to the same code."""
        return distinct(self.candidates(reached))

    def candidates(self, reached: frozenset[str]) -> Iterator["Candidate"]:
        """Yield every fault of the functions in `reached`; some cannot be applied, or change nothing."""
        for name, faults_of_function in self._faults:
            if f"{self.name}:{name}" in reached:
                yield from (Candidate(self, name, fault) for fault in faults_of_function())

    @cached_property
    def _faults(self) -> list[tuple[str, Callable[[], tuple[Fault, ...]]]]:
        """Return the name of every function that can be mutated, and a cached function that returns its faults."""
        functions = syntax.functions(self.source.tree)
        mutable = [(name, node) for name, node in functions if not syntax.compiles_source(node)]
        return [(name, cache(partial(_faults_of, node, self.foreign))) for name, node in mutable]

    @cached_property
    def numbers(self) -> dict[int, int]:
        """Return the number of every statement in its function, by the id of its node."""
        functions = (node for _, node in syntax.functions(self.source.tree))
        return {id(s): n for node in functions for n, (_, s) in enumerate(syntax.statements(node.body))}

    def place(self, name: str, fault: Fault) -> str:
        """Return the name under which coverage records the faulty code of the function `name`."""
        function = f"{self.name}:{name}"
        return function if fault.statement is None else f"{function}@{self.numbers[id(fault.statement)]}"

    def mutant(self, name: str, fault: Fault) -> GeneratedMutant | None:
        """Return the fault as an edit; None if it cannot be written as one."""
        try:
            find = ast.unparse(fault.node)
            # An edit names its text and occurrence; the node is identified among the occurrences.
            places = [match.first for match in self.source.occurrences(name, find)]
            occurrence = next((n for n, place in enumerate(places) if _is(place, fault.node)), -1)
            if occurrence < 0:
                return None
            changed = patch(self.source.text, name, find, fault.new, occurrence)
            result = compiles_to(self.name, changed)
        except (BrokenMutant, *syntax.UNREADABLE):
            return None
        target, line = Target(self.name, name), getattr(fault.node, "lineno", 1)
        which = f" (place {occurrence + 1})" if len(places) > 1 else ""
        function = f"{self.name}:{name}"
        return GeneratedMutant(
            mutant=Mutant(
                id=f"{function}: {find} -> {fault.new or 'pass'}{which}",
                fault=fault.operator,
                change=Edit(function=target, find=find, replace=fault.new, occurrence=occurrence),
                location=Location(self.path, line, getattr(fault.node, "col_offset", 0) + 1),
            ),
            operator=fault.operator,
            function=function,
            place=self.place(name, fault),
            result=result,
            diff=diff(self.source.text, changed),
        )


def _faults_of(function: Function, foreign: frozenset[str]) -> tuple[Fault, ...]:
    return tuple(faults(function, foreign))


def _is(place: ast.AST, node: ast.AST) -> bool:
    """Return whether a match is the node, or the statement that consists only of the node."""
    return place is node or (isinstance(place, ast.Expr) and place.value is node)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A fault of a function, which may not be applicable."""

    module: Module
    name: str
    fault: Fault

    @property
    def function(self) -> str:
        return f"{self.module.name}:{self.name}"

    @property
    def place(self) -> str:
        return self.module.place(self.name, self.fault)


def distinct(candidates: Iterable[Candidate]) -> Iterator[GeneratedMutant]:
    """Yield the mutants that can be applied and whose compiled code differs from the original and from each other."""
    compiled: set[str] = set()
    for candidate in candidates:
        # Include the unchanged code: a mutant that compiles to it is equivalent (trivial compiler equivalence,
        # Papadakis et al. 2015).
        compiled.add(candidate.module.result)
        mutant = candidate.module.mutant(candidate.name, candidate.fault)
        if mutant is not None and mutant.result not in compiled:
            compiled.add(mutant.result)
            yield mutant


def compiles_to(module: str, source: str) -> str:
    """Return the digest of a module's name and compiled code, without line numbers. Raise SyntaxError."""
    code: CodeType = compile(source, "module", "exec", dont_inherit=True)
    return hashlib.sha256(repr((module, _meaning(code))).encode("utf-8", "backslashreplace")).hexdigest()


def _meaning(code: CodeType) -> tuple[object, ...]:
    """Return the parts of a code object that determine its behaviour."""
    return (
        # Line numbers and the file name are left out: they do not affect the behaviour.
        code.co_code,
        [_meaning_of_constant(c) for c in code.co_consts],
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_flags,
        code.co_name,
    )


def _meaning_of_constant(value: object) -> object:
    match value:
        case CodeType():
            return _meaning(value)
        case tuple():
            return [_meaning_of_constant(item) for item in value]
        case frozenset():  # the order of its items differs between processes
            return "frozenset", sorted(repr(_meaning_of_constant(item)) for item in value)
    return type(value).__name__, repr(value)


def diff(before: str, after: str) -> str:
    """Return the changed lines, with `-` and `+`, without the blank lines that only preserve line numbers."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0))[2:]
    return "\n".join(line for line in lines if not line.startswith("@@") and line.strip() not in ("+", "+)"))
