"""Parse the bounds and the precondition of a harness, and list the points of its box.

The values of a bound are listed by their distance from zero, lists by their length. A bound is `0..8`, `bool`,
`list of int 0..9, at most 4` or `list of bool, at most 4`; `int` may be omitted. `requires` is a Python expression over
the names of the bounds; points that do not fulfil it are not tried. Nothing here imports a solver.
"""

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice, product, takewhile
from typing import TypeVar

T = TypeVar("T")
ENGINES = ("exhaustive", "symbolic")
ENUMERABLE = 10**6
"""Maximum number of points for which enumeration is the default."""
MAX_CONDITION = 4096
"""Maximum number of characters of a condition. It limits nesting, too: some versions of Python refuse deep nesting."""
_RANGE = r"(?P<low>-?[0-9]{1,18})\.\.(?P<high>-?[0-9]{1,18})"
_BOUND = re.compile(
    rf"(?:(?P<list>list) of )?(?:(?P<bool>bool)|(?:int )?{_RANGE})(?:, at most (?P<most>[0-9]{{1,2}}))?"
)
# The syntax of a condition. A contract is untrusted, and `eval` runs the condition. So only integers,
# booleans, arithmetic, comparisons, `and`, `or`, `not`, `if ... else` and these functions are allowed: no attributes,
# subscripts or other names, no `**`, which could take forever, and no `*` of a list, which could take all memory.
_CALLS = {"len": len, "min": min, "max": max, "abs": abs, "sum": sum}
_ALLOWED = (
    *(ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.cmpop, ast.BinOp),
    *(ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.Name, ast.Load, ast.Constant, ast.Call, ast.IfExp),
)

Value = bool | int | list[int] | list[bool]
"""A value within a bound."""
Point = Mapping[str, Value]
"""A value for each bound, by name."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The values that an argument may have.

    Attributes:
        low, high: The range of the numbers, both included; 0 and 1 for booleans.
        boolean: Whether the values are booleans in place of numbers.
        most: The maximum length of a list of such values, None for a single value.
    """

    low: int
    high: int
    boolean: bool = False
    most: int | None = None

    def __str__(self) -> str:
        item = "bool" if self.boolean else f"int {self.low}..{self.high}"
        return item if self.most is None else f"list of {item}, at most {self.most}"

    @property
    def empty(self) -> bool:
        """Return whether the range has no number."""
        return self.low > self.high

    @property
    def size(self) -> int:
        """Return the number of values within the bound."""
        items = max(0, self.high - self.low + 1)
        return items if self.most is None else sum(items**length for length in range(self.most + 1))

    @property
    def type(self) -> str:
        """Return the Python annotation of the values."""
        item = "bool" if self.boolean else "int"
        return item if self.most is None else f"list[{item}]"

    def condition(self, name: str) -> str:
        """Return a Python expression that is true if the variable `name` of type `type` is within the bound."""
        inside = "True" if self.boolean else f"{self.low} <= {name if self.most is None else '_'} <= {self.high}"
        return inside if self.most is None else f"len({name}) <= {self.most} and all({inside} for _ in {name})"

    def contains(self, value: object) -> bool:
        """Return whether a value of any type is within the bound."""
        if self.most is not None:
            item = Bound(self.low, self.high, self.boolean)
            return type(value) is list and len(value) <= self.most and all(map(item.contains, value))
        # Compare exact types: True is an int for `isinstance`, but a bound of integers does not contain it.
        if self.boolean:
            return type(value) is bool
        return type(value) is int and self.low <= value <= self.high

    def values(self) -> Iterator[Value]:
        """Yield every value within the bound: numbers by their distance from zero, lists by their length."""
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
            # 0, 1, -1, 2, -2, ... without the numbers outside the range, which need not be symmetric.
            pairs = (sign * distance for distance in count(1) for sign in (1, -1))
            farthest = max(self.high, -self.low)
            yield 0
            yield from (n for n in takewhile(lambda n: abs(n) <= farthest, pairs) if self.low <= n <= self.high)


@dataclass(frozen=True, slots=True)
class Box:
    """The bounds of a harness by name, with its precondition.

    Attributes:
        requires: The precondition as text, "" for none.
        admits: The precondition as a predicate of points.
    """

    bounds: Mapping[str, Bound]
    requires: str
    admits: Callable[[Point], bool]

    @property
    def size(self) -> int:
        """Return the number of points, including points that `requires` excludes."""
        return math.prod(bound.size for bound in self.bounds.values())

    def points(self) -> Iterator[dict[str, Value]]:
        """Yield every point, whether or not `requires` admits it; the last bound changes fastest."""
        for values in _product([bound.values for bound in self.bounds.values()]):
            yield dict(zip(self.bounds, values, strict=True))

    def corner(self, size: int) -> Iterator[dict[str, Value]]:
        """Yield the points made of only the first `size` values of each bound, in the order of `Bound.values`."""
        for values in product(*(islice(bound.values(), size) for bound in self.bounds.values())):
            yield dict(zip(self.bounds, values, strict=True))


