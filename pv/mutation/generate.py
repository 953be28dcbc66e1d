"""Generate the mutants of a module.

Mutation operators make small changes of the syntax tree of a function. They do not change docstrings, annotations,
decorators, f-strings, the exception of `raise`, messages of `assert`, calls that log, and the types of `isinstance`,
`issubclass` and `cast`, since such a change is not a fault of the computation. Mutants that compile to the same code
are generated once.
"""

import ast
import difflib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
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

# A node, and the source that replaces it.
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
# Functions for which swapped arguments change nothing.
ANY_ORDER = {"min", "max", "maximum", "minimum", "mul", "logaddexp", "hypot", "promote_types", "suppress"}
TYPE_CHECKS = {"isinstance", "issubclass", "cast"}


def root(node: ast.AST) -> str:
    """Return the first name of a chain of attributes, calls and subscripts: `a` for `a.b(c)[d]`; "" for none."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def changed_source(node: ast.AST, **changed: object) -> str:
    """Return the source of a node after changing the given fields."""
    fields: dict[str, object] = dict(ast.iter_fields(node)) | changed
    return ast.unparse(ast.fix_missing_locations(type(node)(**fields)))


# `<` becomes `<=`, a common mistake at a boundary, and not `>`, which almost any test kills.
def _comparison(node: ast.AST, _: frozenset[str]) -> Iterator[Change]:
    if isinstance(node, ast.Compare):
        for index, op in enumerate(node.ops):
            yield node, changed_source(node, ops=[*node.ops[:index], COMPARISONS[type(op)](), *node.ops[index + 1 :]])


def _arithmetic(node: ast.AST, _: frozenset[str]) -> Iterator[Change]:
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not _is_text(node):
        yield node, changed_source(node, op=ARITHMETIC[type(node.op)]())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Invert | ast.Not):
        # The operator `constant` changes a literal such as -1.
        if not _is_literal(node):
            yield node, ast.unparse(node.operand)


def _is_text(node: ast.BinOp) -> bool:
    """Return whether an operand is a string literal: `+` and `%` then build a text, not a number."""
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in (node.left, node.right)
    )


def _logic(node: ast.AST, _: frozenset[str]) -> Iterator[Change]:
    if isinstance(node, ast.BoolOp):
        yield node, changed_source(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())


def _condition(node: ast.AST, _: frozenset[str]) -> Iterator[Change]:
    if isinstance(node, ast.IfExp):
        yield from negated(node.test)
    elif isinstance(node, ast.comprehension):
        for test in node.ifs:
            yield from negated(test)


def negated(test: ast.expr) -> Iterator[Change]:
    """Yield the negated condition, unless another operator already generates the negation."""
    match test:
        case ast.Constant() | ast.UnaryOp(op=ast.Not()):
            return
        # `comparison` changes `a == b` to its negation, but `a < b` to `a <= b`.
        case ast.Compare(ops=[op]) if not isinstance(op, BOUNDARIES):
            return
    yield test, ast.unparse(ast.UnaryOp(op=ast.Not(), operand=test))


def _constant(node: ast.AST, _: frozenset[str]) -> Iterator[Change]:
    # A string is changed only where it is compared or used as a key: other strings are mostly messages.
    texts: Sequence[ast.expr | None] = []
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | float | int):
        yield from constants(node)
    elif isinstance(node, ast.Compare):
        texts = [node.left, *node.comparators]
    elif isinstance(node, ast.Subscript):
        texts = [node.slice]
    elif isinstance(node, ast.Dict):
        texts = node.keys
    for text in texts:
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            yield from constants(text)


def constants(node: ast.AST) -> Iterator[Change]:
    """Yield another value of a literal: a negated bool, an int plus 1, a doubled float (1.0 for 0.0), a longer text."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield from constants(operand)
        case ast.Constant(value=bool() as value):
            yield node, repr(not value)
        case ast.Constant(value=int() as value):
            yield node, repr(value + 1)
        case ast.Constant(value=float() as value):
            yield node, repr(value * 2 if value else 1.0)
        case ast.Constant(value=str() as value):
            yield node, repr(f"{value}~")


