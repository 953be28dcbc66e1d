"""The formulas, and an attack in this process."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

pytest.importorskip("torch", reason="equations are evaluated by torch")

import torch

from pv.engines.encoding import decode
from pv.engines.equation.attack import attack
from pv.engines.property.attack import Settings
from pv.equations.domain import Kind, axis_bounds
from pv.equations.evaluate import exact_values
from pv.equations.examples import Example
from pv.equations.language import InvalidEquation
from pv.equations.parse import parse_equations
from tests.equations.receivers import Deaf, Foreign


@pytest.fixture(scope="session")
def formulas() -> dict[str, dict[str, Any]]:
    return yaml.safe_load(Path(__file__).with_name("formulas.yaml").read_text(encoding="utf-8"))


@pytest.fixture
def domain() -> dict[str, str]:
    """A domain with a variable of every type."""
    logits = {"s": "logits[V]", "t": "logits[V]"}
    return {**logits, "y": "index of V", "W": "real[V,D]", "m": "mask[V]", "tau": "real 0.25..20"}


@pytest.fixture
def problem_of(domain: dict[str, str]) -> Callable[..., InvalidEquation]:
    """Returns the only problem of an equation, given by its keys."""

    def problem(**keys: Any) -> InvalidEquation:
        _, (refused,) = parse_equations({"e": {"domain": domain, **keys}})
        return refused

    return problem


@pytest.fixture
def evaluated() -> Callable[..., Any]:
    """Returns the value of an expression at given arrays, as nested lists; `domain` and `result` as in a contract."""

    def value(expression: str, domain: dict[str, str], result: str = "real", **arrays: Any) -> Any:
        definitions, problems = parse_equations({"e": {"domain": domain, "result": result, "expression": expression}})
        assert problems == []
        equation = definitions["e"]
        kinds = {name: variable.kind for name, variable in equation.variables.items()}
        dtypes = {Kind.INDEX: torch.int64, Kind.MASK: torch.bool}
        tensors = {n: torch.tensor(array, dtype=dtypes.get(kinds[n], torch.float64)) for n, array in arrays.items()}
        # The sizes of the arrays, and for axes that no array has the smallest size.
        axes = (dict(zip(equation.variables[n].axes, tensor.shape, strict=True)) for n, tensor in tensors.items())
        sizes = {axis: low for axis, (low, _) in axis_bounds(equation.variables).items()}
        sizes |= {axis: size for axis_sizes in axes for axis, size in axis_sizes.items()}
        (exact,) = exact_values(equation, Example(tensors, sizes))
        return exact.tolist()

    return value


@pytest.fixture(scope="session")
def tried() -> Callable[..., dict[str, Any]]:
    """Attacks one equation of several; `code` is the subject, or its functions by name."""

    def attack_(equations: Any, name: str, code: Any, *, device: str = "cpu", **options: Any) -> Any:
        subject = SimpleNamespace(**code) if isinstance(code, dict) else code
        settings = Settings(**{"examples": 40, "seed": 0, **options})
        record = attack(equations, name, subject, device, settings, Foreign(), Deaf())
        record["inputs"] = {key: torch.as_tensor(decode(value)) for key, value in record.get("arguments", {}).items()}
        return record

    return attack_
