"""Resolve names and attributes to the definitions of a project, without running anything.

A file is read as a `Module`: its definitions and imports. `uses` yields the names and attributes that a definition
evaluates, with the local names around them (`Scope`). `Names` gives the value of an expression as the list of things
that it may be: definitions, objects of a class, modules, and names from outside of the project. The list is empty for
builtins and literals, and None where the source does not determine the value.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from pv.source import syntax

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, slots=True)
class Scope:
    """The local names around an expression, each with the expression of its value; None if the value is unknown."""

    bound: Mapping[str, ast.expr | None] = field(default_factory=dict)

    def inside(self, names: Mapping[str, ast.expr | None]) -> "Scope":
        """Return the scope of a function or comprehension with more names."""
        return Scope({**self.bound, **names})


def uses(node: ast.AST, scope: Scope) -> Iterator[tuple[ast.Name | ast.Attribute, Scope]]:
    """Yield every name and attribute below a node that is evaluated; annotations are not."""
    if isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)):
        yield node, scope
    for child, around in _children(node, scope):
        yield from uses(child, around)


def _children(node: ast.AST, scope: Scope) -> Iterator[tuple[ast.AST, Scope]]:
    """Yield the child nodes that are evaluated, each with the local names around it."""
    if isinstance(node, Function):
        defaults = [*node.args.defaults, *node.args.kw_defaults, *getattr(node, "decorator_list", [])]
        # Defaults and decorators are evaluated outside of the function, its body inside.
        yield from ((default, scope) for default in defaults if default is not None)
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        inside = scope.inside(_locals(node, body))
        yield from ((statement, inside) for statement in body)
    elif isinstance(node, COMPREHENSIONS):
        inside = scope.inside(dict.fromkeys(_stored(generator.target for generator in node.generators)))
        yield from ((child, inside) for child in ast.iter_child_nodes(node))
    elif isinstance(node, ast.AnnAssign):
        yield from ((part, scope) for part in (node.target, node.value) if part is not None)
    else:
        yield from ((child, scope) for child in ast.iter_child_nodes(node))


def within(function: ast.AST) -> Scope:
    """Return the scope of the body of a function; the scope of a module for any other node."""
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return Scope()
    return Scope(_locals(function, function.body))


def _locals(function: Function, body: Iterable[ast.AST]) -> dict[str, ast.expr | None]:
    """Return the local names of a function: its parameters by their annotation, and the names that its body binds."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    bound: dict[str, ast.expr | None] = {parameter.arg: an_object_of(parameter.annotation) for parameter in named}
    bound |= {parameter.arg: None for parameter in (arguments.vararg, arguments.kwarg) if parameter is not None}
    nodes = list(syntax.inside(body, *COMPREHENSIONS))
    assigned: dict[int, ast.expr | None] = {}
    assigned |= {id(n.targets[0]): n.value for n in nodes if isinstance(n, ast.Assign) and len(n.targets) == 1}
    assigned |= {id(n.target): an_object_of(n.annotation) or n.value for n in nodes if isinstance(n, ast.AnnAssign)}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            # A name that is bound twice may have either value: not known.
            bound[node.id] = None if node.id in bound else assigned.get(id(node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound[node.name] = None
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound[node.name] = None
    # `global` and `nonlocal` names belong to an outer scope, although the function assigns them.
    outer = {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    return {name: value for name, value in bound.items() if name not in outer}


def an_object_of(annotation: ast.expr | None) -> ast.expr | None:
    """Return an expression whose value is an object of an annotated class; None if the annotation names none."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            annotation = ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            return None
    # A parameter `x: Adam` is treated as if it were the call `Adam()`.
    return ast.Call(annotation, [], []) if isinstance(annotation, ast.Name | ast.Attribute) else None


def _stored(targets: Iterable[ast.AST]) -> Iterator[str]:
    yield from (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))


@dataclass(frozen=True, slots=True)
class Module:
    """A file of the project, the names that it defines at its top, and the absolute target of each imported name.

    Attributes:
        stars: The modules in its `from module import *` statements.
    """

    name: str
    path: Path
    names: frozenset[str]
    imports: Mapping[str, str]
    stars: tuple[str, ...]
    definitions: tuple["Definition", ...]

    @property
    def package(self) -> list[str]:
        """Return the parts of the name of the package that relative imports start from."""
        return syntax.package_of(self.name, self.path)


@dataclass(eq=False)
class Definition:
    """A function, a method, a class without its methods, or a variable of a module, under its last name."""

    name: str
    node: ast.AST
    line: int
    inner: tuple["Definition", ...] = ()
    """The definitions inside a class: code with an object of it may call them."""
    owner: "Definition | None" = None
    """The class of a method."""
    module: Module = field(init=False, repr=False)
    """The module that defines it. Set after construction, since module and definitions refer to each other."""

    @cached_property
    def imported(self) -> Mapping[str, str]:
        """Return the absolute targets of imported names in the file; imports in this definition take precedence."""
        return {**self.module.imports, **_imports(ast.walk(self.node), self.module.package)}

    @cached_property
    def uses(self) -> tuple[tuple[ast.Name | ast.Attribute, Scope], ...]:
        """Return the names and attributes that the definition evaluates, each with the local names around it."""
        return tuple(uses(self.node, Scope()))


@cache
def module_of(name: str, path: Path, tree: ast.Module) -> Module:
    """Return the module of a file, with its definitions at every level.

    The module is cached by tree, together with the names that its definitions use: many harnesses reach the same files.
    """
    definitions = tuple(_definitions(tree.body))
    top = {definition.name for definition in definitions if definition.owner is None}
    package = syntax.package_of(name, path)
    stars = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.names[0].name == "*"]
    module = Module(
        name=name,
        path=path,
        names=frozenset(top),
        imports=_imports(ast.walk(tree), package),
        stars=tuple(syntax.imported_module(node, package) for node in stars),
        definitions=definitions,
    )
    for definition in definitions:
        definition.module = module
    return module


def _definitions(body: Sequence[ast.stmt]) -> Iterator[Definition]:
    """Yield the definitions of a block, also in nested blocks and classes."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Definition(node.name, node, node.lineno)
        elif isinstance(node, ast.ClassDef):
            yield from _class(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (Definition(t.id, node, node.lineno) for t in targets if isinstance(t, ast.Name))
        for block in ("body", "orelse", "finalbody", "handlers"):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from _definitions(getattr(node, block, None) or [])


def _class(node: ast.ClassDef) -> Iterator[Definition]:
    """Yield a class without its methods, then the definitions in its body."""
    statements: list[ast.stmt] = [p for p in node.body if not isinstance(p, ast.FunctionDef | ast.AsyncFunctionDef)]
    # Leave out the methods: using a class runs its body, but a method runs only where it is called.
    bare = ast.ClassDef(node.name, node.bases, node.keywords, statements, node.decorator_list)
    below = tuple(_definitions(node.body))
    inner = tuple(definition for definition in below if definition.owner is None)
    class_ = Definition(node.name, bare, node.lineno, inner)
    for definition in inner:
        definition.owner = class_
    yield class_
    yield from below


def _imports(nodes: Iterator[ast.AST], package: Sequence[str]) -> dict[str, str]:
    """Return the absolute dotted target of each imported name."""
    targets: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                # `import a.b` binds `a`; `import a.b as c` binds the module a.b.
                targets[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            module = syntax.imported_module(node, package)
            targets |= {alias.asname or alias.name: f"{module}.{alias.name}" for alias in node.names}
    return targets


CONSTRUCTORS = ("__init__", "__new__", "__post_init__")
MAX_STEPS = 20
LITERALS = (ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.SetComp)


@dataclass(frozen=True, slots=True)
class Object:
    """An object of a class."""

    of: Definition


@dataclass(frozen=True, slots=True)
class Outside:
    """A dotted name that starts with none of the modules, such as a name of a library."""

    name: str


@dataclass(frozen=True, slots=True)
class Data:
    """The value of an attribute that a method assigns: an object of an unknown class."""


Thing = Data | Definition | Object | Module | Outside
Value = list[Thing] | None


class Names:
    """The definitions of some modules.

    Args:
        subject: The dotted target of the parameters `subject`.
    """

    def __init__(self, modules: Sequence[Module], subject: str = "") -> None:
        self.modules = tuple(modules)
        self._modules = {module.name: module for module in modules}
        self._subject = subject
        self._by_name: dict[str, list[Definition]] = {}
        for definition in (definition for module in modules for definition in module.definitions):
            self._by_name.setdefault(definition.name, []).append(definition)

    def reached(self, definition: Definition) -> Iterator[Definition]:
        """Yield the definitions that the names in a definition resolve to, and the constructors of such classes."""
        for node, scope in definition.uses:
            for thing in self.value(node, scope, definition) or ():
                if isinstance(thing, Definition):
                    yield thing
                    # Naming a class may create an object of it.
                    yield from (member for member in thing.inner if member.name in CONSTRUCTORS)

    def maybe(self, definition: Definition) -> Iterator[Definition]:
        """Yield possible callees: members of its class, and every definition with the name of an attribute in it."""
        yield from definition.inner
        for node, scope in definition.uses:
            if isinstance(node, ast.Attribute) and self.value(node, scope, definition) is None:
                # The class is unknown, so any definition with the name of the attribute may be meant.
                yield from self._by_name.get(node.attr, ())

    def outside(self, definition: Definition) -> Iterator[str]:
        """Yield the names from outside of the project that a definition uses; a builtin by its plain name."""
        for node, scope in definition.uses:
            value = self.value(node, scope, definition)
            base = self.value(node.value, scope, definition) if isinstance(node, ast.Attribute) else None
            if not any(isinstance(thing, Outside) for thing in base or ()):
                yield from (thing.name for thing in value or () if isinstance(thing, Outside))
            if isinstance(node, ast.Name) and value == [] and node.id not in scope.bound:
                yield node.id

    def value(self, node: ast.expr, scope: Scope, around: Definition, steps: int = MAX_STEPS) -> Value:
        """Return the possible values of an expression; None if they are unknown.

        Args:
            node: The expression.
            scope: The local names around the expression.
            around: The definition that contains the expression.
            steps: The maximum number of further steps of resolution.
        """
        # Assignments may refer to each other in a circle; 20 steps are more than real code needs.
        if steps <= 0:
            return None
        if isinstance(node, ast.Name):
            return self._name(node.id, scope, around, steps - 1)
        if isinstance(node, ast.Attribute):
            return self._all(self.value(node.value, scope, around, steps - 1), node.attr, steps - 1)
        if isinstance(node, ast.Call):
            return self._result(self.value(node.func, scope, around, steps - 1), steps - 1)
        return [] if isinstance(node, LITERALS) else None

    def _name(self, name: str, scope: Scope, around: Definition, steps: int) -> Value:
        # Lookup order as in Python: local names, imports, names of the module, builtins.
        if name in scope.bound:
            return self._local(name, scope, around, steps)
        if name in around.imported:
            return self._target(around.imported[name], steps)
        return self._top(around.module, name, steps)

    def _local(self, name: str, scope: Scope, around: Definition, steps: int) -> Value:
        """Return the possible values of a local name; `self` and `cls` of a method are known."""
        bound_to = scope.bound[name]
        if bound_to is not None:
            return self.value(bound_to, scope, around, steps)
        if name == "subject" and self._subject:
            return self._target(self._subject, steps)
        arguments = getattr(around.node, "args", None)
        first = [*arguments.posonlyargs, *arguments.args][:1] if arguments is not None else []
        if around.owner is None or not first or first[0].arg != name:
            return None
        decorators = {ast.unparse(decorator) for decorator in getattr(around.node, "decorator_list", ())}
        if "staticmethod" in decorators:
            return None
        return [around.owner if "classmethod" in decorators else Object(around.owner)]

    def _target(self, dotted: str, steps: int) -> Value:
        """Return the possible values of an absolute dotted name."""
        parts = dotted.split(".")
        for end in range(len(parts), 0, -1):
            if module := self._modules.get(".".join(parts[:end])):
                value: Value = [module]
                for part in parts[end:]:
                    value = self._all(value, part, steps - 1)
                return value
        return [Outside(dotted)]

    def _top(self, module: Module, name: str, steps: int) -> Value:
        """Return the possible values of a name at the top of a module; [] for a builtin."""
        if name in module.names:
            return [d for d in module.definitions if d.name == name and d.owner is None]
        if name in module.imports:
            return self._target(module.imports[name], steps) if steps > 0 else None
        for source in module.stars:
            star = self._modules.get(source)
            if star is not None and star is not module and steps > 0 and (value := self._top(star, name, steps - 1)):
                return value
        return []

    def _all(self, value: Value, name: str, steps: int) -> Value:
        """Return the possible values of an attribute; None if one of them is unknown."""
        things: list[Thing] = []
        for thing in value if value is not None and steps > 0 else [Data()]:
            inner = self._attribute(thing, name, steps)
            if inner is None:
                return None
            things += inner
        return things

    def _attribute(self, thing: Thing, name: str, steps: int) -> Value:
        """Return the possible values of the attribute `name` of one object or module; None if unknown."""
        if isinstance(thing, Outside):
            return self._target(f"{thing.name}.{name}", steps)
        if isinstance(thing, Module):
            below = self._modules.get(f"{thing.name}.{name}")
            return self._top(thing, name, steps) or ([below] if below is not None else None)
        if isinstance(thing, Data):
            return None
        definition = thing.of if isinstance(thing, Object) else thing
        if isinstance(definition.node, ast.ClassDef):
            return self._member(definition, name, steps)
        annotation = getattr(definition.node, "value", None)  # of a variable
        return (
            self._all(self.value(annotation, Scope(), definition, steps - 1), name, steps - 1) if annotation else None
        )

    def _member(self, of: Definition, name: str, steps: int) -> Value:
        """Return the possible values of a member of a class or of its bases; `Data` for an assigned unknown value."""
        if members := [member for member in of.inner if member.name == name]:
            return list(members)
        if assigned := list(_assigned(of, name)):
            values = [self.value(e, within(method.node), method, steps - 1) if e else None for e, method in assigned]
            return [thing for value in values for thing in (value if value is not None else [Data()])]
        assert isinstance(of.node, ast.ClassDef)
        for base in of.node.bases:
            for thing in self.value(base, Scope(), of, steps - 1) or [Data()]:
                if not isinstance(thing, Definition) or not isinstance(thing.node, ast.ClassDef) or steps < 1:
                    return None  # a base from elsewhere
                if (inherited := self._member(thing, name, steps - 1)) is not None:
                    return inherited
        return None

    def _result(self, value: Value, steps: int) -> Value:
        """Return the possible results of a call: an object of the called class, or of the annotated return class."""
        things: list[Thing] = []
        for thing in value or [Data()]:
            node = thing.node if isinstance(thing, Definition) else None
            if isinstance(thing, Definition) and isinstance(node, ast.ClassDef):
                things.append(Object(thing))
                continue
            annotation = an_object_of(node.returns) if isinstance(node, ast.FunctionDef) else None
            inner = (
                self.value(annotation, Scope(), thing, steps - 1)
                if isinstance(thing, Definition) and annotation
                else None
            )
            if inner is None:
                return None
            things += inner
        return things


def _assigned(of: Definition, name: str) -> Iterator[tuple[ast.expr | None, Definition]]:
    """Yield the values that methods of a class assign to the attribute `name`; None for an unknown value."""
    for method in of.inner:
        nodes = list(ast.walk(method.node))
        targets = {id(t): node.value for node in nodes if isinstance(node, ast.Assign) for t in node.targets}
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr == name:
                value = targets.get(id(node))
                yield None if isinstance(value, ast.Constant) and value.value is None else value, method