def _off_by_one(node: ast.AST, _: frozenset[str]) -> Iterator[Change]:
    """Yield the start and the end of a range or slice, plus one. The operator `constant` changes literal bounds."""
    bounds: Sequence[ast.expr | None] = []
    if isinstance(node, ast.Slice):
        bounds = [node.lower, node.upper]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        bounds = node.args[:2]
    for bound in bounds:
        if bound is not None and not _is_literal(bound) and not isinstance(bound, ast.Starred):
            yield bound, ast.unparse(ast.BinOp(left=bound, op=ast.Add(), right=ast.Constant(1)))


def _is_literal(node: ast.expr) -> bool:
    return isinstance(node.operand if isinstance(node, ast.UnaryOp) else node, ast.Constant)


def _swapped_arguments(node: ast.AST, _: frozenset[str]) -> Iterator[Change]:
    """Yield the call with two neighbouring arguments swapped."""
    if not isinstance(node, ast.Call) or any(isinstance(a, ast.Starred) for a in node.args):
        return
    if ast.unparse(node.func).rpartition(".")[2] in TYPE_CHECKS | ANY_ORDER:
        return
    for index in range(len(node.args) - 1):
        args = list(node.args)
        args[index : index + 2] = [args[index + 1], args[index]]
        yield node, changed_source(node, args=args)


def _removed_call(node: ast.AST, imported: frozenset[str]) -> Iterator[Change]:
    """Yield the object or argument of a call: `x` for `x.abs()` and for `abs(x)`."""
    if not isinstance(node, ast.Call):
        return
    if isinstance(node.func, ast.Attribute):
        receiver = node.func.value
        # `torch` for `torch.zeros(2)` or `self` for `self.size()` is not a realistic fault.
        if root(receiver) not in {*imported, "self", "cls", "super", ""}:
            yield node, ast.unparse(receiver)
    elif isinstance(node.func, ast.Name) and len(node.args) == 1 and not node.keywords:
        argument = node.args[0]
        # An upper-case name is a class, whose argument has another type than the instance.
        if not node.func.id[0].isupper() and not isinstance(argument, ast.Starred | ast.GeneratorExp):
            yield node, ast.unparse(argument)


# Every operator takes a node of the syntax tree and the names that the module imports.
OPERATORS: dict[str, Callable[[ast.AST, frozenset[str]], Iterator[Change]]] = {
    "comparison": _comparison,
    "arithmetic": _arithmetic,
    "logic": _logic,
    "condition": _condition,
    "constant": _constant,
    "off by one": _off_by_one,
    "swapped arguments": _swapped_arguments,
    "removed call": _removed_call,
}


Function = ast.FunctionDef | ast.AsyncFunctionDef

LOGGERS = {"log", "logger", "logging", "_log", "_logger", "warnings"}


@dataclass(frozen=True, slots=True)
class Fault:
    """A change of one node of a function.

    Attributes:
        operator: The name of the mutation operator.
        node: The node that is replaced.
        new: The source that replaces the node; "" if a statement is dropped.
        statement: The statement that contains the node; None for the default value of a parameter.
    """

    operator: str
    node: ast.AST
    new: str
    statement: ast.stmt | None


def faults(function: Function, imported: frozenset[str]) -> Iterator[Fault]:
    """Yield every fault of a function, but not of nested functions: of the default values, then of every statement.

    Args:
        function: The function.
        imported: The names that the module imports.
    """
    for default in [*function.args.defaults, *function.args.kw_defaults]:
        if default is not None:
            yield from (Fault("default", node, new, None) for node, new in constants(default))
    for _, statement in statements(function.body):
        if may_drop(statement, function):
            yield Fault("removed call" if isinstance(statement, ast.Expr) else "dropped", statement, "", statement)
        for expression in _expressions(statement):
            for node in _mutable_nodes(expression):
                for name, operator in OPERATORS.items():
                    # A removed call whose result is unused equals a dropped statement, which is yielded above.
                    if name == "removed call" and node is expression and isinstance(statement, ast.Expr):
                        continue
                    yield from (Fault(name, part, new, statement) for part, new in operator(node, imported))
        if isinstance(statement, ast.AugAssign) and type(statement.op) in ARITHMETIC:
            changed = changed_source(statement, op=ARITHMETIC[type(statement.op)]())
            yield Fault("arithmetic", statement, changed, statement)
        if isinstance(statement, ast.If | ast.While | ast.Assert):
            yield from (Fault("condition", node, new, statement) for node, new in negated(statement.test))


