"""Functions and claims without axes, for two interpreters to compute: as a script it prints the results as JSON."""

import itertools
import json
import math
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

from pv.engines.equation.attack import attack
from pv.engines.property.attack import Settings
from pv.equations.arrays import torch
from pv.equations.tensors import EXACT, F64, ROUNDED
from tests.equations.receivers import Deaf, Foreign

MAGNITUDES = (0.0, 5e-324, 1e-300, 1e-8, 0.1, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, math.pi, 20.0, 36.7, 709.7, 745.0,
              1e5 + 0.1, 2.0**53 + 2, 1e300, sys.float_info.max, math.inf)  # fmt: skip
NUMBERS = (*MAGNITUDES, *(-x for x in MAGNITUDES), math.nan)
FEW = (0.0, -0.0, 1.0, -2.5, math.inf, -math.inf, math.nan)
CONDITIONS = (True, False)
OPERANDS: dict[str, tuple[tuple[Any, ...], ...]] = {
    **dict.fromkeys(("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power"), (NUMBERS,) * 2),
    **dict.fromkeys(("maximum", "minimum", "lt", "le", "gt", "ge", "eq", "ne"), (NUMBERS,) * 2),
    **dict.fromkeys(("and", "or"), (CONDITIONS,) * 2),
    "not": (CONDITIONS,),
    "where": (CONDITIONS, FEW, FEW),
    "clip": (FEW, FEW, FEW),
}


def points(name: str) -> Iterator[tuple[Any, ...]]:
    return itertools.product(*OPERANDS.get(name, (NUMBERS,)))


def of_functions() -> dict[str, list[float]]:
    """Return the results of every function of the language at its points."""

    def operand(number: Any) -> Any:
        return torch.tensor(number) if isinstance(number, bool) else torch.tensor(number, dtype=F64)

    tables = {**ROUNDED, **EXACT}
    return {name: [float(tables[name](*map(operand, at))) for at in points(name)] for name in tables}


REAL = {"domain": {"x": "real 0.5..20", "y": "real"}}
WHOLE = {"domain": {"n": "int 1..50", "k": "int 0..n", "V": "size 2..64", "i": "index of V or -100", "m": "mask"}}
CASES: dict[str, tuple[dict[str, Any], Callable[..., Any]]] = {
    "logarithm": ({**REAL, "expression": "log(x) * y"}, lambda x, y: y * math.log(x)),
    "wrong logarithm": ({**REAL, "expression": "log(x) * y"}, lambda x, y: y * math.log1p(x)),
    "raising": ({**REAL, "expression": "sqrt(x)"}, lambda x, y: math.sqrt(x - 10)),
    "cancelling": ({**REAL, "expression": "1 - cos(x / 8)"}, lambda x, y: 2 * math.sin(x / 16) ** 2),
    "functions": (
        {**REAL, "expression": "sigmoid(y) + tanh(y) * erf(x) + relu(y) + floor(x) % 3 + x**y / expm1(x)"},
        lambda x, y: (
            (1 / (1 + math.exp(-y)) + math.tanh(y) * math.erf(x) + max(y, 0) + math.floor(x) % 3)
            + x**y / math.expm1(x)
        ),
    ),
    "infinite": ({**REAL, "expression": "1 / floor(x)"}, lambda x, y: 1 / math.floor(x) if x >= 1 else math.inf),
    "without a value": ({**REAL, "expression": "log(y)"}, lambda x, y: 0.0),
    "required": ({**REAL, "requires": "y > 0", "expression": "log(y)"}, lambda x, y: math.log(y)),
    "invariant": ({**REAL, "expression": "tanh(y)", "invariants": ["e(x, y) <= 1"]}, lambda x, y: math.tanh(y)),
    "whole": ({**WHOLE, "expression": "n * V + where(m, k, 0)"}, lambda n, k, V, i, m: n * V + (k if m else 0)),
    "index": ({**WHOLE, "expression": "where(i == -100, 0, k)"}, lambda n, k, V, i, m: 0 if i == -100 else k),
    "wrong mask": ({**WHOLE, "expression": "where(m, n, k)"}, lambda n, k, V, i, m: k if m else n),
    "condition": ({**WHOLE, "expression": "where(m and n > k, 1, 0)"}, lambda n, k, V, i, m: m and n > k),
    "beyond 64 bits": ({**WHOLE, "expression": "2**(n + 40)"}, lambda n, k, V, i, m: 2 ** (n + 40)),
    "fraction": ({**WHOLE, "expression": "k / n"}, lambda n, k, V, i, m: Fraction(k, n)),
    "several": ({**REAL, "result": "real, real", "expression": "x, y"}, lambda x, y: [x, y]),
    "list": ({**REAL, "expression": "x"}, lambda x, y: [[x, y]]),
    "text": ({**REAL, "expression": "x"}, lambda x, y: "1"),
    "complex": ({**REAL, "expression": "x"}, lambda x, y: complex(x, 0)),
    "no finite number": ({**REAL, "expression": "x"}, lambda x, y: math.nan if x > 3 else x),
    "repeatable": ({**REAL, "expression": "x", "checks": ["repeatable"]}, lambda x, y, calls=[0]: (
        calls.append(0) or x + 1e-12 * len(calls))),
    "unchanged": ({**REAL, "expression": "x", "checks": ["inputs_unchanged"], "implemented_by": "f([x], y)"},
        lambda xs, y: xs.pop()),
    "tolerance": ({**REAL, "expression": "x", "tolerance": {"relative": 1e-2, "why": "coarse"}},
        lambda x, y: round(x, 1)),
}  # fmt: skip
REPLAYS = {"wrong logarithm": '{"x": 2.5, "y": 0.1}', "wrong mask": '{"n": 3, "k": 1, "V": 2, "i": -100, "m": true}'}


TRIALS = {**{name: (name, "") for name in CASES}, **{f"replayed {name}": (name, at) for name, at in REPLAYS.items()}}


def trial(name: str) -> dict[str, Any]:
    name, replay = TRIALS[name]
    keys, code = CASES[name]
    names = ", ".join(keys["domain"])
    equation = {"implemented_by": f"f({names})", **keys}
    settings = Settings(examples=60, seed=3, replay=replay)
    record = attack({"e": equation}, "e", SimpleNamespace(f=code), "cpu", settings, Foreign(), Deaf())
    return {key: value for key, value in record.items() if key != "frames"}


if __name__ == "__main__":
    results = {"functions": of_functions(), "claims": {name: trial(name) for name in TRIALS}}
    json.dump({"torch": "torch" in sys.modules, **results}, sys.stdout)
