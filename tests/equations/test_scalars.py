"""Without PyTorch: the functions of the language agree with those of PyTorch, and claims get the same verdicts."""

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from pv.equations import scalars
from pv.equations.domain import parse_domain
from pv.equations.draw import Drawer
from pv.equations.language import ELEMENTWISE
from pv.equations.tensor_functions import EXACT, ROUNDED
from tests.equations import scalar_cases

# Within two units in the last place; the others are equal.
INEXACT = {"sqrt", "power", "exp", "log", "log1p", "expm1", "sin", "cos", "tanh", "sigmoid", "erf"}
STATUSES = {"held", "refuted", "raised", "error", "inconclusive", "no examples"}


@pytest.fixture(scope="module")
def bare(without_torch: Path) -> dict[str, Any]:
    """The results of an interpreter that lacks PyTorch."""
    command = [without_torch, scalar_cases.__file__]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    assert found["torch"] is False
    return found


@pytest.fixture(scope="module")
def with_torch() -> dict[str, list[float]]:
    return scalar_cases.of_functions()


def apart(name: str, one: float, other: float) -> bool:
    if math.isnan(one) or math.isnan(other) or math.isinf(one) or math.isinf(other):
        return repr(one) != repr(other)
    if name in INEXACT:
        return abs(one - other) > 2 * math.ulp(other)
    return (one, math.copysign(1, one)) != (other, math.copysign(1, other))


def test_every_elementwise_function_is_in_a_table() -> None:
    assert set(ELEMENTWISE) <= {*ROUNDED, *EXACT}


@pytest.mark.parametrize("name", [*ROUNDED, *EXACT])
def test_function_agrees_with_pytorch_everywhere(bare, with_torch, name: str) -> None:
    found = zip(scalar_cases.points(name), bare["functions"][name], with_torch[name], strict=True)
    assert [each for each in found if apart(name, *each[1:])] == []


@pytest.mark.parametrize("name", [*scalar_cases.CASES])
def test_trial_is_the_same_with_and_without_pytorch(bare, name: str) -> None:
    assert bare["claims"][name] == json.loads(json.dumps(scalar_cases.trial(name)))


@pytest.mark.parametrize("name", scalar_cases.REPLAYS)
def test_replay_is_the_same_with_and_without_pytorch(bare, name: str) -> None:
    expected = scalar_cases.trial(name, scalar_cases.REPLAYS[name])
    assert expected["status"] == "refuted"
    assert bare["claims"][f"replayed {name}"] == json.loads(json.dumps(expected))


def test_cases_have_every_status_and_most_kill_mutants(bare) -> None:
    records = bare["claims"].values()
    assert {record["status"] for record in records} == STATUSES
    killed = [record["equation_mutants"]["killed"] for record in records if "equation_mutants" in record]
    assert len(killed) > 10 and all(killed)


@pytest.mark.parametrize(
    "value", [1, True, 2.5, 0.1, 1e300, 2**63 - 1, [1, 2.5], [[1], [2]], [], range(3), 1j, [True, 2], -(2**63)]
)
def test_dtype_and_shape_of_a_result_are_those_of_pytorch(value) -> None:
    ours, theirs = scalars.as_tensor(value), torch.as_tensor(value)
    assert tuple(theirs.shape) == ours.shape
    assert (ours.is_floating_point(), ours.is_complex()) == (theirs.is_floating_point(), theirs.is_complex())
    if not ours.is_complex():
        assert ours.numbers == theirs.flatten().tolist()
        assert [type(each) for each in ours.numbers] == [type(each) for each in theirs.flatten().tolist()]


@pytest.mark.parametrize("value", ["1", b"1", None, {}, [None], 2**63, [[1], [1, 2]], object()])
def test_object_that_pytorch_refuses_is_refused(value) -> None:
    for library in (torch, scalars):
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            library.as_tensor(value)


def test_array_of_numpy_has_its_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    assert scalars.as_tensor(numpy.float32(0.5)).tolist() == 0.5
    assert scalars.as_tensor(numpy.arange(4).reshape(2, 2)).shape == (2, 2)
    assert not scalars.as_tensor(numpy.int32(3)).is_floating_point()


@pytest.mark.parametrize("numbers", [[3.0, -1.0, 2.0], [1.0, math.nan, 2.0], [math.inf, -math.inf, 0.0]])
def test_methods_agree_with_pytorch(numbers) -> None:
    ours, theirs = scalars.as_tensor(numbers, scalars.float64), torch.tensor(numbers, dtype=torch.float64)
    for method in ("abs", "sign", "isnan", "isinf", "isfinite", "nan_to_num", "round", "amax", "all", "any", "clone"):
        assert repr(getattr(ours, method)().tolist()) == repr(getattr(theirs, method)().tolist()), method
    bounded = ours.clamp(-1.0, 1.0), theirs.clamp(-1.0, 1.0)
    assert repr(bounded[0].tolist()) == repr(bounded[1].tolist())
    filled = ours.nan_to_num(nan=math.inf, posinf=0.0), theirs.nan_to_num(nan=math.inf, posinf=0.0)
    assert filled[0].tolist() == filled[1].tolist()
    assert ours.nan_to_num().argmax().tolist() == theirs.nan_to_num().argmax().tolist()


def test_drawn_scalars_are_representable_in_float32(bare) -> None:
    drawer = Drawer(parse_domain({"x": "real 0.3..0.7"}), 0)
    drawn = [float(drawer.example().arrays["x"]) for _ in range(50)]
    assert all(0.3 <= x <= 0.7 and torch.tensor(x).item() == x for x in drawn)
    arguments = [each for record in bare["claims"].values() for each in record.get("arguments", {}).values()]
    assert all(torch.tensor(float(each)).item() == each for each in arguments if isinstance(each, float))
