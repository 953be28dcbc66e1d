"""Rules about mutants and equivalents: they apply to the current source, change it, and survive a refactoring.

A refactoring renames private functions and local variables, and moves code between modules. An edit that names only
public code where it is defined, parameters and literals still applies afterwards. A name is public if no part of it
starts with one underscore; dunder names are public.
"""

import ast
import builtins
import contextlib
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from pv.contract.codes import Code, Stops
from pv.contract.finding import Finding, Location, error
from pv.contract.model import Edit, Mutant, Name, Swap, Target
from pv.contract.wording import did_you_mean
from pv.engines.rule import Context, rule, unbound
from pv.errors import BrokenMutant, MutantProblem
from pv.source import resolve, syntax
from pv.source.patch import patch, read
from pv.source.project import Project
from pv.source.resolve import Unbound

Find = Callable[[Target], Path]
"""A function from a target to the file of its module. Raises Unbound."""
CODES = {"file": "PV135", "name": "PV135", "source": "PV135"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SWAP = "write a swap of a public function instead, or an edit of parameters, literals and public names only"
DEFINED = "name the module that defines it, or one that lists it in `__all__`"
AUTOMATIC = "remove the entry: an equivalent that is not declared counts as a survivor"
MEANING = "a mutant or equivalent that names a private function, an underscored name, a local variable or an import"


@rule(
    Code("PV133", "the edit of a mutant does not apply to the source", Stops.MUTANT),
    Code("PV134", "the edit of a mutant changes nothing", Stops.MUTANT),
    Code("PV135", "the module, function or replacement of a mutant does not exist", Stops.MUTANT),
    Code("PV136", "a mutant of code that no subject of the contract imports", Stops.MUTANT),
)
def mutants(context: Context) -> Iterator[Finding]:
    """Check that declared mutants change code of the subjects, and apply to its current source."""
    outside, find = _outside(context), cache(partial(resolve.target_file, context.project))
    for mutant in context.contract.mutants:
        if mutant.module in outside:
            message = f"{mutant.id}: no subject of this contract imports {mutant.module}"
            yield error("PV136", mutant.location, message, "change the subject or a module that it imports")
        if isinstance(mutant.change, Edit):
            yield from _edit(find, mutant, mutant.change)
        else:
            yield from _swap(find, mutant, mutant.change)


def _subject_files(context: Context) -> frozenset[Path]:
    """Return the files of the contract's subjects and all that they import from the project."""
    files: set[Path] = set()
    for falsifier in context.contract.claims:
        # Another rule reports a missing subject.
        with contextlib.suppress(LookupError, Unbound):
            files.add(resolve.target_file(context.project, context.contract.subject_of(falsifier)))
    with contextlib.suppress(Unbound):
        return context.imports.closure(files)[0]
    return frozenset()


def _outside(context: Context) -> frozenset[str]:
    """Return the mutated modules that no subject imports, such as the module of an oracle."""
    # If no subject can be resolved, report nothing: every mutant would count as outside.
    subjects, outside = _subject_files(context), set()
    for module in {mutant.module for mutant in context.contract.mutants} if subjects else ():
        with contextlib.suppress(Unbound):
            outside |= {module} if resolve.module_file(context.project, module) not in subjects else set()
    return frozenset(outside)


def _edit(find: Find, mutant: Mutant, edit: Edit) -> Iterator[Finding]:
    """Yield a finding if an edit does not apply to the current source, or changes nothing."""
    try:
        source = resolve.source(find(edit.function))
        patch(source, edit.function.attribute, edit.find, edit.replace)  # only to check that the edit applies
    except Unbound as problem:
        unresolved = edit.function.module if problem.kind == "file" else edit.function.attribute
        yield unbound(CODES, mutant.location, problem, unresolved)
    except BrokenMutant as problem:
        if problem.problem is MutantProblem.NO_DEFINITION:
            yield error(
                "PV135",
                mutant.location,
                f"{mutant.id}: {edit.function.module} imports the function and does not define it",
            )
            return
        no_change = problem.problem is MutantProblem.NO_CHANGE
        hint = "only a replacement with another syntax tree is a fault" if no_change else _no_match_hint(source, edit)
        yield error("PV134" if no_change else "PV133", mutant.location, f"{mutant.id}: {problem}", hint)


def _no_match_hint(source: str, edit: Edit) -> str:
    """Return a hint for a `find` without a match; its text may occur as a part of an expression."""
    if edit.find.strip() in source:
        return "the text occurs only inside a larger expression: `find` takes a whole expression or whole statements"
    return f"if this change of {edit.function} is intended, copy the current code into `find`"


@rule(Code("PV137", "a declared equivalent does not apply to the source", Stops.SCORE))
def equivalents(context: Context) -> Iterator[Finding]:
    """Check that declared equivalents apply: the mutant of a stale declaration would count as a survivor again."""
    for declared in context.contract.equivalents:
        change = declared.change
        try:
            source = resolve.source(resolve.target_file(context.project, change.function))
            patch(source, change.function.attribute, change.find, change.replace)
        except (Unbound, BrokenMutant) as problem:
            hint = f"copy the current code of {change.function} into `find`, or remove the entry"
            yield error("PV137", declared.location, f"the equivalent does not apply: {problem}", hint)
            continue
        scope = context.contract.mutation_scope
        if scope.modules and not scope.holds(str(change.function)):
            message = f"{change.function} is not in `mutation_scope`: remove the equivalent"
            yield error("PV137", declared.location, message)


@rule(Code("PV138", "`mutation_scope` names no module, or no other contract, of the project", Stops.SCORE))
def mutation_scope(context: Context) -> Iterator[Finding]:
    """Check that the modules and judges of the scope exist, and that a subject imports the modules."""
    # A module that does not exist has no mutants to survive, so a wrong name would raise the score.
    contract, scope = context.contract, context.contract.mutation_scope
    subjects: frozenset[Path] = frozenset()
    for judge in (contract, *contract.judges) if scope.modules else ():
        subjects |= _subject_files(replace(context, contract=judge))
    for module in scope.modules:
        yield from _scope_module(context, module, subjects)
    ids = [id_ for id_ in contract.known if id_ != contract.id]
    for name in scope.judges:
        if name.text not in ids:
            message = f"unknown contract {name.text!r} in 'judges'"
            yield error("PV138", name.location, message, did_you_mean(name.text, ids))


def _scope_module(context: Context, name: Name, subjects: frozenset[Path]) -> Iterator[Finding]:
    """Yield a finding if a module of the scope does not exist, or no subject imports it."""
    module, _, attribute = name.text.partition(":")
    if attribute:
        message = f"invalid value {name.text!r} for 'mutation_scope': expected a module or package"
        yield error("PV138", name.location, message, f"write {module}, which holds {attribute}")
        return
    try:
        path = resolve.module_file(context.project, module)
        resolve.parse(path)
    except Unbound as problem:
        yield unbound({"name": "PV138"}, name.location, problem, module)
        return
    if subjects and not _holds_any(path, subjects):
        yield error("PV138", name.location, f"no subject of this contract or its judges imports {module}")


def _holds_any(path: Path, files: frozenset[Path]) -> bool:
    """Return whether the module or package of `path` is or contains one of the files."""
    return path in files or (path.name == "__init__.py" and any(f.is_relative_to(path.parent) for f in files))


def _swap(find: Find, mutant: Mutant, swap: Swap) -> Iterator[Finding]:
    for target in (swap.object, swap.replacement):
        try:
            find(target)
        except Unbound as problem:
            unresolved = target.module if problem.kind == "file" else target.attribute
            yield unbound(CODES, mutant.location, problem, unresolved)


@rule(Code("PV146", MEANING, Stops.NOTHING))
def refactors(context: Context) -> Iterator[Finding]:
    """Check that declared mutants and equivalents survive a rename of private functions and local variables."""
    for mutant in context.contract.mutants:
        if isinstance(mutant.change, Edit):
            yield from _edit_names(context.project, mutant.location, f"{mutant.id}: ", mutant.change, SWAP)
        else:
            yield from _swap_names(context.project, mutant.location, mutant.id, mutant.change.object)
    for declared in context.contract.equivalents:
        yield from _edit_names(context.project, declared.location, "", declared.change, AUTOMATIC)


def _swap_names(project: Project, location: Location, owner: str, target: Target) -> Iterator[Finding]:
    """Yield a finding if the swapped object is private, or only imported by its module."""
    if private := _private(target):
        yield _finding(location, f"{owner}: {target}: {private!r} is private", SWAP)
        return
    name = target.attribute.split(".")[0]
    try:
        path = resolve.module_file(project, target.module)
        tree = resolve.parse(path)
    except Unbound:
        return  # another rule says what is missing
    if name in resolve.exported(path) and name not in {*syntax.names(tree), *syntax.public(tree)}:
        # If the import moves, the swap breaks; a name in `__all__` is public there.
        yield _finding(location, f"{owner}: {target.module} only imports {name!r}", DEFINED)


def _edit_names(project: Project, location: Location, owner: str, edit: Edit, hint: str) -> Iterator[Finding]:
    """Yield a finding for every name in an edit that a refactoring may change."""
    if private := _private(edit.function):
        yield _finding(location, f"{owner}{edit.function}: {private!r} is private", hint)
        return
    try:
        code = _Code.of(project, edit.function)
    except Unbound:
        return  # another rule says what is missing
    if code.nested:
        yield _finding(location, f"{owner}{edit.function} is a function inside a function", hint)
        return
    # A name in both `find` and `replace` is reported once.
    by_key = {"find": list(code.problems(edit.find)), "replace": list(code.problems(edit.replace))}
    for key, problems in by_key.items():
        for problem in problems:
            if key == "find" or problem not in by_key["find"]:
                yield _finding(location, f"{owner}`{key}` uses {problem} of {edit.function}", hint)


def _finding(location: Location, message: str, hint: str) -> Finding:
    return error("PV146", location, message, hint)


def _private(target: Target) -> str:
    """Return the first private part of a dotted name; "" if it is public."""
    parts = [*target.module.split("."), *target.attribute.split(".")]
    return next((part for part in parts if is_private(part)), "")


def is_private(name: str) -> bool:
    """Return whether a name starts with an underscore and is not a dunder name."""
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


@dataclass(frozen=True, slots=True)
class _Code:
    """The names that an edit of one function may use (`parameters`, `public`), and must not use (`locals`).

    Attributes:
        nested: Whether the function is defined inside another function.
    """

    nested: bool
    parameters: frozenset[str]
    locals: frozenset[str]
    public: frozenset[str]

    @classmethod
    def of(cls, project: Project, target: Target) -> "_Code":
        """Return the names of the function or class of `target`. Raise Unbound."""
        path = resolve.module_file(project, target.module)
        tree = resolve.parse(path)  # raises Unbound for a file that is not Python
        source = read(resolve.source(path))
        nodes = source.definitions(target.attribute)
        parent = target.attribute.rpartition(".")[0]
        functions = [f for node in nodes for f in _functions(node)]
        parameters = frozenset(name for f in functions for name in _parameters(f))
        return cls(
            nested=any(isinstance(node, FUNCTIONS) for node in source.definitions(parent)) if parent else False,
            parameters=parameters,
            locals=frozenset(name for f in functions for name in _bound(f)) - parameters,
            public=frozenset([*resolve.exported(path), *syntax.names(tree), *dir(builtins)]),
        )

    def problems(self, text: str) -> Iterator[str]:
        """Yield the names in a snippet that a refactoring may change, without duplicates."""
        tree = _parsed(text)
        bound_in_snippet = _bound_inside(tree)
        for name in dict.fromkeys(_attributes(tree)):
            if is_private(name):
                yield f"the private attribute {name!r}"
        for name in dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)):
            if name in bound_in_snippet:
                continue
            if is_private(name):
                yield f"the private name {name!r}"
            elif name in self.locals or name not in self.parameters | self.public:
                yield f"the local variable {name!r}"


