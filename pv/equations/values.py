"""What the expressions of an equation are: axes by letter, a type, and a content that an algebra computes with.

The algebra of nothing makes a walk the static check of `pv lint`, without torch; that of tensors evaluates.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pv.equations.domain import Variable
from pv.equations.language import Formula

CONDITION, NUMBER, INDEX = "condition", "number", "index"
Axes = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """What an expression is: its axes by letter, in order, its type, the axis an index picks from, and its content."""

    axes: Axes
    type: str
    content: Any = None
    of: str | None = None


class Algebra(Protocol):
    """What the content of values is. Contents come aligned: with the axes `axes`, in that order."""

    def constant(self, number: float) -> Any: ...
    def size(self, axis: str) -> Any: ...
    def align(self, value: Value, axes: Axes) -> Any: ...
    def number(self, content: Any) -> Any: ...
    def elementwise(self, name: str, contents: Sequence[Any]) -> Any: ...
    def exact(self, name: str, contents: Sequence[Any]) -> Any: ...
    def reduce(self, name: str, content: Any, places: Sequence[int], where: Any) -> Any: ...
    def along(self, name: str, content: Any, place: int) -> Any: ...
    def select(self, content: Any, place: int, index: int) -> Any: ...
    def pick(self, content: Any, index: Any) -> Any: ...
    def one_hot(self, index: Any, axis: str) -> Any: ...
    def argmax(self, content: Any, place: int) -> Any: ...
    def top(self, content: Any, place: int, axis: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class Callee:
    """An equation that others call by name."""

    formula: Formula
    variables: Mapping[str, Variable]


def variable_value(variable: Variable, content: Any = None) -> Value:
    """The value that stands for a variable of the domain."""
    kind = INDEX if variable.kind == "index" else CONDITION if variable.kind == "mask" else NUMBER
    return Value(variable.axes, kind, content, variable.of)


class Nothing:
    """The algebra of the static check: no content at all."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: None
