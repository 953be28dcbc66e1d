"""The code that a new contract is about, read from its source: a function, or a method and how its object is made."""

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace

from pv.commands.signature import Parameter, fields, optional, parameters
from pv.contract.names import Binding, Target, hyphen_hint
from pv.contract.wording import nearest
from pv.errors import UsageError
from pv.source import syntax
from pv.source.project import Project
from pv.source.resolve import Function, Unbound, function, module_file, parse, returns_nothing

RANDOM = {"rand", "randn", "randint", "randperm", "random", "bernoulli", "dropout", "multinomial", "normal_", "time"}
RANDOM |= {"perf_counter", "uuid4", "shuffle", "sample", "uniform_", "default_rng", "Generator"}
"""Names in code that may give other results for equal arguments."""
FREE = {"staticmethod", "classmethod"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Callee:
    """A function or method, the parameters that a call must give, and those that it may give.

    constructor: the parameters of the class whose object the method is called on; None for what is called on a name.
    """

    target: Target
    text: str
    parameters: tuple[Parameter, ...]
    optional: tuple[Parameter, ...] = ()
    constructor: tuple[Parameter, ...] | None = None
    steady: bool = True
    """False if its source names something random, or the time."""
    silent: bool = False
    """True if its source returns nothing, so that it works by changing its arguments."""

    @property
    def all_parameters(self) -> tuple[Parameter, ...]:
        """Return all parameters that a call must give."""
        return (*(self.constructor or ()), *self.parameters)

    @property
    def name(self) -> str:
        return self.target.attribute

    def call(self, given: Callable[[Parameter], str], also: tuple[Parameter, ...] = ()) -> str:
        """Return the call below the subject. given: the argument for a parameter. also: optional ones to give."""
        inside = ", ".join(map(given, (*self.parameters, *also)))
        if self.constructor is None:
            return f"{self.name}({inside})"
        owner, _, method = self.name.rpartition(".")
        return f"{owner}({', '.join(map(given, self.constructor))}).{method}({inside})"


def read(project: Project, target: Target) -> Callee:
    """Return the function, method, or only public method of a class, that a target names. Raise UsageError."""
    if hint := hyphen_hint(str(target)):
        raise UsageError(f"invalid subject '{target}': {hint}")
    try:
        file = module_file(project, target.module)
        known = dict(syntax.walk(parse(file).body))
    except Unbound as problem:
        raise UsageError(_with_hint(str(problem), target.module, problem.known)) from problem
    if not target.attribute:
        public = ", ".join(n for n, node in known.items() if _is_function(node) and n[0] != "_" and "." not in n)
        raise UsageError(f"invalid subject '{target}': expected module:function; {target.module} defines {public}")
    found = known.get(target.attribute)
    if isinstance(found, ast.ClassDef):
        target = Target(target.module, _only_method(target, known))
    elif not _is_function(found):
        names = tuple(name for name, node in known.items() if _is_function(node))
        raise UsageError(_with_hint(f"unknown function {target.attribute!r} in {file.name}", target.attribute, names))
    bound = function(project, Binding(file.relative_to(project.root).as_posix(), target.attribute))
    if bound.is_lazy:
        raise UsageError(f"invalid subject '{target}': a coroutine or generator; write a function that returns values")
    return _callee(target, bound, known)


def _is_function(node: object) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _with_hint(message: str, name: str, known: tuple[str, ...]) -> str:
    near = nearest(name, known)
    return f"{message}; did you mean {near!r}?" if near else message


def _only_method(target: Target, known: dict[str, syntax.Definition]) -> str:
    """Return the one public method of a class. Raise UsageError if there is none or a choice."""
    own = [name for name in known if name.startswith(f"{target.attribute}.") and _is_function(known[name])]
    public = [name for name in own if not name.rpartition(".")[2].startswith("_")]
    if len(public) == 1:
        return public[0]
    choice = f"name one of its methods: {', '.join(public)}" if public else "name a function that uses it"
    raise UsageError(f"invalid subject '{target}': a class; {choice}")


def _callee(target: Target, bound: Function, known: dict[str, syntax.Definition]) -> Callee:
    owner = known.get(target.attribute.rpartition(".")[0])
    decorators = {ast.unparse(each) for each in bound.node.decorator_list}
    if "property" in decorators or target.attribute.rpartition(".")[2].startswith("__"):
        raise UsageError(f"invalid subject '{target}': a property or special method; write a function that calls it")
    method = isinstance(owner, ast.ClassDef)
    skipped = int(method and "staticmethod" not in decorators)
    constructor = (
        _constructor_parameters(owner, known, target)
        if isinstance(owner, ast.ClassDef) and not decorators & FREE
        else None
    )
    called = parameters(bound.node, skipped)
    taken = {each.name for each in called}
    return Callee(
        target=target,
        text=ast.get_docstring(bound.node) or "",
        parameters=called,
        optional=tuple(each for each in optional(bound.node, skipped) if each.name not in taken),
        constructor=None if constructor is None else tuple(_apart(each, taken) for each in constructor),
        silent=isinstance(bound.node, ast.FunctionDef) and returns_nothing(bound.node),
        steady=not {word.id if isinstance(word, ast.Name) else word.attr for word in _words(bound.node)} & RANDOM,
    )


def _constructor_parameters(
    owner: ast.ClassDef, known: dict[str, syntax.Definition], target: Target
) -> tuple[Parameter, ...]:
    """Return the required parameters of the constructor."""
    init = known.get(f"{target.attribute.rpartition('.')[0]}.__init__")
    if isinstance(init, ast.FunctionDef):
        return parameters(init, 1, required=True)
    return fields(owner) if any("dataclass" in ast.unparse(each) for each in owner.decorator_list) else ()


def _apart(parameter: Parameter, taken: set[str]) -> Parameter:
    """Return a parameter of a class that is drawn under another name than an equal one of its method."""
    return replace(parameter, alias=f"own_{parameter.name}") if parameter.name in taken else parameter


def _words(node: ast.AST) -> list[ast.Name | ast.Attribute]:
    return [each for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute)]
