"""Resolves names and attributes to the definitions of a project, without running anything.

The value of an expression is the list of things that it may be: definitions, objects of a class, modules, and names
from outside of the project. It is empty for builtins and literals, and None where the source does not tell.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pv.engines.harness.modules import Definition, Module
from pv.engines.harness.scopes import Scope, an_object_of, within

CONSTRUCTORS = ("__init__", "__new__", "__post_init__")
MAX_STEPS = 20
LITERALS = (ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.SetComp)


@dataclass(frozen=True, slots=True)
class Object:
    """An object of a class."""

    of: Definition


@dataclass(frozen=True, slots=True)
class Outside:
    """A dotted name that is not of the project, or a folder of its modules."""

    name: str


@dataclass(frozen=True, slots=True)
class Data:
    """The value of an attribute that a method assigns: an object of an unknown class."""


Thing = Data | Definition | Object | Module | Outside
Value = list[Thing] | None


class Names:
    """The definitions of some modules. subject: the dotted target of the parameters `subject`."""

    def __init__(self, modules: Sequence[Module], subject: str = "") -> None:
        self.modules = tuple(modules)
        self._modules = {module.name: module for module in modules}
        self._subject = subject
        self._by_name: dict[str, list[Definition]] = {}
        for definition in (definition for module in modules for definition in module.definitions):
            self._by_name.setdefault(definition.name, []).append(definition)

    def reached(self, definition: Definition) -> Iterator[Definition]:
        """Yield the definitions that its names resolve to, and the constructors of classes among them."""
        for node, scope in definition.uses:
            for thing in self.value(node, scope, definition) or ():
                if isinstance(thing, Definition):
                    yield thing
                    yield from (member for member in thing.inner if member.name in CONSTRUCTORS)

    def maybe(self, definition: Definition) -> Iterator[Definition]:
        """Yield what may be called of its class, and the definitions with the name of an attribute of any object."""
        yield from definition.inner
        for node, scope in definition.uses:
            if isinstance(node, ast.Attribute) and self.value(node, scope, definition) is None:
                yield from self._by_name.get(node.attr, ())

    def outside(self, definition: Definition) -> Iterator[str]:
        """Yield the names from outside of the project that it uses, builtins by their name alone."""
        for node, scope in definition.uses:
            value = self.value(node, scope, definition)
            base = self.value(node.value, scope, definition) if isinstance(node, ast.Attribute) else None
            if not any(isinstance(thing, Outside) for thing in base or ()):
                yield from (thing.name for thing in value or () if isinstance(thing, Outside))
            if isinstance(node, ast.Name) and value == [] and node.id not in scope.bound:
                yield node.id

    def value(self, node: ast.expr, scope: Scope, around: Definition, steps: int = MAX_STEPS) -> Value:
        """Return what an expression in a definition may be."""
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
        if name in scope.bound:
            return self._local(name, scope, around, steps)
        if name in around.imported:
            return self._target(around.imported[name], steps)
        return self._top(around.module, name, steps)

    def _local(self, name: str, scope: Scope, around: Definition, steps: int) -> Value:
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
        """Return what an absolute dotted name is."""
        parts = dotted.split(".")
        for end in range(len(parts), 0, -1):
            if module := self._modules.get(".".join(parts[:end])):
                value: Value = [module]
                for part in parts[end:]:
                    value = self._all(value, part, steps - 1)
                return value
        return [Outside(dotted)]

    def _top(self, module: Module, name: str, steps: int) -> Value:
        """Return what a name at the top of a module is; a builtin is nothing."""
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
        """Return an attribute of all things that a value may be; None if one of them is not known."""
        things: list[Thing] = []
        for thing in value if value is not None and steps > 0 else [Data()]:
            inner = self._attribute(thing, name, steps)
            if inner is None:
                return None
            things += inner
        return things

    def _attribute(self, thing: Thing, name: str, steps: int) -> Value:
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
        """Return a member of a class or of its bases. An attribute that a method assigns is data."""
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
        """Return what a call gives: an object of a class, or of the class that a function is annotated with."""
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
    """Yield the values that methods of a class give to the attribute `name` of an object; None if one is not known."""
    for method in of.inner:
        nodes = list(ast.walk(method.node))
        targets = {id(t): node.value for node in nodes if isinstance(node, ast.Assign) for t in node.targets}
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr == name:
                value = targets.get(id(node))
                yield None if isinstance(value, ast.Constant) and value.value is None else value, method