def _product(factors: Sequence[Callable[[], Iterator[T]]]) -> Iterator[tuple[T, ...]]:
    """Yield the Cartesian product of iterators; each factor is a function that creates its iterator."""
    # Not `itertools.product`, which first reads every factor into memory: a bound may have 10**18 values.
    if not factors:
        yield ()
        return
    for first in factors[0]():
        for rest in _product(factors[1:]):
            yield (first, *rest)


def parse_box(bounds: Mapping[str, str], requires: str) -> Box:
    """Return the box of a harness.

    Args:
        bounds: The texts of its bounds by name.
        requires: The text of its precondition, "" for none.

    Raises:
        ValueError: A bound or the precondition is invalid.
    """
    parsed = {name: parse_bound(text) for name, text in bounds.items()}
    return Box(parsed, " ".join(requires.split()), parse_condition(requires, parsed))


def parse_bound(text: str) -> Bound:
    """Return the bound that `text` describes. Raise ValueError if it is not a bound."""
    match = _BOUND.fullmatch(text)
    # A list has a maximum length, and only a list has one.
    if match is None or (match["list"] is None) != (match["most"] is None):
        raise ValueError(f"invalid bound {text!r}: expected 0..8, bool, or list of int 0..9, at most 4")
    low, high = (0, 1) if match["bool"] else (int(match["low"]), int(match["high"]))
    return Bound(low, high, boolean=bool(match["bool"]), most=int(match["most"]) if match["list"] else None)


def parse_condition(text: str, bounds: Mapping[str, Bound]) -> Callable[[Point], bool]:
    """Return the predicate of points that a precondition describes.

    Args:
        text: A Python expression, or "" for the predicate that is always true.
        bounds: The bounds that the expression may name.

    Raises:
        ValueError: The text is longer than `MAX_CONDITION`, has a comment, is not an expression in the allowed syntax,
            or names something else.
    """
    if not text:
        return lambda point: True
    if len(text) > MAX_CONDITION:
        raise ValueError(f"condition too long: {len(text)} characters, expected at most {MAX_CONDITION}")
    # The condition becomes one line, and a comment would hide the rest of this line. For CrossHair, the condition is a
    # line of a docstring, and quotes in a comment would end this docstring.
    if "#" in text:
        raise ValueError("unsupported comment in a condition: remove '#' and the text after it")
    try:
        tree = ast.parse(" ".join(text.split()), mode="eval")
        code = compile(tree, "<requires>", "eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"invalid condition {text[:60]!r}: expected a Python expression") from error
    for node in ast.walk(tree):
        _check_node(node, bounds)
    return lambda point: bool(eval(code, {"__builtins__": {}, **_CALLS}, dict(point)))


def _check_node(node: ast.AST, bounds: Mapping[str, Bound]) -> None:
    """Raise ValueError if a node is not in the allowed syntax, or names something other than a bound or function."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and _may_be_list(node, bounds):
        raise ValueError(f"unsupported multiplication of a list {ast.unparse(node)!r}")
    if isinstance(node, ast.Name) and node.id not in (*bounds, *_CALLS):
        raise ValueError(f"unknown bound {node.id!r}")
    if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in _CALLS):
        raise ValueError(f"unknown function {ast.unparse(node.func)!r} (choose from {', '.join(_CALLS)})")
    if not isinstance(node, _ALLOWED) or (isinstance(node, ast.Constant) and type(node.value) not in (int, bool)):
        raise ValueError(f"unsupported syntax {(ast.unparse(node) or type(node).__name__)!r}")


def _may_be_list(node: ast.AST, bounds: Mapping[str, Bound]) -> bool:
    """Return whether the value of an expression may be a list."""
    match node:
        case ast.Name():
            return node.id in bounds and bounds[node.id].most is not None
        case ast.Compare() | ast.UnaryOp() | ast.Call(args=[_]):  # a function of one list returns a number
            return False
        case ast.IfExp():
            return _may_be_list(node.body, bounds) or _may_be_list(node.orelse, bounds)
    return any(_may_be_list(child, bounds) for child in ast.iter_child_nodes(node))


def engines(requested: str, box: Box) -> tuple[str, ...]:
    """Return the engines that prove a harness.

    If none is requested (""), enumerate a box of at most `ENUMERABLE` points, and use the solver for a larger one.
    """
    if requested:
        return ENGINES if requested == "both" else (requested,)
    return ENGINES[:1] if box.size <= ENUMERABLE else ENGINES[1:]
