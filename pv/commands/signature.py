"""Reads the parameters of a function from its source, and proposes a strategy and a domain for each.

Which values are valid the source does not tell, so these are proposals for the author.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from pv.source.resolve import Function

RESERVED = {"subject", "device", "run", "copy", "re", "torch", "given", "st", "repr", "hasattr", "first", "second"}
RESERVED |= {"values", "fill_in", "FILL_IN", "SkipTest"}
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


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter. `annotation` is "" if there is none; `strategy` and `domain` are "" if none fits.

    star: * or ** for a parameter that takes any number of arguments.
    """

    name: str
    annotation: str
    strategy: str
    domain: str
    by_keyword: bool
    star: str = ""

    @property
    def argument(self) -> str:
        """Return it as an argument of a call."""
        return self.given(self.name)

    @property
    def drawn(self) -> str:
        """Return its name in a test, which no other name there shadows."""
        return f"{self.name}_" if self.name in RESERVED else self.name

    def given(self, value: str) -> str:
        """Return the argument of a call with the expression `value`."""
        return f"{self.name}={value}" if self.by_keyword else f"{self.star}{value}"


def parameters(function: Function) -> tuple[Parameter, ...]:
    """Return the parameters of a function that have no default, in order; if there are none, those that have one."""
    arguments = function.node.args
    required = tuple(_parameter(argument, by_keyword) for argument, by_keyword in _required(arguments))
    return required or tuple(_optional(arguments))


def _optional(arguments: ast.arguments) -> Iterator[Parameter]:
    yield from (_parameter(argument, False) for argument in arguments.posonlyargs)
    yield from (_parameter(argument, True) for argument in (*arguments.args, *arguments.kwonlyargs))
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
    return Parameter(argument.arg, annotation, strategy, domain, by_keyword)


def _text(annotation: ast.expr | None) -> str:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value
    return ast.unparse(annotation) if annotation is not None else ""


def _proposal(annotation: str) -> tuple[str, str]:
    bare = re.sub(r"\b\w+\.", "", annotation).replace(" ", "")
    found = (each for each in PROPOSALS if re.fullmatch(each[0], bare))
    _, strategy, domain = next(found, ("", "", ""))
    return strategy, domain