def _functions(node: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return a function, or the methods of a class."""
    if isinstance(node, FUNCTIONS):
        return [node]
    return [method for method in node.body if isinstance(method, FUNCTIONS)] if isinstance(node, ast.ClassDef) else []


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[str]:
    return [node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)]


def _bound(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield the names that a function binds in its body, including the names bound in nested functions."""
    for statement in function.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, syntax.DEFINITIONS):
                yield node.name
                yield from _parameters(node) if not isinstance(node, ast.ClassDef) else ()
            elif isinstance(node, ast.Lambda):
                yield from _parameters(node)
            elif isinstance(node, ast.ExceptHandler) and node.name:
                yield node.name
            elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
                yield node.name


def _bound_inside(tree: ast.AST) -> frozenset[str]:
    """Return the names that comprehensions, lambdas and functions in a snippet bind and no code outside can see."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, COMPREHENSIONS):
            targets = (target for generator in node.generators for target in ast.walk(generator.target))
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
        elif isinstance(node, (*FUNCTIONS, ast.Lambda)):
            names |= set(_parameters(node))
    return frozenset(names)


def _attributes(tree: ast.AST) -> Iterator[str]:
    """Yield the names of attributes and of keyword arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg


def _parsed(text: str) -> ast.Module:
    """Return the tree of a snippet; an empty one if it is not Python, which another rule reports."""
    # In brackets, an expression may have several lines.
    plain = textwrap.dedent(text).strip()
    for form in (plain, f"({plain}\n)"):
        try:
            return ast.parse(form)
        except syntax.UNREADABLE:
            continue
    return ast.Module(body=[], type_ignores=[])