def _expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield the expressions of a statement that operators may change, but not of nested statements."""
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


def _mutable_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield an expression and its subexpressions that operators may change."""
    if isinstance(node, ast.JoinedStr) or is_log(node):
        return
    yield node
    children: list[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TYPE_CHECKS:
        children = list(node.args[1:] if node.func.id == "cast" else node.args[:1])  # without the types
    for child in children:
        if not isinstance(child, ast.arguments):
            yield from _mutable_nodes(child)


def is_log(node: ast.AST) -> bool:
    """Return whether a node is a call such as `logger.info(...)`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and root(node.func) in LOGGERS


def may_drop(statement: ast.stmt, function: Function) -> bool:
    """Return whether removing the statement is a realistic fault; the removal must not leave a name undefined."""
    match statement:
        case ast.Expr(value=ast.Call() as call):
            return not is_log(call)
        case ast.Expr(value=ast.Await(value=ast.Call())):
            return True
        case ast.Raise() | ast.AugAssign() | ast.Break() | ast.Continue() | ast.Delete() | ast.Assert():
            return True
        case ast.Return():
            # Without its last return, a function returns None, which almost any test detects.
            return statement is not function.body[-1]
        case ast.Assign(targets=targets):
            return all(_is_set_elsewhere(target, function) for target in targets)
        case ast.AnnAssign(target=target, value=ast.expr()):
            return _is_set_elsewhere(target, function)
    return False


def _is_set_elsewhere(target: ast.expr, function: Function) -> bool:
    """Return whether the target is defined without this assignment."""
    if isinstance(target, ast.Attribute | ast.Subscript):
        return True
    if not isinstance(target, ast.Name):
        return False
    assigned = [n for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    parameters = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
    # Dropping a later assignment leaves the earlier value; dropping the first leaves an undefined name.
    first = min((n for n in assigned if n.id == target.id), key=lambda n: (n.lineno, n.col_offset))
    return target.id in parameters or first is not target


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedMutant:
    """One generated mutant.

    Attributes:
        mutant: The mutant as an edit.
        operator: The name of the mutation operator.
        function: The mutated function, as `module:name`.
        coverage_name: The name under which coverage records the mutated code.
        code_digest: The digest of the mutated module's compiled code.
        diff: The changed lines of the module.
    """

    mutant: Mutant
    operator: str
    function: str
    coverage_name: str
    code_digest: str
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
    def code_digest(self) -> str:
        """Return the digest of the compiled module without a mutant."""
        return digest_of_code(self.name, self.source.text)

    @cached_property
    def imported(self) -> frozenset[str]:
        """Return the names that the module imports."""
        imports = (node for node in ast.walk(self.source.tree) if isinstance(node, ast.Import | ast.ImportFrom))
        return frozenset(a.asname or a.name.split(".")[0] for node in imports for a in node.names)

    def mutants(self, reached: frozenset[str]) -> Iterator[GeneratedMutant]:
        """Yield the distinct mutants of the functions that `reached` lists as `module:name`; see `distinct`."""
        return distinct(self.candidates(reached))

    def candidates(self, reached: frozenset[str]) -> Iterator["Candidate"]:
        """Yield every fault of the functions in `reached`, applicable or not."""
        for name, faults_of_function in self._faults:
            if f"{self.name}:{name}" in reached:
                yield from (Candidate(self, name, fault) for fault in faults_of_function())

    @cached_property
    def _faults(self) -> list[tuple[str, Callable[[], tuple[Fault, ...]]]]:
        """Return the name of every function that can be mutated, and a cached function that returns its faults."""
        # Cached, since every falsifier draws from the same module. Computed on demand, since few functions are reached.
        return [
            (name, cache(partial(_faults_of, node, self.imported)))
            for name, node in syntax.functions(self.source.tree)
            if not syntax.compiles_source(node)
        ]

    @cached_property
    def _statement_numbers(self) -> dict[int, int]:
        """Return the index of every statement within its function, by the id of its node."""
        return {
            id(statement): number
            for _, function in syntax.functions(self.source.tree)
            for number, (_, statement) in enumerate(statements(function.body))
        }

    def coverage_name(self, name: str, fault: Fault) -> str:
        """Return the name under which coverage records the faulty code: a statement, or the whole function `name`."""
        function = f"{self.name}:{name}"
        return function if fault.statement is None else f"{function}@{self._statement_numbers[id(fault.statement)]}"

    def mutant(self, name: str, fault: Fault) -> GeneratedMutant | None:
        """Return the mutant with a fault of the function `name`; None if no edit of the source can make the change."""
        try:
            find = ast.unparse(fault.node)
            # An edit consists of a text and the index of its occurrence in the function: find the index of the node.
            nodes = [match.first for match in self.source.occurrences(name, find)]
            occurrence = next((n for n, node in enumerate(nodes) if _is_node(node, fault.node)), None)
            if occurrence is None:
                return None
            changed = patch(self.source.text, name, find, fault.new, occurrence)
            code_digest = digest_of_code(self.name, changed)
        except (BrokenMutant, *syntax.UNREADABLE):
            return None
        suffix = f" (place {occurrence + 1})" if len(nodes) > 1 else ""
        line, column = getattr(fault.node, "lineno", 1), getattr(fault.node, "col_offset", 0) + 1
        function = f"{self.name}:{name}"
        return GeneratedMutant(
            mutant=Mutant(
                id=f"{function}: {find} -> {fault.new or 'pass'}{suffix}",
                fault=fault.operator,
                change=Edit(function=Target(self.name, name), find=find, replace=fault.new, occurrence=occurrence),
                location=Location(self.path, line, column),
            ),
            operator=fault.operator,
            function=function,
            coverage_name=self.coverage_name(name, fault),
            code_digest=code_digest,
            diff=diff(self.source.text, changed),
        )


def _faults_of(function: Function, imported: frozenset[str]) -> tuple[Fault, ...]:
    return tuple(faults(function, imported))


def _is_node(match: ast.AST, node: ast.AST) -> bool:
    """Return whether a match is the node, or the statement that consists only of the node."""
    return match is node or (isinstance(match, ast.Expr) and match.value is node)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A fault of a function in a module. It becomes a mutant if it can be applied and changes the compiled code."""

    module: Module
    name: str
    fault: Fault

    @property
    def function(self) -> str:
        return f"{self.module.name}:{self.name}"

    @property
    def coverage_name(self) -> str:
        return self.module.coverage_name(self.name, self.fault)


def distinct(candidates: Iterable[Candidate]) -> Iterator[GeneratedMutant]:
    """Yield the mutants that can be applied and whose compiled code differs from the original and from each other."""
    compiled: set[str] = set()
    for candidate in candidates:
        # A mutant that compiles to the original code is equivalent (Papadakis et al. 2015).
        compiled.add(candidate.module.code_digest)
        mutant = candidate.module.mutant(candidate.name, candidate.fault)
        if mutant is not None and mutant.code_digest not in compiled:
            compiled.add(mutant.code_digest)
            yield mutant


def digest_of_code(module: str, source: str) -> str:
    """Return the digest of a module's name and compiled code, without line numbers.

    Raises:
        SyntaxError: The source does not compile.
    """
    code: CodeType = compile(source, "module", "exec", dont_inherit=True)
    return hashlib.sha256(repr((module, _meaning(code))).encode("utf-8", "backslashreplace")).hexdigest()


def _meaning(code: CodeType) -> tuple[object, ...]:
    """Return the parts of a code object that determine its behaviour, without line numbers and the file name."""
    return (
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
    """Return the changed lines, marked with `-` and `+`."""
    # Leave out file names, hunk headers, and the blank lines and the bracket that `patch` adds to keep line numbers.
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0))[2:]
    return "\n".join(line for line in lines if not line.startswith("@@") and line.strip() not in ("+", "+)"))
