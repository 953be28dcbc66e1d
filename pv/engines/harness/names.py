"""Resolve names and attributes to the definitions of a project, without running anything.

1. `module_of` lists the definitions and the imports of a file in a `Module`.
2. `uses` yields the names and attributes that a definition evaluates, each with its `Scope`: the local names around it.
3. `Names.values` returns the values that an expression may have: definitions, objects of a class, modules, and names
   from outside of the project. The list is empty for builtins and literals. The result is None instead of a list if the
   source does not determine the value.
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
    """The local names around an expression.

    Attributes:
        bound: The expression of the value for each local name; None if the value is unknown.
    """

    bound: Mapping[str, ast.expr | None] = field(default_factory=dict)

    def nested(self, names: Mapping[str, ast.expr | None]) -> "Scope":
        """Return the scope of a function or comprehension in this scope, which adds the local names `names`."""
        return Scope({**self.bound, **names})


def uses(node: ast.AST, scope: Scope) -> Iterator[tuple[ast.Name | ast.Attribute, Scope]]:
    """Yield every name and every attribute that is read below a node, with the local names around it.

    Names that are assigned are also yielded. Annotations are left out, since no result depends on their values.
    """
    if isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)):
        yield node, scope
    for child, around in _children(node, scope):
        yield from uses(child, around)


def _children(node: ast.AST, scope: Scope) -> Iterator[tuple[ast.AST, Scope]]:
    """Yield the child nodes that are evaluated, each with the local names around it."""
    if isinstance(node, Function):
        defaults = [*node.args.defaults, *node.args.kw_defaults, *getattr(node, "decorator_list", [])]
        # Defaults and decorators are evaluated in the scope around the function, the body in the nested scope.
        yield from ((default, scope) for default in defaults if default is not None)
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        inside = scope.nested(_locals(node, body))
        yield from ((statement, inside) for statement in body)
    elif isinstance(node, COMPREHENSIONS):
        inside = scope.nested(dict.fromkeys(_stored(generator.target for generator in node.generators)))
        yield from ((child, inside) for child in ast.iter_child_nodes(node))
    elif isinstance(node, ast.AnnAssign):
        yield from ((part, scope) for part in (node.target, node.value) if part is not None)
    else:
        yield from ((child, scope) for child in ast.iter_child_nodes(node))


def scope_of_body(function: ast.AST) -> Scope:
    """Return the scope of the body of a function; a scope without local names for any other node."""
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return Scope()
    return Scope(_locals(function, function.body))


def _locals(function: Function, body: Iterable[ast.AST]) -> dict[str, ast.expr | None]:
    """Return the local names of a function, each with the expression of its value; None if the value is unknown.

    Local names are the parameters, whose value is an object of the annotated class, and the names that the body binds,
    except by imports, which `Definition.imported` has.
    """
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    bound: dict[str, ast.expr | None] = {parameter.arg: instance_of(parameter.annotation) for parameter in named}
    bound |= {parameter.arg: None for parameter in (arguments.vararg, arguments.kwarg) if parameter is not None}
    nodes = list(syntax.nodes_inside(body, *COMPREHENSIONS))
    values: dict[ast.expr, ast.expr | None] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            values[node.targets[0]] = node.value
        elif isinstance(node, ast.AnnAssign):
            values[node.target] = instance_of(node.annotation) or node.value
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            # The value of a name that is bound twice is unknown.
            bound[node.id] = None if node.id in bound else values.get(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound[node.name] = None
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound[node.name] = None
    # Names that the function declares as `global` or `nonlocal` belong to an outer scope.
    outer = {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    return {name: value for name, value in bound.items() if name not in outer}


def instance_of(annotation: ast.expr | None) -> ast.expr | None:
    """Return an expression whose value is an object of the annotated class; None if the annotation is no class name."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            annotation = ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            return None
    # A parameter `x: Adam` is treated as if its value were the call `Adam()`.
    return ast.Call(annotation, [], []) if isinstance(annotation, ast.Name | ast.Attribute) else None


