"""Generate the mutants of a module: every fault of its functions that changes the compiled code, once each."""

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
from pv.mutation.operators import Fault, Function, faults
from pv.source import resolve, syntax
from pv.source.patch import Source, patch, read


@dataclass(frozen=True, slots=True, kw_only=True)
class Automatic:
    """One automatic mutant."""

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

    def mutants(self, reached: frozenset[str]) -> Iterator[Automatic]:
        """Yield the mutants of the functions in `reached`, without those that compile to the same code."""
        return distinct(self.candidates(reached))

    def candidates(self, reached: frozenset[str]) -> Iterator["Candidate"]:
        """Yield every fault of the functions in `reached`; some cannot be applied, or change nothing."""
        for name, faults_of_function in self._faults:
            if f"{self.name}:{name}" in reached:
                yield from (Candidate(self, name, fault) for fault in faults_of_function())

    @cached_property
    def _faults(self) -> list[tuple[str, Callable[[], tuple[Fault, ...]]]]:
        """Return every function that can be mutated: its name, and a cached generator of its faults."""
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

    def mutant(self, name: str, fault: Fault) -> Automatic | None:
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
        return Automatic(
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
    """Return whether a match is the node, or the statement that consists of it alone."""
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


def distinct(candidates: Iterable[Candidate]) -> Iterator[Automatic]:
    """Yield the mutants that can be applied and whose compiled code differs from the original and from each other."""
    compiled: set[str] = set()
    for candidate in candidates:
        # The unchanged code too: a mutant that compiles to it is equivalent (trivial compiler equivalence, Papadakis
        # et al. 2015).
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
    return (
        # Not the line numbers and the file name: they change without a change of behaviour.
        code.co_code,
        [_constant(c) for c in code.co_consts],
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_flags,
        code.co_name,
    )


def _constant(value: object) -> object:
    match value:
        case CodeType():
            return _meaning(value)
        case tuple():
            return [_constant(item) for item in value]
        case frozenset():  # its order is another in each process
            return "frozenset", sorted(repr(_constant(item)) for item in value)
    return type(value).__name__, repr(value)


def diff(before: str, after: str) -> str:
    """Return the changed lines, with `-` and `+`, without the blank lines that only preserve line numbers."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0))[2:]
    return "\n".join(line for line in lines if not line.startswith("@@") and line.strip() not in ("+", "+)"))
