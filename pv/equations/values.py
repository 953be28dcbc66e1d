"""The value of an expression: named axes, a type, and a content that an algebra computes.

Interpreted with `NoContent` a formula is only type-checked, without torch; with `Tensors` it is evaluated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from pv.equations.domain import Kind, Variable, axis_bounds
from pv.equations.language import Formula

Axes = tuple[str, ...]
C = TypeVar("C")


class ValueType(StrEnum):
    """The type of the elements of a value."""

    NUMBER = "number"
    CONDITION = "condition"
    INDEX = "index"

    @property
    def with_article(self) -> str:
        return f"an {self}" if self is ValueType.INDEX else f"a {self}"


@dataclass(frozen=True, slots=True)
class Value(Generic[C]):
    """A value with its axes in order. `of` is the axis that an index selects from."""

    axes: Axes
    type: ValueType
    content: C
    of: str | None = None


class Algebra(Protocol[C]):
    """Operations on contents. Contents of one operation are aligned: they have the same axes in the same order."""

    def constant(self, number: float) -> C: ...
    def size(self, axis: str) -> C: ...
    def align(self, value: Value[C], axes: Axes) -> C: ...
    def number(self, content: C) -> C: ...
    def elementwise(self, name: str, contents: Sequence[C]) -> C: ...
    def exact(self, name: str, contents: Sequence[C]) -> C: ...
    def reduce(self, name: str, content: C, places: Sequence[int], where: C | None) -> C: ...
    def along(self, name: str, content: C, place: int) -> C: ...
    def select(self, content: C, place: int, index: int) -> C: ...
    def pick(self, content: C, index: C) -> C: ...
    def one_hot(self, index: C, axis: str) -> C: ...
    def argmax(self, content: C, place: int) -> C: ...
    def top(self, content: C, place: int, axis: str) -> C: ...


class NoContent:
    """The algebra of the type check: the content of every value is None."""

    def constant(self, number: float) -> None: ...
    def size(self, axis: str) -> None: ...
    def align(self, value: Value[None], axes: Axes) -> None: ...
    def number(self, content: None) -> None: ...
    def elementwise(self, name: str, contents: Sequence[None]) -> None: ...
    def exact(self, name: str, contents: Sequence[None]) -> None: ...
    def reduce(self, name: str, content: None, places: Sequence[int], where: None) -> None: ...
    def along(self, name: str, content: None, place: int) -> None: ...
    def select(self, content: None, place: int, index: int) -> None: ...
    def pick(self, content: None, index: None) -> None: ...
    def one_hot(self, index: None, axis: str) -> None: ...
    def argmax(self, content: None, place: int) -> None: ...
    def top(self, content: None, place: int, axis: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Callee:
    """An equation that other equations call by name."""

    formula: Formula
    variables: Mapping[str, Variable]

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the names of the arguments of a call, in order: the variables but the sizes."""
        return tuple(name for name, variable in self.variables.items() if variable.kind is not Kind.SIZE)

    @property
    def largest_sizes(self) -> dict[str, int]:
        """Return the largest size of each axis."""
        return {axis: high for axis, (_, high) in axis_bounds(self.variables).items()}


def value_type(variable: Variable) -> ValueType:
    """Return the type of the values that a variable takes."""
    return {Kind.INDEX: ValueType.INDEX, Kind.MASK: ValueType.CONDITION}.get(variable.kind, ValueType.NUMBER)


def variable_value(variable: Variable, content: C) -> Value[C]:
    """Return the value of a variable whose content is `content`."""
    return Value(variable.axes, value_type(variable), content, variable.of)
