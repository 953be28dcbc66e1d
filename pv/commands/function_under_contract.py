"""Read the function that a new contract is about: its parameters, proposed values, a formula in its docstring."""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pv.contract.model import Binding, Target, hyphen_hint
from pv.contract.wording import nearest
from pv.errors import UsageError
from pv.source import syntax
from pv.source.project import Project
from pv.source.resolve import Function, Unbound, function, module_file, parse, returns_nothing

RESERVED = {"subject", "device", "run", "copy", "re", "torch", "given", "st", "repr", "hasattr", "first", "second"}
RESERVED |= {"values", "fill_in", "FILL_IN", "SkipTest", "called", "lambda"}
"""Names that the generated test uses, or arguments that `pv` supplies."""
PROPOSALS = (
    (r"bool", "st.booleans()", "mask"),
    (r"int", "st.integers(1, 10)", "int 1..10"),
    (r"float", "st.floats(0.125, 8.0)", "real 0.125..8"),
    (r"str", "st.text(max_size=8)", ""),
    (r"(?:list|Sequence|Iterable)\[float\]", "st.lists(st.floats(0.125, 8.0), min_size=1, max_size=5)", ""),
    (r"(?:list|Sequence|Iterable)\[int\]", "st.lists(st.integers(1, 10), min_size=1, max_size=5)", ""),
    (r"Tensor", "st.lists(st.floats(-8, 8, width=32), min_size=4, max_size=4).map(torch.tensor)", "real[N]"),
)
"""Rows: the pattern of an annotation without its module, a strategy, and a domain of an equation ("" if none fits)."""
Node = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter with proposed values. The author checks them: source code does not show which values are valid.

    Attributes:
        name: The name.
        annotation: The annotation; "" if there is none.
        strategy: A Hypothesis strategy; "" if none is proposed.
        domain: A domain of an equation; "" if none is proposed.
        by_keyword: Whether a call passes the parameter by keyword.
        star: "*" or "**" for a parameter that takes any number of arguments.
        alias: The name in the test and in the equation if `name` is ambiguous there, else "".
        type_is_known: Whether the annotation or the default shows the type. If not, the strategy is a guess, or "".
    """

    name: str
    annotation: str
    strategy: str
    domain: str
    by_keyword: bool
    star: str = ""
    alias: str = ""
    type_is_known: bool = False

    @property
    def name_in_test(self) -> str:
        """Return the name of the parameter in a test; `_` is appended if the test uses the name for another object."""
        return self.alias or (f"{self.name}_" if self.name in RESERVED else self.name)

    @property
    def variable(self) -> str:
        """Return the name of the parameter in an equation."""
        return self.alias or self.name

    def argument(self, value: str) -> str:
        """Return the text that passes the expression `value` for this parameter in a call."""
        return f"{self.name}={value}" if self.by_keyword else f"{self.star}{value}"


def with_defaults(node: Node, skipped: int = 0) -> list[tuple[ast.arg, ast.expr | None]]:
    """Return pairs of a parameter of a function and its default; None for a parameter without a default.

    Args:
        node: The function.
        skipped: Number of leading positional parameters to leave out, such as `self`.
    """
    positional = [*node.args.posonlyargs, *node.args.args]
    required: list[ast.expr | None] = [None] * (len(positional) - len(node.args.defaults))
    rows = list(zip(positional, [*required, *node.args.defaults], strict=True))[skipped:]
    return [*rows, *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]


def class_fields(kind: ast.ClassDef) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    """Yield pairs of a field of a class, as a parameter, and its default; None for a field without a default."""
    for statement in kind.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield ast.arg(statement.target.id, statement.annotation), statement.value
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            yield ast.arg(statement.targets[0].id), statement.value


def parameters(node: Node, skipped: int = 0, *, only_required: bool = False) -> tuple[Parameter, ...]:
    """Return the parameters that a test draws: the required ones or, if none is required, all that it can pass.

    Args:
        node: The function.
        skipped: Number of leading parameters that a call does not pass, such as `self`.
        only_required: Return () if no parameter is required.
    """
    rows = with_defaults(node, skipped)
    drawn = tuple(_parameter(argument, argument in node.args.kwonlyargs) for argument, value in rows if value is None)
    if drawn or only_required:
        return drawn
    stars = ((node.args.vararg, "*"), (node.args.kwarg, "**"))
    variadic = (Parameter(a.arg, _annotation(a), "", "", by_keyword=False, star=star) for a, star in stars if a)
    return (*optional(node, skipped), *variadic)


def optional(node: Node, skipped: int) -> tuple[Parameter, ...]:
    """Return the parameters with a default, except positional-only ones. Their proposed values are near the default."""
    # Calls pass optional parameters by keyword, which is impossible for positional-only parameters.
    rows = [row for row in with_defaults(node, skipped) if row[0] not in node.args.posonlyargs]
    return tuple(_parameter_near_default(argument, value) for argument, value in rows if value is not None)


def _parameter(argument: ast.arg, by_keyword: bool) -> Parameter:
    annotation = _annotation(argument)
    strategy, domain = _proposed_values(annotation or "float")
    type_is_known = bool(annotation and strategy)
    return Parameter(argument.arg, annotation, strategy, domain, by_keyword, type_is_known=type_is_known)


def _parameter_near_default(argument: ast.arg, default: ast.expr) -> Parameter:
    """Return a parameter whose proposed values are its default, both booleans, or numbers of the same magnitude."""
    # Half (integers: once) to twice the default: valid values of a rate or a limit have the magnitude of its default.
    value = getattr(default, "value", None)
    strategy, domain = f"st.just({ast.unparse(default)})", ""
    if type(value) is float and value > 0:
        strategy, domain = f"st.floats({value / 2!r}, {value * 2!r})", f"real {value / 2:g}..{value * 2:g}"
    elif type(value) is int and value > 0:
        strategy, domain = f"st.integers({value}, {value * 2})", f"int {value}..{value * 2}"
    elif type(value) is bool:
        strategy, domain = "st.booleans()", "mask"
    type_is_known = isinstance(default, ast.Constant)
    return Parameter(argument.arg, _annotation(argument), strategy, domain, True, type_is_known=type_is_known)


def _annotation(argument: ast.arg) -> str:
    annotation = argument.annotation
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value
    return ast.unparse(annotation) if annotation is not None else ""


def _proposed_values(annotation: str) -> tuple[str, str]:
    """Return the strategy and the domain for an annotation; "" for both if none is proposed."""
    annotation = re.sub(r"\b\w+\.", "", annotation).replace(" ", "")
    for pattern, strategy, domain in PROPOSALS:
        if re.fullmatch(pattern, annotation):
            return strategy, domain
    return "", ""


RANDOM = {"rand", "randn", "randint", "randperm", "random", "bernoulli", "dropout", "multinomial", "normal_", "time"}
RANDOM |= {"perf_counter", "uuid4", "shuffle", "sample", "uniform_", "default_rng", "Generator"}
"""Names in code whose result may differ for equal arguments."""
WITHOUT_OBJECT = {"staticmethod", "classmethod"}
"""Decorators of methods that are called on the class, without an object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionUnderContract:
    """The function or method that a new contract is about.

    Attributes:
        target: The module and the name.
        docstring: The docstring; "" without one.
        parameters: Parameters that a test draws: the required ones or, if none is required, all that it can pass.
        optional: Parameters with a default that are not in `parameters`.
        constructor: Required parameters of the constructor if the method needs an object; None for other functions.
        is_deterministic: Whether the source uses no random numbers and no clock, judging by the names in it.
        returns_nothing: Whether the source returns nothing, so that the function works by changing its arguments.
    """

    target: Target
    docstring: str
    parameters: tuple[Parameter, ...]
    optional: tuple[Parameter, ...] = ()
    constructor: tuple[Parameter, ...] | None = None
    is_deterministic: bool = True
    returns_nothing: bool = False

    @property
    def all_parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters of the constructor, then the parameters of the function."""
        return (*(self.constructor or ()), *self.parameters)

    @property
    def name(self) -> str:
        return self.target.attribute

    def call(self, argument_for: Callable[[Parameter], str], optional_parameters: tuple[Parameter, ...] = ()) -> str:
        """Return the text of a call, without the name of the module.

        Args:
            argument_for: Returns the argument for a parameter.
            optional_parameters: Optional parameters to pass.
        """
        inside = ", ".join(map(argument_for, (*self.parameters, *optional_parameters)))
        if self.constructor is None:
            return f"{self.name}({inside})"
        owner, _, method = self.name.rpartition(".")
        return f"{owner}({', '.join(map(argument_for, self.constructor))}).{method}({inside})"


def read_function(project: Project, target: Target) -> FunctionUnderContract:
    """Read the function or method that a target names; for a class, its only public method. Else raise UsageError."""
    if hint := hyphen_hint(str(target)):
        raise UsageError(f"invalid subject '{target}': {hint}")
    try:
        file = module_file(project, target.module)
        definitions = dict(syntax.walk(parse(file).body))
    except Unbound as problem:
        raise UsageError(_with_hint(str(problem), target.module, problem.known)) from problem
    if not target.attribute:
        top = [name for name, node in definitions.items() if _is_function(node) and "." not in name]
        public = ", ".join(name for name in top if not name.startswith("_"))
        raise UsageError(f"invalid subject '{target}': expected module:function; {target.module} defines {public}")
    definition = definitions.get(target.attribute)
    if isinstance(definition, ast.ClassDef):
        target = Target(target.module, _only_method(target, definitions))
    elif not _is_function(definition):
        names = tuple(name for name, node in definitions.items() if _is_function(node))
        raise UsageError(_with_hint(f"unknown function {target.attribute!r} in {file.name}", target.attribute, names))
    bound = function(project, Binding(file.relative_to(project.root).as_posix(), target.attribute))
    if bound.is_lazy:
        raise UsageError(f"invalid subject '{target}': a coroutine or generator; write a function that returns values")
    return _describe(target, bound, definitions)


def _is_function(node: object) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _with_hint(message: str, name: str, names: tuple[str, ...]) -> str:
    near = nearest(name, names)
    return f"{message}; did you mean {near!r}?" if near else message


def _only_method(target: Target, definitions: dict[str, syntax.Definition]) -> str:
    """Return the only public method of a class. Raise UsageError if there is not exactly one."""
    methods = [
        name for name in definitions if name.startswith(f"{target.attribute}.") and _is_function(definitions[name])
    ]
    public = [name for name in methods if not name.rpartition(".")[2].startswith("_")]
    if len(public) == 1:
        return public[0]
    choice = f"name one of its methods: {', '.join(public)}" if public else "name a function that uses it"
    raise UsageError(f"invalid subject '{target}': a class; {choice}")


def _describe(target: Target, bound: Function, definitions: dict[str, syntax.Definition]) -> FunctionUnderContract:
    owner_name, _, name = target.attribute.rpartition(".")
    owner = definitions.get(owner_name)
    decorators = {ast.unparse(decorator) for decorator in bound.node.decorator_list}
    if "property" in decorators or name.startswith("__"):
        raise UsageError(f"invalid subject '{target}': a property or special method; write a function that calls it")
    skipped = 1 if isinstance(owner, ast.ClassDef) and "staticmethod" not in decorators else 0  # `self` or `cls`
    call_parameters = parameters(bound.node, skipped)
    names = {parameter.name for parameter in call_parameters}
    constructor: tuple[Parameter, ...] | None = None
    if isinstance(owner, ast.ClassDef) and not decorators & WITHOUT_OBJECT:
        init = definitions.get(f"{owner_name}.__init__")
        constructor = ()
        if isinstance(init, ast.FunctionDef):
            constructor = parameters(init, 1, only_required=True)
        elif any("dataclass" in ast.unparse(decorator) for decorator in owner.decorator_list):
            constructor = tuple(_parameter(argument, True) for argument, value in class_fields(owner) if value is None)
        # If both the constructor and the method have a parameter `x`, the test names the first one `own_x`.
        constructor = tuple(replace(p, alias=f"own_{p.name}" if p.name in names else "") for p in constructor)
    nodes = list(ast.walk(bound.node))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    used |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return FunctionUnderContract(
        target=target,
        docstring=ast.get_docstring(bound.node) or "",
        parameters=call_parameters,
        optional=tuple(parameter for parameter in optional(bound.node, skipped) if parameter.name not in names),
        constructor=constructor,
        is_deterministic=not used & RANDOM,
        returns_nothing=isinstance(bound.node, ast.FunctionDef) and returns_nothing(bound.node),
    )


MAX_FORMULA = 200
"""Largest number of characters of a formula in a docstring."""
SPAN = re.compile(r"`+([^`]+)`+")
CALLS = {"exp", "log", "log1p", "expm1", "sqrt", "abs", "sin", "cos", "tanh", "sigmoid", "floor", "maximum", "minimum"}
CALLS |= {"min", "max", "clip"}
"""Functions that a formula may call."""
SYNONYMS = {"min": "minimum", "max": "maximum"}
"""Functions of Python that have another name in the language of equations."""
FORMULA_NODES = (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Call, ast.operator, ast.unaryop, ast.expr_context)


def formula(docstring: str, names: set[str]) -> str:
    """Return the first formula in the docstring of a function, in the language of equations; "" if there is none.

    Candidates are spans in backticks, text after `=`, text after "Return", and sentences without either. A single
    parameter is not a formula.

    Args:
        docstring: The docstring.
        names: The parameters that the formula may use.
    """
    expressions = (_expression(candidate, names) for candidate in _candidates(docstring))
    return next(filter(None, expressions), "")


def _candidates(docstring: str) -> Iterator[str]:
    yield from (span.rpartition("=")[2] for span in SPAN.findall(docstring))
    for line in docstring.splitlines():
        for sentence in re.split(r"\.(?:\s|$)|[;:](?:\s|$)", line):
            # The text after the last `=` (not `==` or `<=`) or after "Return" at the start; else the whole sentence.
            yield re.split(r"(?<![<>=!])=(?!=)|^\s*Returns?\b", sentence)[-1]


def _expression(text: str, names: set[str]) -> str:
    """Return a text as an expression in the language of equations; "" if it is not a formula."""
    try:
        node = ast.parse(text.replace("^", "**").strip()[:MAX_FORMULA], mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    if not isinstance(node, ast.BinOp | ast.Call | ast.UnaryOp) or not _is_simple(node, names):
        return ""
    # The language of equations writes `minimum` for Python's `min`.
    for child in ast.walk(node):
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Name):
            child.func.id = SYNONYMS.get(child.func.id, child.func.id)
    return ast.unparse(node)


def _is_simple(node: ast.expr, names: set[str]) -> bool:
    """Return whether a tree consists of numbers, arithmetic, known functions and at least one of the names."""
    nodes = list(ast.walk(node))
    calls = [child for child in nodes if isinstance(child, ast.Call)]
    if not all(isinstance(call.func, ast.Name) and call.func.id in CALLS and not call.keywords for call in calls):
        return False
    if any(isinstance(child, ast.Constant) and type(child.value) not in (int, float) for child in nodes):
        return False
    functions = {call.func for call in calls}
    variables = {child.id for child in nodes if isinstance(child, ast.Name) and child not in functions}
    return bool(variables) and variables <= names and all(isinstance(child, FORMULA_NODES) for child in nodes)
