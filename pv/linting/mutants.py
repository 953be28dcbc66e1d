"""Rules about mutants and equivalents: they apply to the current source, change it, and survive a refactoring.

A refactoring renames private functions and local variables, and moves code between modules. An edit still applies
afterwards if it names only parameters, literals, and public code in the module that defines it. A name is public if no
part of it starts with an underscore; dunder names are public.
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
from pv.engines.rule import Context, rule, unbound_finding
from pv.errors import BrokenMutant, MutantProblem
from pv.source import resolve, syntax
from pv.source.patch import patch, read
from pv.source.project import Project
from pv.source.resolve import Unbound

FindFile = Callable[[Target], Path]
"""A function from a target to the file of its module. Raises Unbound."""
CODES = {"file": "PV135", "name": "PV135", "source": "PV135"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SWAP_HINT = "write a swap of a public function instead, or an edit of parameters, literals and public names only"
DEFINED_HINT = "name the module that defines it, or one that lists it in `__all__`"
EQUIVALENT_HINT = "remove the entry: an equivalent that is not declared counts as a survivor"
PRIVATE = "a mutant or equivalent that names a private function, an underscored name, a local variable or an import"


@rule(
    Code("PV133", "the edit of a mutant does not apply to the source", Stops.MUTANT),
    Code("PV134", "the edit of a mutant changes nothing", Stops.MUTANT),
    Code("PV135", "the module, function or replacement of a mutant does not exist", Stops.MUTANT),
    Code("PV136", "a mutant of code that no subject of the contract imports", Stops.MUTANT),
)
def mutants(context: Context) -> Iterator[Finding]:
    """Check that declared mutants change code of the subjects, and apply to its current source."""
    outside = _modules_outside(context)
    find_file = cache(partial(resolve.target_file, context.project))
    for mutant in context.contract.mutants:
        if mutant.module in outside:
            message = f"{mutant.id}: no subject of this contract imports {mutant.module}"
            yield error("PV136", mutant.location, message, "change the subject or a module that it imports")
        if isinstance(mutant.change, Edit):
            yield from _check_edit(find_file, mutant, mutant.change)
        else:
            yield from _check_swap(find_file, mutant, mutant.change)


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


def _modules_outside(context: Context) -> set[str]:
    """Return the mutated modules that no subject imports, such as the module of an oracle."""
    subjects, outside = _subject_files(context), set[str]()
    if not subjects:
        return outside  # no subject can be resolved, which another rule reports
    for module in {mutant.module for mutant in context.contract.mutants}:
        with contextlib.suppress(Unbound):
            if resolve.module_file(context.project, module) not in subjects:
                outside.add(module)
    return outside


def _check_edit(find_file: FindFile, mutant: Mutant, edit: Edit) -> Iterator[Finding]:
    """Yield a finding if an edit does not apply to the current source, or changes nothing."""
    try:
        source = resolve.source(find_file(edit.function))
        patch(source, edit.function.attribute, edit.find, edit.replace)  # only to check that the edit applies
    except Unbound as problem:
        unresolved = edit.function.module if problem.kind == "file" else edit.function.attribute
        yield unbound_finding(CODES, mutant.location, problem, unresolved)
    except BrokenMutant as broken:
        message = f"{mutant.id}: {broken}"
        if broken.problem is MutantProblem.NO_DEFINITION:
            message = f"{mutant.id}: {edit.function.module} imports the function and does not define it"
            yield error("PV135", mutant.location, message)
        elif broken.problem is MutantProblem.NO_CHANGE:
            yield error("PV134", mutant.location, message, "only a replacement with another syntax tree is a fault")
        else:
            hint = _no_match_hint(source, edit) if broken.problem is MutantProblem.NO_MATCH else ""
            yield error("PV133", mutant.location, message, hint)


def _no_match_hint(source: str, edit: Edit) -> str:
    """Return a hint for a `find` without a match, or with several."""
    with contextlib.suppress(BrokenMutant):  # `find` is not Python
        if len(read(source).occurrences(edit.function.attribute, edit.find)) > 1:
            return "the text occurs several times: extend `find` by the code around the place that is meant"
    if edit.find.strip() in source:
        return "the text occurs only inside a larger expression: `find` takes a whole expression or whole statements"
    return f"if this change of {edit.function} is intended, copy the current code into `find`"


@rule(Code("PV137", "a declared equivalent does not apply to the source", Stops.SCORE))
def equivalents(context: Context) -> Iterator[Finding]:
    """Check that declared equivalents apply to the source and are in the scope, so that they exclude a mutant."""
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
    if scope.modules:
        contexts = [replace(context, contract=judge) for judge in (contract, *contract.judges)]
        subjects = frozenset[Path]().union(*map(_subject_files, contexts))
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
        yield unbound_finding({"name": "PV138"}, name.location, problem, module)
        return
    if subjects and not _contains_any(path, subjects):
        yield error("PV138", name.location, f"no subject of this contract or its judges imports {module}")


def _contains_any(path: Path, files: frozenset[Path]) -> bool:
    """Return whether the module or package of `path` is or contains one of the files."""
    return path in files or (path.name == "__init__.py" and any(f.is_relative_to(path.parent) for f in files))


def _check_swap(find_file: FindFile, mutant: Mutant, swap: Swap) -> Iterator[Finding]:
    for target in (swap.object, swap.replacement):
        try:
            find_file(target)
        except Unbound as problem:
            unresolved = target.module if problem.kind == "file" else target.attribute
            yield unbound_finding(CODES, mutant.location, problem, unresolved)


@rule(Code("PV146", PRIVATE, Stops.NOTHING))
def refactors(context: Context) -> Iterator[Finding]:
    """Check that declared mutants and equivalents survive a rename of private functions and local variables."""
    for mutant in context.contract.mutants:
        if isinstance(mutant.change, Edit):
            yield from _check_edit_names(context.project, mutant.location, f"{mutant.id}: ", mutant.change, SWAP_HINT)
        else:
            yield from _check_swap_names(context.project, mutant.location, f"{mutant.id}: ", mutant.change.object)
    for declared in context.contract.equivalents:
        yield from _check_edit_names(context.project, declared.location, "", declared.change, EQUIVALENT_HINT)


def _check_swap_names(project: Project, location: Location, prefix: str, target: Target) -> Iterator[Finding]:
    """Yield a finding if the swapped object is private, or if its module only imports it."""
    if private := _private_part(target):
        yield _finding(location, f"{prefix}{target}: {private!r} is private", SWAP_HINT)
        return
    name = target.attribute.split(".")[0]
    try:
        path = resolve.module_file(project, target.module)
        tree = resolve.parse(path)
    except Unbound:
        return  # another rule reports missing modules
    # A swap of an imported name fails after the import is moved, but a name in `__all__` is part of the module.
    if name in resolve.exported(path) and name not in {*syntax.names(tree), *syntax.exported_names(tree)}:
        yield _finding(location, f"{prefix}{target.module} only imports {name!r}", DEFINED_HINT)


def _check_edit_names(project: Project, location: Location, prefix: str, edit: Edit, hint: str) -> Iterator[Finding]:
    """Yield a finding for every name in an edit that a refactoring may change; messages begin with `prefix`."""
    if private := _private_part(edit.function):
        yield _finding(location, f"{prefix}{edit.function}: {private!r} is private", hint)
        return
    try:
        names = _Names.of(project, edit.function)
    except Unbound:
        return  # another rule reports missing modules
    if names.nested:
        yield _finding(location, f"{prefix}{edit.function} is a function inside a function", hint)
        return
    # A name in both `find` and `replace` is reported once.
    by_key = {"find": list(names.problems(edit.find)), "replace": list(names.problems(edit.replace))}
    for key, problems in by_key.items():
        for problem in problems:
            if key == "find" or problem not in by_key["find"]:
                yield _finding(location, f"{prefix}`{key}` uses {problem} of {edit.function}", hint)


def _finding(location: Location, message: str, hint: str) -> Finding:
    return error("PV146", location, message, hint)


def _private_part(target: Target) -> str:
    """Return the first private part of the dotted name of a target; "" if every part is public."""
    parts = [*target.module.split("."), *target.attribute.split(".")]
    return next((part for part in parts if is_private(part)), "")


def is_private(name: str) -> bool:
    """Return whether a name starts with an underscore and is not a dunder name."""
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


@dataclass(frozen=True, slots=True)
class _Names:
    """The names in the scope of a function or class that is edited.

    Attributes:
        nested: Whether the function is defined inside another function.
        parameters: The parameters, which an edit may use.
        locals: The local variables, which an edit must not use.
        public: The names of the module and the builtins. An edit may use the names that are not private (`is_private`).
    """

    nested: bool
    parameters: frozenset[str]
    locals: frozenset[str]
    public: frozenset[str]

    @classmethod
    def of(cls, project: Project, target: Target) -> "_Names":
        """Return the names of the function or class of `target`. Raise Unbound."""
        path = resolve.module_file(project, target.module)
        tree = resolve.parse(path)
        source = read(resolve.source(path))
        nodes = source.definitions(target.attribute)
        parent = target.attribute.rpartition(".")[0]
        functions = [f for node in nodes for f in _functions(node)]
        parameters = frozenset(name for f in functions for name in _parameters(f))
        return cls(
            nested=bool(parent) and any(isinstance(node, FUNCTIONS) for node in source.definitions(parent)),
            parameters=parameters,
            locals=frozenset(name for f in functions for name in _local_names(f)) - parameters,
            public=frozenset([*resolve.exported(path), *syntax.names(tree), *dir(builtins)]),
        )

    def problems(self, text: str) -> Iterator[str]:
        """Yield the names in a snippet that a refactoring may change, without duplicates."""
        tree = _parse_snippet(text)
        bound_in_snippet = _names_bound_in(tree)
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
    if isinstance(node, ast.ClassDef):
        return [method for method in node.body if isinstance(method, FUNCTIONS)]
    return [node] if isinstance(node, FUNCTIONS) else []


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[str]:
    return [node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)]


def _local_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield the names that a function binds in its body and in nested functions, except by imports."""
    for statement in function.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, syntax.DEFINITIONS):
                yield node.name
            elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
                yield node.name
            if isinstance(node, (*FUNCTIONS, ast.Lambda)):
                yield from _parameters(node)


def _names_bound_in(tree: ast.AST) -> frozenset[str]:
    """Return the names that are local to comprehensions, lambdas and functions in a snippet."""
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


def _parse_snippet(text: str) -> ast.Module:
    """Return the tree of a snippet; an empty tree if the text is not Python, which another rule reports."""
    # An expression of several lines is valid only in brackets.
    plain = textwrap.dedent(text).strip()
    for form in (plain, f"({plain}\n)"):
        try:
            return ast.parse(form)
        except syntax.UNREADABLE:
            continue
    return ast.Module(body=[], type_ignores=[])
