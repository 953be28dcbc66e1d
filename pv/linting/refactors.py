"""Rules about mutants that a refactor would break: they name public code where it is defined, and no local.

Public means that no part of a dotted name starts with one underscore; dunder names are public.
"""

import ast
import builtins
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from pv.contract.codes import Code, Stops
from pv.contract.finding import Finding, Location, error
from pv.contract.mutants import Edit
from pv.contract.names import Target
from pv.engines.rule import Context, rule
from pv.source import patch, resolve, syntax
from pv.source.project import Project
from pv.source.resolve import Unbound

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SWAP = "write a swap of a public function instead, or an edit of parameters, literals and public names only"
DEFINED = "name the module that defines it, or one that lists it in `__all__`"
AUTOMATIC = "remove the entry: an equivalent that is not declared counts as a survivor"
MEANING = "a mutant or equivalent that names a private function, an underscored name, a local variable or an import"


@rule(Code("PV146", MEANING, Stops.NOTHING))
def refactors(context: Context) -> Iterator[Finding]:
    """Check that declared mutants and equivalents survive a rename of private functions and local variables."""
    for mutant in context.contract.mutants:
        if isinstance(mutant.change, Edit):
            yield from _edit(context.project, mutant.location, f"{mutant.id}: ", mutant.change, SWAP)
        else:
            yield from _swap(context.project, mutant.location, mutant.id, mutant.change.object)
    for declared in context.contract.equivalents:
        yield from _edit(context.project, declared.location, "", declared.change, AUTOMATIC)


def _swap(project: Project, location: Location, owner: str, target: Target) -> Iterator[Finding]:
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
        yield _finding(location, f"{owner}: {target.module} only imports {name!r}", DEFINED)


def _edit(project: Project, location: Location, owner: str, edit: Edit, hint: str) -> Iterator[Finding]:
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
    found = {"find": list(code.problems(edit.find)), "replace": list(code.problems(edit.replace))}
    for key, problems in found.items():
        for problem in problems:
            if key == "find" or problem not in found["find"]:
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
    """The names that an edit of one function may use, and those that it may not."""

    nested: bool
    parameters: frozenset[str]
    locals: frozenset[str]
    public: frozenset[str]

    @classmethod
    def of(cls, project: Project, target: Target) -> "_Code":
        """Return the names of the function or class of `target`. Raise Unbound."""
        path = resolve.module_file(project, target.module)
        tree = resolve.parse(path)  # raises Unbound for a file that is not Python
        source = patch.read(resolve.source(path))
        nodes = source.definitions(target.attribute)
        outer = target.attribute.rpartition(".")[0]
        functions = [f for node in nodes for f in _functions(node)]
        parameters = frozenset(name for f in functions for name in _parameters(f))
        return cls(
            nested=any(isinstance(node, FUNCTIONS) for node in source.definitions(outer)) if outer else False,
            parameters=parameters,
            locals=frozenset(name for f in functions for name in _bound(f)) - parameters,
            public=frozenset([*resolve.exported(path), *syntax.names(tree), *dir(builtins)]),
        )

    def problems(self, text: str) -> Iterator[str]:
        """Yield the names in a snippet that a refactor may change, each once."""
        tree = _parsed(text)
        own = _bound_inside(tree)
        for name in dict.fromkeys(_attributes(tree)):
            if is_private(name):
                yield f"the private attribute {name!r}"
        for name in dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)):
            if name in own:
                continue
            if is_private(name):
                yield f"the private name {name!r}"
            elif name in self.locals or name not in self.parameters | self.public:
                yield f"the local variable {name!r}"


def _functions(node: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return a function, or the methods of a class."""
    if isinstance(node, FUNCTIONS):
        return [node]
    return [each for each in node.body if isinstance(each, FUNCTIONS)] if isinstance(node, ast.ClassDef) else []


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[str]:
    return [node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)]


def _bound(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield the names that a function binds in its body, those of nested functions included."""
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
    """Return the names that comprehensions, lambdas and functions in a snippet bind for themselves."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, COMPREHENSIONS):
            targets = (each for generator in node.generators for each in ast.walk(generator.target))
            found |= {each.id for each in targets if isinstance(each, ast.Name)}
        elif isinstance(node, (*FUNCTIONS, ast.Lambda)):
            found |= set(_parameters(node))
    return frozenset(found)


def _attributes(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg


def _parsed(text: str) -> ast.Module:
    """Return the tree of a snippet; an empty one if it is not Python, which another rule reports."""
    plain = textwrap.dedent(text).strip()
    for form in (plain, f"({plain}\n)"):
        try:
            return ast.parse(form)
        except syntax.UNREADABLE:
            continue
    return ast.Module(body=[], type_ignores=[])