def _stored(targets: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names in assignment targets."""
    yield from (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))


@dataclass(frozen=True, slots=True)
class Module:
    """A file of the project with its definitions and imports.

    Attributes:
        name: The dotted name of the module.
        path: The file.
        names: The names that the module defines at the top level.
        imports: The absolute dotted target of each imported name.
        stars: The modules named in `from MODULE import *` statements.
        definitions: The definitions at the top level and in classes, also those in blocks such as `if`.
    """

    name: str
    path: Path
    names: frozenset[str]
    imports: Mapping[str, str]
    stars: tuple[str, ...]
    definitions: tuple["Definition", ...]

    @property
    def package(self) -> list[str]:
        """Return the package to which relative imports refer, as a list of the parts of its dotted name."""
        return syntax.package_of(self.name, self.path)


@dataclass(eq=False)
class Definition:
    """A function, a method, a class without its methods, or a variable of a module or class."""

    name: str
    """The name, without dots."""
    node: ast.AST
    line: int
    inner: tuple["Definition", ...] = ()
    """The definitions in the body of a class, which code that has an object of the class may use."""
    owner: "Definition | None" = None
    """The class in whose body the definition is; None at the top level."""
    module: Module = field(init=False, repr=False)
    """The module with the definition. Set after construction, since module and definitions refer to each other."""

    @cached_property
    def imported(self) -> Mapping[str, str]:
        """Return the absolute targets of the names imported in the file; imports in the definition take precedence."""
        return {**self.module.imports, **_imports(ast.walk(self.node), self.module.package)}

    @cached_property
    def uses(self) -> tuple[tuple[ast.Name | ast.Attribute, Scope], ...]:
        """Return the names and attributes that the definition evaluates, each with the local names around it."""
        return tuple(uses(self.node, Scope()))


@cache
def module_of(name: str, path: Path, tree: ast.Module) -> Module:
    """Return the module of a file, with its definitions and imports.

    The module is cached, since many harnesses reach the same files. Its definitions cache the names that they use.

    Args:
        name: The dotted name of the module.
        path: The file.
        tree: The syntax tree of the file. The cache compares trees by identity.
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
        else:  # the blocks of `if`, `try`, `with` and loops
            for block in ("body", "orelse", "finalbody", "handlers"):
                yield from _definitions(getattr(node, block, None) or [])


def _class(node: ast.ClassDef) -> Iterator[Definition]:
    """Yield a class without its methods, then the definitions in its body."""
    statements: list[ast.stmt] = [p for p in node.body if not isinstance(p, ast.FunctionDef | ast.AsyncFunctionDef)]
    # Leave out the methods: a use of a class runs its body, but a method runs only if it is called.
    bare = ast.ClassDef(node.name, node.bases, node.keywords, statements, node.decorator_list)
    below = tuple(_definitions(node.body))
    # A definition in a nested class already has that class as its owner.
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
"""Maximum number of steps to resolve an expression. Without a limit, circular assignments would never end."""
LITERALS = (ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.SetComp)


@dataclass(frozen=True, slots=True)
class Instance:
    """An object of a class of the project."""

    class_: Definition


@dataclass(frozen=True, slots=True)
class ExternalName:
    """A dotted name that does not start with a module of the project, such as a name of a library."""

    name: str


@dataclass(frozen=True, slots=True)
class UnknownObject:
    """An object of an unknown class, such as an attribute to which a method assigns the result of an unknown call."""


PossibleValue = UnknownObject | Definition | Instance | Module | ExternalName
Values = list[PossibleValue] | None
"""The possible values of an expression; [] for a builtin or literal, None if the values are unknown."""


class Names:
    """Resolves names and attributes to the definitions of some modules.

    Args:
        modules: The modules.
        subject: The dotted target of parameters with the name `subject`; "" if it is unknown.
    """

    def __init__(self, modules: Sequence[Module], subject: str = "") -> None:
        self.modules = tuple(modules)
        self._modules = {module.name: module for module in modules}
        self._subject = subject
        self._by_name: dict[str, list[Definition]] = {}
        for module in modules:
            for definition in module.definitions:
                self._by_name.setdefault(definition.name, []).append(definition)

    def references(self, definition: Definition) -> Iterator[Definition]:
        """Yield the definitions to which a definition certainly refers; for a class, also its constructors."""
        for node, scope in definition.uses:
            for candidate in self.values(node, scope, definition) or ():
                if isinstance(candidate, Definition):
                    yield candidate
                    # Code that names a class may create an object of the class.
                    yield from (member for member in candidate.inner if member.name in CONSTRUCTORS)

    def possible_references(self, definition: Definition) -> Iterator[Definition]:
        """Yield definitions that a definition may refer to.

        1. If the definition is a class, its members.
        2. For every attribute of an object of unknown class, all definitions with the name of the attribute.
        """
        yield from definition.inner
        for node, scope in definition.uses:
            if isinstance(node, ast.Attribute) and self.values(node, scope, definition) is None:
                yield from self._by_name.get(node.attr, ())

    def external_names(self, definition: Definition) -> Iterator[str]:
        """Yield the names outside of the project that a definition uses: builtins, and dotted names in libraries."""
        for node, scope in definition.uses:
            values = self.values(node, scope, definition)
            base = self.values(node.value, scope, definition) if isinstance(node, ast.Attribute) else None
            # Skip attributes of an external name: for `torch.nn.functional`, yield only `torch`.
            if not any(isinstance(candidate, ExternalName) for candidate in base or ()):
                yield from (candidate.name for candidate in values or () if isinstance(candidate, ExternalName))
            if isinstance(node, ast.Name) and values == [] and node.id not in scope.bound:
                yield node.id  # a builtin

    def values(self, node: ast.expr, scope: Scope, around: Definition, steps: int = MAX_STEPS) -> Values:
        """Return the possible values of an expression; None if they are unknown.

        Args:
            node: The expression.
            scope: The local names around the expression.
            around: The definition that contains the expression.
            steps: The number of steps that are left. Without any, the values are unknown.
        """
        if steps <= 0:
            return None
        if isinstance(node, ast.Name):
            return self._name(node.id, scope, around, steps - 1)
        if isinstance(node, ast.Attribute):
            return self._attributes(self.values(node.value, scope, around, steps - 1), node.attr, steps - 1)
        if isinstance(node, ast.Call):
            return self._result(self.values(node.func, scope, around, steps - 1), steps - 1)
        return [] if isinstance(node, LITERALS) else None

    def _name(self, name: str, scope: Scope, around: Definition, steps: int) -> Values:
        """Return the possible values of a name."""
        # Search local names, imports, names of the module and builtins, in this order.
        if name in scope.bound:
            return self._local(name, scope, around, steps)
        if name in around.imported:
            return self._target(around.imported[name], steps)
        return self._top_level(around.module, name, steps)

    def _local(self, name: str, scope: Scope, around: Definition, steps: int) -> Values:
        """Return the possible values of a local name.

        Besides assigned expressions and annotations, two kinds of parameters determine a value: `subject`, and the
        first parameter of a method, such as `self` or `cls`.
        """
        expression = scope.bound[name]
        if expression is not None:
            return self.values(expression, scope, around, steps)
        if name == "subject" and self._subject:
            return self._target(self._subject, steps)
        arguments = getattr(around.node, "args", None)
        first = [*arguments.posonlyargs, *arguments.args][:1] if arguments is not None else []
        if around.owner is None or not first or first[0].arg != name:
            return None
        decorators = {ast.unparse(decorator) for decorator in getattr(around.node, "decorator_list", ())}
        if "staticmethod" in decorators:
            return None
        return [around.owner if "classmethod" in decorators else Instance(around.owner)]

    def _target(self, dotted: str, steps: int) -> Values:
        """Return the possible values of an absolute dotted name."""
        parts = dotted.split(".")
        for end in range(len(parts), 0, -1):
            # The longest prefix that is a module; the other parts are attributes.
            if module := self._modules.get(".".join(parts[:end])):
                values: Values = [module]
                for part in parts[end:]:
                    values = self._attributes(values, part, steps - 1)
                return values
        return [ExternalName(dotted)]

    def _top_level(self, module: Module, name: str, steps: int) -> Values:
        """Return the possible values of a name at the top level of a module; [] if the module does not define it."""
        if name in module.names:
            return [d for d in module.definitions if d.name == name and d.owner is None]
        if name in module.imports:
            return self._target(module.imports[name], steps) if steps > 0 else None
        for star in (self._modules[star] for star in module.stars if star in self._modules):
            if star is not module and steps > 0 and (values := self._top_level(star, name, steps - 1)):
                return values
        return []

    def _attributes(self, bases: Values, name: str, steps: int) -> Values:
        """Return the possible values of the attribute `name` of some objects; None if one value is unknown."""
        if bases is None or steps <= 0:
            return None
        results: list[PossibleValue] = []
        for base in bases:
            values = self._attribute(base, name, steps)
            if values is None:
                return None
            results += values
        return results

    def _attribute(self, base: PossibleValue, name: str, steps: int) -> Values:
        """Return the possible values of the attribute `name` of one object or module; None if unknown."""
        if isinstance(base, ExternalName):
            return self._target(f"{base.name}.{name}", steps)
        if isinstance(base, Module):
            submodule = self._modules.get(f"{base.name}.{name}")
            return self._top_level(base, name, steps) or ([submodule] if submodule is not None else None)
        if isinstance(base, UnknownObject):
            return None
        definition = base.class_ if isinstance(base, Instance) else base
        if isinstance(definition.node, ast.ClassDef):
            return self._member(definition, name, steps)
        assigned = getattr(definition.node, "value", None)  # the value of a variable; a function has none
        if assigned is None:
            return None
        return self._attributes(self.values(assigned, Scope(), definition, steps - 1), name, steps - 1)

    def _member(self, class_: Definition, name: str, steps: int) -> Values:
        """Return the possible values of a member of a class or of its bases.

        An attribute to which a method assigns an unknown value is an `UnknownObject`. The result is None if no class
        has the member, or if a base is unknown.
        """
        if members := [member for member in class_.inner if member.name == name]:
            return list(members)
        results: list[PossibleValue] = []
        assigned = list(_assigned(class_, name))
        for value, method in assigned:
            values = self.values(value, scope_of_body(method.node), method, steps - 1) if value is not None else None
            results += values if values is not None else [UnknownObject()]
        if assigned:
            return results
        assert isinstance(class_.node, ast.ClassDef)
        # Search the bases in order. The method resolution order of Python differs only for diamonds.
        for base in class_.node.bases:
            for candidate in self.values(base, Scope(), class_, steps - 1) or [UnknownObject()]:
                if not isinstance(candidate, Definition) or not isinstance(candidate.node, ast.ClassDef) or steps < 1:
                    return None  # the base is unknown or from outside of the project, and may have the member
                if (inherited := self._member(candidate, name, steps - 1)) is not None:
                    return inherited
        return None

    def _result(self, callees: Values, steps: int) -> Values:
        """Return the possible results of a call: an object of the called class, or of the annotated return class.

        The result is None if a callee is unknown, or is a function without an annotated return class.
        """
        results: list[PossibleValue] = []
        for callee in callees or [UnknownObject()]:
            if not isinstance(callee, Definition):
                return None
            if isinstance(callee.node, ast.ClassDef):
                results.append(Instance(callee))
                continue
            annotation = instance_of(callee.node.returns) if isinstance(callee.node, ast.FunctionDef) else None
            values = self.values(annotation, Scope(), callee, steps - 1) if annotation is not None else None
            if values is None:
                return None
            results += values
        return results


def _assigned(class_: Definition, name: str) -> Iterator[tuple[ast.expr | None, Definition]]:
    """Yield the values that methods of a class assign to the attribute `name`, each with the method.

    A value is None if it is unknown, such as in a tuple assignment, or if it is the literal None, a placeholder.
    """
    for method in class_.inner:
        nodes = list(ast.walk(method.node))
        targets = {id(t): node.value for node in nodes if isinstance(node, ast.Assign) for t in node.targets}
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr == name:
                value = targets.get(id(node))
                yield None if isinstance(value, ast.Constant) and value.value is None else value, method
