"""The box of a harness: its bounds, its number of points, and its points, nearest to zero first.

A bound is `0..8`, `bool`, `list of int 0..9, at most 4` or `list of bool, at most 4`. `requires` is a Python expression
over the bounds' names; points that do not fulfil it are outside the box. Nothing here imports a solver.
"""

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice, product, takewhile
from typing import Any

ENGINES = ("exhaustive", "symbolic")
ENUMERABLE = 10**6
LONGEST = 4096
"""Most characters of a condition: deeper nesting than that is refused by some versions of Python and read by others."""
_RANGE = r"(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})"
_BOUND = re.compile(rf"(?:(list) of )?(?:(bool)|(?:int )?{_RANGE})(?:, at most ([0-9]{{1,2}}))?")
_CALLS = {"len": len, "min": min, "max": max, "abs": abs, "sum": sum}
_ALLOWED = (
    *(ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.cmpop, ast.BinOp),
    *(ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.Name, ast.Load, ast.Constant, ast.Call, ast.IfExp),
)

Point = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Bound:
    """`low` to `high`, both included, or a boolean; with `most`, a list of at most that many of these."""

    low: int
    high: int
    boolean: bool = False
    most: int | None = None

    def __str__(self) -> str:
        item = "bool" if self.boolean else f"int {self.low}..{self.high}"
        return item if self.most is None else f"list of {item}, at most {self.most}"

    @property
    def empty(self) -> bool:
        return self.low > self.high

    @property
    def size(self) -> int:
        """Return the number of values that it admits."""
        each = max(0, self.high - self.low + 1)
        return each if self.most is None else sum(each**length for length in range(self.most + 1))

    @property
    def type(self) -> str:
        """Return the Python annotation of its values."""
        item = "bool" if self.boolean else "int"
        return item if self.most is None else f"list[{item}]"

    def condition(self, name: str) -> str:
        """Return a Python expression that is true if the value `name` of that type is within the bound."""
        inside = "True" if self.boolean else f"{self.low} <= {name if self.most is None else '_'} <= {self.high}"
        return inside if self.most is None else f"len({name}) <= {self.most} and all({inside} for _ in {name})"

    def contains(self, value: Any) -> bool:
        """Return whether it admits `value`, of any type."""
        if self.most is not None:
            item = Bound(self.low, self.high, self.boolean)
            return type(value) is list and len(value) <= self.most and all(map(item.contains, value))
        return type(value) is (bool if self.boolean else int) and self.low <= value <= self.high

    def values(self) -> Iterator[Any]:
        """Yield every value that it admits: numbers by their distance from zero, lists by their length."""
        if self.most is None:
            yield from self._items()
            return
        for length in range(self.most + 1):
            yield from (list(items) for items in _product([self._items] * length))

    def _items(self) -> Iterator[int]:
        if self.boolean:
            yield from (False, True)
        elif self.low >= 0:
            yield from range(self.low, self.high + 1)
        elif self.high <= 0:
            yield from range(self.high, self.low - 1, -1)
        else:
            pairs = (sign * distance for distance in count(1) for sign in (1, -1))
            far = max(self.high, -self.low)
            yield 0
            yield from (n for n in takewhile(lambda n: abs(n) <= far, pairs) if self.low <= n <= self.high)


@dataclass(frozen=True, slots=True)
class Box:
    """The bounds of a harness by name, with the precondition that a point must fulfil."""

    bounds: Mapping[str, Bound]
    requires: str
    admits: Callable[[Point], bool]

    @property
    def size(self) -> int:
        """Return the number of points, including those that `requires` excludes."""
        return math.prod(bound.size for bound in self.bounds.values())

    def points(self) -> Iterator[dict[str, Any]]:
        """Yield every point, whether or not `requires` admits it; the last bound changes fastest."""
        for values in _product([bound.values for bound in self.bounds.values()]):
            yield dict(zip(self.bounds, values, strict=True))

    def corner(self, values: int) -> Iterator[dict[str, Any]]:
        """Yield the points made of the first `values` values of each bound."""
        for chosen in product(*(islice(bound.values(), values) for bound in self.bounds.values())):
            yield dict(zip(self.bounds, chosen, strict=True))


def _product(parts: Sequence[Callable[[], Iterator[Any]]]) -> Iterator[tuple[Any, ...]]:
    """Yield as `itertools.product` does, without keeping a part in memory: a bound may have too many values."""
    if not parts:
        yield ()
        return
    for first in parts[0]():
        for rest in _product(parts[1:]):
            yield (first, *rest)


def box(bounds: Mapping[str, str], requires: str) -> Box:
    """Return the box that a contract describes. Raise ValueError for an invalid bound or precondition."""
    parsed = {name: bound(text) for name, text in bounds.items()}
    return Box(parsed, " ".join(requires.split()), precondition(requires, tuple(parsed)))


def bound(text: str) -> Bound:
    """Return the bound that `text` describes. Raise ValueError if it is not a bound."""
    found = _BOUND.fullmatch(text)
    if found is None or (found[1] is None) != (found[5] is None):
        raise ValueError(f"invalid bound {text!r}: expected 0..8, bool, or list of int 0..9, at most 4")
    low, high = (0, 1) if found[2] else (int(found[3]), int(found[4]))
    return Bound(low, high, boolean=bool(found[2]), most=int(found[5]) if found[1] else None)


def precondition(text: str, names: Sequence[str]) -> Callable[[Point], bool]:
    """Return the test of a point that `text` describes, always true for "".

    Raise ValueError unless the text is a Python expression that compares `names`.
    """
    if not text:
        return lambda point: True
    if len(text) > LONGEST:
        raise ValueError(f"condition too long: {len(text)} characters, expected at most {LONGEST}")
    try:
        tree = ast.parse(" ".join(text.split()), mode="eval")
        code = compile(tree, "<requires>", "eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"invalid condition {text[:60]!r}: expected a Python expression") from error
    for node in ast.walk(tree):
        _check(node, names)
    return lambda point: bool(eval(code, {"__builtins__": {}, **_CALLS}, dict(point)))


def _check(node: ast.AST, names: Sequence[str]) -> None:
    if isinstance(node, ast.Name) and node.id not in (*names, *_CALLS):
        raise ValueError(f"unknown bound {node.id!r}")
    if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in _CALLS):
        raise ValueError(f"unknown function {ast.unparse(node.func)!r} (choose from {', '.join(_CALLS)})")
    if not isinstance(node, _ALLOWED) or (isinstance(node, ast.Constant) and type(node.value) not in (int, bool)):
        raise ValueError(f"unsupported syntax {(ast.unparse(node) or type(node).__name__)!r}")


def engines(asked: str, box: Box) -> tuple[str, ...]:
    """Return the engines that prove a harness: those requested, else enumeration if the box is small enough for it."""
    if asked:
        return ENGINES if asked == "both" else (asked,)
    return ENGINES[:1] if box.size <= ENUMERABLE else ENGINES[1:]
