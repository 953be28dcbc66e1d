"""What a variable of an equation may be: `logits[B,T,V]`, `real 0.25..20`, `index of V [B,T] or -100`, `size 2..64`."""

import keyword
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pv.equations.language import CONSTANTS, Refusal

KINDS = {
    "logits": (-50.0, 50.0),
    "real": (-10.0, 10.0),
    "positive": (0.0, 10.0),
    "int": (0.0, 10.0),
    "logprob": (-math.inf, 0.0),
    "prob": (0.0, 1.0),
    "mask": (0.0, 1.0),
    "index": (0.0, 0.0),
    "size": (1.0, 4.0),
}
"""Each kind with the bounds it has where none are given."""
BOUNDED = frozenset({"logits", "real", "positive", "int", "size"})
DISCRETE = frozenset({"index", "mask", "int"})
SIZES = (1, 4)
VOCABULARY_SIZES = (2, 8)
MAX_SIZE = 4096
MAX_ELEMENTS = 2**20
MAX_AXES = 6
MAX_BOUND = 1e38

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_LETTER = r"[A-Z][A-Za-z0-9]*"
_FORM = re.compile(
    rf"(?P<kind>[a-z]+)(?:\s+of\s+(?P<of>{_LETTER}))?\s*(?:\[(?P<axes>{_LETTER}(?:\s*,\s*{_LETTER})*)\])?"
    rf"(?:\s+(?P<low>{_NUMBER}|{_LETTER}|[a-z_]\w*)\.\.(?P<high>{_NUMBER}|{_LETTER}|[a-z_]\w*))?"
    rf"(?:\s+or\s+(?P<extra>-?\d{{1,9}}))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable: its kind, its axes by letter, and its bounds: numbers, or names of sizes or earlier scalars.

    of: the axis that an index picks from. extra: a value of an index that picks nothing, such as -100.
    """

    name: str
    kind: str
    axes: tuple[str, ...]
    low: float | str
    high: float | str
    of: str | None = None
    extra: int | None = None


class BadVariable(Exception):
    """A variable that cannot be read, and why."""

    def __init__(self, variable: str, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.variable, self.refusal = variable, refusal


def parse_domain(raw: Mapping[str, str]) -> dict[str, Variable]:
    """The variables of a domain, in order. Raises BadVariable."""
    variables: dict[str, Variable] = {}
    for name, text in raw.items():
        try:
            variables[name] = _variable(name, text, variables)
            _check_elements(variables[name], axis_bounds(variables))
            _check_letters(variables)
        except Refusal as refusal:
            raise BadVariable(name, refusal) from refusal
    return variables


def _variable(name: str, text: str, earlier: Mapping[str, Variable]) -> Variable:
    found = _FORM.fullmatch(text.strip())
    if found is None or found["kind"] not in KINDS:
        raise Refusal(
            f"{text[:60]!r} is no domain; write KIND [of AXIS] [AXES] [LOW..HIGH] [or VALUE], where KIND is "
            f"{', '.join(KINDS)}"
        )
    kind, axes = found["kind"], tuple(re.findall(_LETTER, found["axes"] or ""))
    _check_name(name, kind)
    _check_axes(kind, axes, found["of"], found["extra"])
    low, high = (found["low"], found["high"]) if found["low"] else KINDS[kind]
    if found["low"] and kind not in BOUNDED:
        raise Refusal(f"{kind} has no bounds to give")
    bounds = _bound(low, earlier), _bound(high, earlier)
    _check_order(kind, *bounds)
    return Variable(name, kind, axes, *bounds, found["of"], int(found["extra"]) if found["extra"] else None)


def _check_name(name: str, kind: str) -> None:
    if not name.isidentifier() or "__" in name:
        raise Refusal(f"{name!r} is no name")
    if name in CONSTANTS or keyword.iskeyword(name):
        raise Refusal(f"{name!r} has a meaning already; give the variable another name")
    if kind == "size" and not re.fullmatch(_LETTER, name):
        raise Refusal("a size is named by a letter, such as V")


def _check_axes(kind: str, axes: tuple[str, ...], of: str | None, extra: str | None) -> None:
    if (of is not None) != (kind == "index"):
        raise Refusal("'of AXIS' belongs to an index, and an index needs it")
    if extra is not None and kind != "index":
        raise Refusal("'or VALUE' belongs to an index")
    if extra is not None and int(extra) >= 0:
        raise Refusal(f"'or {extra}' may be an index; write a number that picks nothing, such as -100")
    if kind == "size" and axes:
        raise Refusal("a size has no axes")
    if kind in ("prob", "logprob") and not axes:
        raise Refusal(f"a {kind} needs an axis to sum over")
    if len(set(axes)) < len(axes) or len(axes) > MAX_AXES:
        raise Refusal(f"at most {MAX_AXES} different axes")


def _bound(text: float | str, earlier: Mapping[str, Variable]) -> float | str:
    if isinstance(text, float):
        return text
    if re.fullmatch(_NUMBER, text):
        return float(text)
    known = text in earlier and not earlier[text].axes and earlier[text].kind not in ("mask", "index")
    letters = {axis for each in earlier.values() for axis in each.axes}
    if not known and text not in letters:
        raise Refusal(f"the bound {text!r} is neither a number, a size nor an earlier scalar")
    return text


def _check_order(kind: str, low: float | str, high: float | str) -> None:
    if isinstance(low, float) and isinstance(high, float):
        if max(abs(low), abs(high)) > MAX_BOUND and kind != "logprob":
            raise Refusal(f"a bound is at most {MAX_BOUND:g}, which float32 still holds")
        if not low <= high:
            raise Refusal(f"{low:g}..{high:g} is empty; write the lower bound first")
        if kind in ("int", "size") and (low != int(low) or high != int(high)):
            raise Refusal(f"the bounds of {kind} are whole numbers")
        if kind == "size" and not 1 <= low <= high <= MAX_SIZE:
            raise Refusal(f"a size is from 1 to {MAX_SIZE}")
        if kind == "positive" and low < 0:
            raise Refusal("positive starts at 0 or above")
    elif kind == "size":
        raise Refusal("the bounds of a size are numbers")


def axis_bounds(variables: Mapping[str, Variable]) -> dict[str, tuple[int, int]]:
    """The least and largest size of every axis."""
    bounds = {v.name: (int(v.low), int(v.high)) for v in variables.values() if v.kind == "size"}
    for variable in variables.values():
        for axis in (*variable.axes, *((variable.of,) if variable.of else ())):
            bounds.setdefault(axis, VOCABULARY_SIZES if axis == "V" else SIZES)
    return bounds


def _check_elements(variable: Variable, letters: Mapping[str, tuple[int, int]]) -> None:
    if math.prod(letters[axis][1] for axis in variable.axes) > MAX_ELEMENTS:
        raise Refusal(f"{variable.name} may have more than {MAX_ELEMENTS} elements; bound its sizes")


def _check_letters(variables: Mapping[str, Variable]) -> None:
    for letter in axis_bounds(variables):
        if letter in variables and variables[letter].kind != "size":
            raise Refusal(f"{letter} is an axis, and a variable; give the variable another name")
