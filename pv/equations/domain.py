"""Parse the domain of an equation: variables such as `logits[B,T,V]`, `real 0.25..20`, `index of V [B,T] or -100`."""

import keyword
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pv.equations.language import CONSTANTS, Refusal


class Kind(StrEnum):
    """The kind of a variable, as it is written in a contract."""

    LOGITS = "logits"
    REAL = "real"
    POSITIVE = "positive"
    INT = "int"
    LOGPROB = "logprob"
    PROB = "prob"
    MASK = "mask"
    INDEX = "index"
    SIZE = "size"


DEFAULT_BOUNDS: Mapping[Kind, tuple[float, float]] = {
    Kind.LOGITS: (-50.0, 50.0),
    Kind.REAL: (-10.0, 10.0),
    Kind.POSITIVE: (0.0, 10.0),
    Kind.INT: (0.0, 10.0),
    Kind.LOGPROB: (-math.inf, 0.0),
    Kind.PROB: (0.0, 1.0),
    Kind.MASK: (0.0, 1.0),
    Kind.INDEX: (0.0, 0.0),  # not used: an index is bounded by the size of its axis
    Kind.SIZE: (1.0, 4.0),
}
# The kinds that take LOW..HIGH; other kinds have fixed bounds.
BOUNDED = frozenset({Kind.LOGITS, Kind.REAL, Kind.POSITIVE, Kind.INT, Kind.SIZE})
DISCRETE = frozenset({Kind.INDEX, Kind.MASK, Kind.INT})
DISTRIBUTIONS = frozenset({Kind.PROB, Kind.LOGPROB})
DIFFERENTIABLE = frozenset({Kind.LOGITS, Kind.REAL, Kind.POSITIVE}) | DISTRIBUTIONS
# The smallest and the largest size of an axis whose size the domain does not declare; the axis V has its own default.
SIZES = (1, 4)
VOCABULARY_SIZES = (2, 8)
MAX_SIZE = 4096
MAX_ELEMENTS = 2**20
MAX_AXES = 6
MAX_BOUND = 1e38

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_AXIS = r"[A-Z][A-Za-z0-9]*"
# KIND [of AXIS] [AXES] [LOW..HIGH] [or VALUE], for example `index of V [B,T] or -100`.
_FORM = re.compile(
    rf"(?P<kind>[a-z]+)(?:\s+of\s+(?P<of>{_AXIS}))?\s*(?:\[(?P<axes>{_AXIS}(?:\s*,\s*{_AXIS})*)\])?"
    rf"(?:\s+(?P<low>{_NUMBER}|{_AXIS}|[a-z_]\w*)\.\.(?P<high>{_NUMBER}|{_AXIS}|[a-z_]\w*))?"
    rf"(?:\s+or\s+(?P<extra>-?\d{{1,9}}))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable of a domain, such as `logits[B,T,V]` or `real 0.25..20`.

    Attributes:
        name: The name of the variable.
        kind: The kind of the variable.
        axes: The names of its axes.
        low: The lower bound: a number, or the name of a size or of an earlier scalar.
        high: The upper bound, in the same form.
        of: The axis that an index selects from; None for other kinds.
        extra: An additional negative value of an index, such as -100, that selects no element; None for none.
    """

    name: str
    kind: Kind
    axes: tuple[str, ...]
    low: float | str
    high: float | str
    of: str | None = None
    extra: int | None = None


class InvalidVariable(Exception):
    """A variable of a domain is invalid: its name and the refusal."""

    def __init__(self, variable: str, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.variable, self.refusal = variable, refusal


def parse_domain(raw: Mapping[str, str]) -> dict[str, Variable]:
    """Return the variables of a domain, in order. Raise `InvalidVariable` for the first invalid variable."""
    variables: dict[str, Variable] = {}
    for name, text in raw.items():
        try:
            variables[name] = _variable(name, text, variables)
            # Check after each variable, so that the refusal names the variable that exceeds a limit.
            _check_elements(variables[name], axis_bounds(variables))
            _check_axis_names(variables)
        except Refusal as refusal:
            raise InvalidVariable(name, refusal) from refusal
    return variables


def _variable(name: str, text: str, earlier: Mapping[str, Variable]) -> Variable:
    """Parse one variable. Raise `Refusal` if it is invalid."""
    match_ = _FORM.fullmatch(text.strip())
    if match_ is None or match_["kind"] not in DEFAULT_BOUNDS:
        message = f"invalid domain {text[:60]!r}: expected KIND [of AXIS] [AXES] [LOW..HIGH] [or VALUE]"
        raise Refusal(message, hint=f"KIND is one of {', '.join(Kind)}")
    kind = Kind(match_["kind"])
    axes = tuple(re.findall(_AXIS, match_["axes"] or ""))
    _check_name(name, kind)
    _check_index(kind, match_["of"], match_["extra"])
    _check_axes(kind, axes)
    if match_["low"] and kind not in BOUNDED:
        raise Refusal(f"{kind} takes no bounds")
    low, high = DEFAULT_BOUNDS[kind] if not match_["low"] else (_bound(match_[end], earlier) for end in ("low", "high"))
    _check_bounds(kind, low, high)
    extra = int(match_["extra"]) if match_["extra"] else None
    return Variable(name, kind, axes, low, high, of=match_["of"], extra=extra)


def _check_name(name: str, kind: Kind) -> None:
    """Raise `Refusal` for a name that cannot be used in expressions."""
    if not name.isidentifier() or "__" in name:
        raise Refusal(f"invalid name {name!r}")
    if name in CONSTANTS or keyword.iskeyword(name):
        raise Refusal(f"reserved name {name!r}", hint="choose another name")
    if kind is Kind.SIZE and not re.fullmatch(_AXIS, name):
        raise Refusal(f"invalid name {name!r} for a size: expected the name of an axis, such as V")


def _check_index(kind: Kind, of: str | None, extra: str | None) -> None:
    """Raise `Refusal` if `of AXIS` or `or VALUE` does not fit the kind."""
    if of is None and kind is Kind.INDEX:
        raise Refusal("missing 'of AXIS': an index needs the axis that it selects from")
    if of is not None and kind is not Kind.INDEX:
        raise Refusal(f"{kind} takes no 'of AXIS'", hint="only an index has one")
    if extra is not None and kind is not Kind.INDEX:
        raise Refusal(f"{kind} takes no 'or VALUE'", hint="only an index has one")
    if extra is not None and int(extra) >= 0:
        raise Refusal(f"invalid value {extra} after 'or': expected a negative integer, such as -100")


def _check_axes(kind: Kind, axes: tuple[str, ...]) -> None:
    """Raise `Refusal` if the axes do not fit the kind."""
    if kind is Kind.SIZE and axes:
        raise Refusal("size takes no axes")
    if kind in DISTRIBUTIONS and not axes:
        raise Refusal(f"{kind} needs at least one axis, to sum over")
    if len(set(axes)) < len(axes):
        raise Refusal("duplicate axis")
    if len(axes) > MAX_AXES:
        raise Refusal(f"too many axes: {len(axes)}, expected at most {MAX_AXES}")


def _bound(text: str, earlier: Mapping[str, Variable]) -> float | str:
    """Return a bound as a number, or as the name of a size or an earlier scalar. Raise `Refusal` for another name."""
    if re.fullmatch(_NUMBER, text):
        return float(text)
    # Variables are drawn in order, so a bound may only name a value that is drawn before: an axis of an earlier
    # variable, or an earlier scalar.
    is_scalar = text in earlier and not earlier[text].axes and earlier[text].kind not in (Kind.MASK, Kind.INDEX)
    axes = {axis for variable in earlier.values() for axis in variable.axes}
    if not is_scalar and text not in axes:
        raise Refusal(f"unknown bound {text!r}: expected a number, a size or an earlier scalar")
    return text


def _check_bounds(kind: Kind, low: float | str, high: float | str) -> None:
    """Raise `Refusal` if the bounds do not fit the kind."""
    if isinstance(low, str) or isinstance(high, str):
        if kind is Kind.SIZE:
            raise Refusal("the bounds of a size must be numbers")
        return
    # float32 ends at 3.4e38; a log-probability may be -inf.
    if max(abs(low), abs(high)) > MAX_BOUND and kind is not Kind.LOGPROB:
        raise Refusal(f"bound out of range: expected at most {MAX_BOUND:g}, which float32 can hold")
    if not low <= high:
        raise Refusal(f"empty range {low:g}..{high:g}", hint="write the lower bound first")
    if kind in (Kind.INT, Kind.SIZE) and (low != int(low) or high != int(high)):
        raise Refusal(f"the bounds of {kind} must be integers")
    if kind is Kind.SIZE and not 1 <= low <= high <= MAX_SIZE:
        raise Refusal(f"size out of range: expected 1..{MAX_SIZE}")
    if kind is Kind.POSITIVE and low < 0:
        raise Refusal("the bounds of positive must not be negative")


def axis_bounds(variables: Mapping[str, Variable]) -> dict[str, tuple[int, int]]:
    """Return the smallest and the largest size of every axis."""
    bounds = {v.name: (int(v.low), int(v.high)) for v in variables.values() if v.kind is Kind.SIZE}
    for variable in variables.values():
        for axis in variable.axes if variable.of is None else (*variable.axes, variable.of):
            # Code often treats a vocabulary of one token specially, so V has at least 2 elements by default.
            bounds.setdefault(axis, VOCABULARY_SIZES if axis == "V" else SIZES)
    return bounds


def free_sizes(variables: Mapping[str, Variable]) -> dict[str, Variable]:
    """Return the sizes that the shapes of the arrays do not show, such as `K` of `top_k(x, K)`.

    A replayed example must state these sizes. The axis that an index selects from is one of them, unless an array has
    this axis.

    Args:
        variables: The variables of a domain, by name.
    """
    axes_of_arrays = {axis for variable in variables.values() for axis in variable.axes}
    # A replayed example may have any valid size, not only the sizes that are drawn.
    free = (axis for axis in axis_bounds(variables) if axis not in axes_of_arrays)
    return {axis: variables.get(axis) or Variable(axis, Kind.SIZE, (), 1.0, float(MAX_SIZE)) for axis in free}


def _check_elements(variable: Variable, sizes: Mapping[str, tuple[int, int]]) -> None:
    """Raise `Refusal` if an array of the largest sizes has too many elements."""
    if math.prod(sizes[axis][1] for axis in variable.axes) > MAX_ELEMENTS:
        message = f"{variable.name} may have more than {MAX_ELEMENTS} elements"
        raise Refusal(message, hint="declare smaller sizes, such as `V: size 2..64`")


def _check_axis_names(variables: Mapping[str, Variable]) -> None:
    """Raise `Refusal` if an axis has the name of a variable that is not a size."""
    for axis in axis_bounds(variables):
        if axis in variables and variables[axis].kind is not Kind.SIZE:
            raise Refusal(f"{axis} is both an axis and a variable", hint="rename the variable")
