"""Without PyTorch: the functions of the language agree with PyTorch's, and claims get the same verdicts."""

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pv.equations.tensors import EXACT, ROUNDED
from tests.equations import scalar_cases

# Within two units in the last place; the others are equal.
INEXACT = {"sqrt", "power", "exp", "log", "log1p", "expm1", "sin", "cos", "tanh", "sigmoid", "erf"}


@pytest.fixture(scope="module")
def bare(without_torch: Path) -> dict[str, Any]:
    """The results of an interpreter that lacks PyTorch."""
    command = [without_torch, scalar_cases.__file__]
    results = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    assert results["torch"] is False
    return results


@pytest.fixture(scope="module")
def with_torch() -> dict[str, list[float]]:
    return scalar_cases.of_functions()


def apart(name: str, one: float, other: float) -> bool:
    if math.isnan(one) or math.isnan(other) or math.isinf(one) or math.isinf(other):
        return repr(one) != repr(other)
    if name in INEXACT:
        return abs(one - other) > 2 * math.ulp(other)
    return (one, math.copysign(1, one)) != (other, math.copysign(1, other))


@pytest.mark.parametrize("name", [*ROUNDED, *EXACT])
def test_function_agrees_with_pytorch_everywhere(bare, with_torch, name: str) -> None:
    rows = zip(scalar_cases.points(name), bare["functions"][name], with_torch[name], strict=True)
    assert [text for text in rows if apart(name, *text[1:])] == []


@pytest.mark.parametrize("name", scalar_cases.TRIALS)
def test_trial_is_the_same_with_and_without_pytorch(bare, name: str) -> None:
    expected = scalar_cases.trial(name)
    assert expected["status"] == "refuted" or not name.startswith("replayed ")
    assert bare["claims"][name] == json.loads(json.dumps(expected))
