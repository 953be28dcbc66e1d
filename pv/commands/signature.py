"""Reads the parameters of a function from its source, and proposes a strategy and a domain for each.

Which values are valid the source does not tell: an annotation or a default proposes some, for the author to check.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

RESERVED = {"subject", "device", "run", "copy", "re", "torch", "given", "st", "repr", "hasattr", "first", "second"}
RESERVED |= {"values", "fill_in", "FILL_IN", "SkipTest", "called", "lambda"}
"""Names that a generated test uses itself, or that `pv` supplies."""
PROPOSALS = (
    (r"bool", "st.booleans()", "mask"),
    (r"int", "st.integers(1, 10)", "int 1..10"),
    (r"float", "st.floats(0.125, 8.0)", "real 0.125..8"),
    (r"str", "st.text(max_size=8)", ""),
    (r"(?:list|Sequence|Iterable)\[float\]", "st.lists(st.floats(0.125, 8.0), min_size=1, max_size=5)", ""),
    (r"(?:list|Sequence|Iterable)\[int\]", "st.lists(st.integers(1, 10), min_size=1, max_size=5)", ""),
    (r"Tensor", "st.lists(st.floats(-8, 8, width=32), min_size=4, max_size=4).map(torch.tensor)", "real[N]"),
)
"""Annotations without their module, each with a strategy and the domain of an equation, "" where none fits."""
Node = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter. `annotation` is "" if there is none; `strategy` and `domain` are "" if none fits.

    star: * or ** for a parameter that takes any number of arguments. alias: the name under which it is drawn, "" for
    its own. known: its annotation or default tells its type, so that the strategy can be tried.
    """

    name: str
    annotation: str
    strategy: str
    domain: str
    by_keyword: bool
    star: str = ""
    alias: str = ""
    known: bool = False

    @property
    def name_in_test(self) -> str:
        """Return its name in a test, which no other name there shadows."""
        return self.alias or (f"{self.name}_" if self.name in RESERVED else self.name)

    @property
    def variable(self) -> str:
        """Return its name in an equation."""
        return self.alias or self.name

    def argument(self, value: str) -> str:
        """Return the argument of a call with the expression `value`."""
        return f"{self.name}={value}" if self.by_keyword else f"{self.star}{value}"


def parameters(node: Node, skipped: int = 0, *, required: bool = False) -> tuple[Parameter, ...]:
    """Return the parameters that have no default, in order; unless `required`, those that have one if there are none.

    skipped: how many at the start the call does not give, such as `self`.
    """
    found = tuple(_parameter(each, by_keyword) for each, by_keyword in list(_required(node.args))[skipped:])
    return found or (() if required else (*optional(node, skipped), *_any_number(node.args)))


def optional(node: Node, skipped: int) -> tuple[Parameter, ...]:
    """Return the parameters that have a default, by which their values are proposed."""
    positional = [*node.args.posonlyargs, *node.args.args]
    defaults: list[tuple[ast.arg, ast.expr | None]] = list(
        zip(positional[len(positional) - len(node.args.defaults) :], node.args.defaults, strict=True)
    )
    defaults += zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    alone = {each.arg for each in node.args.posonlyargs} | {each.arg for each in positional[:skipped]}
    return tuple(_around(each, value) for each, value in defaults if value is not None and each.arg not in alone)


def fields(owner: ast.ClassDef) -> tuple[Parameter, ...]:
    """Return the fields of a dataclass that have no default."""
    found = [each for each in owner.body if isinstance(each, ast.AnnAssign) and each.value is None]
    named = [(each.target.id, each.annotation) for each in found if isinstance(each.target, ast.Name)]
    return tuple(_parameter(ast.arg(name, annotation), True) for name, annotation in named)


def _any_number(arguments: ast.arguments) -> Iterator[Parameter]:
    for argument, star in ((arguments.vararg, "*"), (arguments.kwarg, "**")):
        if argument is not None:
            yield Parameter(argument.arg, _text(argument.annotation), "", "", False, star)


def _required(arguments: ast.arguments) -> Iterator[tuple[ast.arg, bool]]:
    positional = [*arguments.posonlyargs, *arguments.args]
    for argument in positional[: len(positional) - len(arguments.defaults)]:
        yield argument, False
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is None:
            yield argument, True


def _parameter(argument: ast.arg, by_keyword: bool) -> Parameter:
    annotation = _text(argument.annotation)
    strategy, domain = _proposal(annotation or "float")
    known = bool(annotation and strategy)
    return Parameter(argument.arg, annotation, strategy, domain, by_keyword, known=known)


def _around(argument: ast.arg, default: ast.expr) -> Parameter:
    """Return a parameter whose values are its default and, for a number, others of that size."""
    text, value = ast.unparse(default), getattr(default, "value", None)
    domain, strategy = "", f"st.just({text})"
    if type(value) is float and value > 0:
        domain, strategy = f"real {value / 2:g}..{value * 2:g}", f"st.floats({value / 2!r}, {value * 2!r})"
    elif type(value) is int and value > 0:
        domain, strategy = f"int {value}..{value * 2}", f"st.integers({value}, {value * 2})"
    elif type(value) is bool:
        domain, strategy = "mask", "st.booleans()"
    known = isinstance(default, ast.Constant)
    return Parameter(argument.arg, _text(argument.annotation), strategy, domain, True, known=known)


def _text(annotation: ast.expr | None) -> str:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value
    return ast.unparse(annotation) if annotation is not None else ""


def _proposal(annotation: str) -> tuple[str, str]:
    bare = re.sub(r"\b\w+\.", "", annotation).replace(" ", "")
    found = (each for each in PROPOSALS if re.fullmatch(each[0], bare))
    _, strategy, domain = next(found, ("", "", ""))
    return strategy, domain
