"""Yields the names and attributes that code evaluates, with the local names around each."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, slots=True)
class Scope:
    """The local names around an expression, with the expression that gives its value; None if not known."""

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
    if isinstance(node, Function):
        defaults = [*node.args.defaults, *node.args.kw_defaults, *getattr(node, "decorator_list", [])]
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
    """Return the scope of the body of a function; that of a module for another node."""
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return Scope()
    return Scope(_locals(function, function.body))


def _locals(function: Function, body: Iterable[ast.AST]) -> dict[str, ast.expr | None]:
    """Return the local names of a function: its parameters by their annotation, and the names that its body binds."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    bound: dict[str, ast.expr | None] = {parameter.arg: an_object_of(parameter.annotation) for parameter in named}
    bound |= {parameter.arg: None for parameter in (arguments.vararg, arguments.kwarg) if parameter is not None}
    nodes = list(_own(body))
    assigned: dict[int, ast.expr | None] = {}
    assigned |= {id(n.targets[0]): n.value for n in nodes if isinstance(n, ast.Assign) and len(n.targets) == 1}
    assigned |= {id(n.target): an_object_of(n.annotation) or n.value for n in nodes if isinstance(n, ast.AnnAssign)}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound[node.id] = None if node.id in bound else assigned.get(id(node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound[node.name] = None
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound[node.name] = None
    outer = {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    return {name: value for name, value in bound.items() if name not in outer}


def an_object_of(annotation: ast.expr | None) -> ast.expr | None:
    """Return an expression whose value is an object of an annotated class; None if the annotation names none."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            annotation = ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            return None
    return ast.Call(annotation, [], []) if isinstance(annotation, ast.Name | ast.Attribute) else None


def _own(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of the functions, classes and comprehensions inside it."""
    todo = list(body)
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, *COMPREHENSIONS)):
            todo += ast.iter_child_nodes(node)


def _stored(targets: Iterable[ast.AST]) -> Iterator[str]:
    yield from (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
