"""Attacks on the dtypes of a distillation and on the origin of its teacher. The subject is `pipeline.distill`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from falsifiers.support.small_runs import run, small


@given(dtype=st.sampled_from([torch.float64, torch.bfloat16]), own=st.sampled_from(["float32", "float64"]))
def falsify_default_dtype_has_no_influence(subject: Any, dtype: torch.dtype, own: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        run(subject, small(directory, out=directory / "one", dtype=own))
        torch.set_default_dtype(dtype)
        try:
            others = {"out": directory / "two", "teacher_cache": directory / "other", "dtype": own}
            run(subject, small(directory, **others))
            assert torch.get_default_dtype() is dtype, "the run changed torch's default dtype"
        finally:
            torch.set_default_dtype(torch.float32)
        one, two = ((directory / n / "model.safetensors").read_bytes() for n in ("one", "two"))
    assert one == two, f"with {dtype} as torch's default, a run in {own} writes other weights"


class _Products(TorchDispatchMode):
    """The dtypes of the operands of matrix products, after autocast."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: list[torch.dtype] = []

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        if function.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm):
            self.dtypes += [each.dtype for each in arguments if isinstance(each, torch.Tensor)]
        return function(*arguments, **(named or {}))


@given(name=st.sampled_from(["bfloat16", "float32", "float64"]))
def falsify_matrix_products_use_the_dtype(subject: Any, device: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as temporary, _Products() as products:
        directory = Path(temporary)
        result = run(subject, small(directory, out=directory / "one", dtype=name, device=device))
        dtypes = set(products.dtypes)
        plain = run(subject, small(directory, out=directory / "two", device=device, teacher_cache=directory / "o"))
    assert dtypes == {getattr(torch, name)}, f"a run in {name} multiplies in {sorted(map(str, dtypes))}"
    kept = torch.float64 if name == "float64" else torch.float32
    seen = {parameter.dtype for parameter in result.student.parameters()}
    assert seen == {kept}, f"a run in {name} keeps its weights in {sorted(map(str, seen))}"
    apart = abs(result.train.initial_loss - plain.train.initial_loss)
    assert apart <= 0.02 * plain.train.initial_loss, f"the first loss in {name} is {apart:.3g} from that in float32"


@given(teacher=st.sampled_from(["cached", "named"]), seed=st.integers(0, 3))
def falsify_origin_of_teacher_has_no_influence(subject: Any, teacher: str, seed: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        first = run(subject, small(directory, out=directory / "one", seed=seed))
        (kept,) = (directory / "cache").iterdir()
        others = {"teacher": kept} if teacher == "named" else {}
        second = run(subject, small(directory, out=directory / "two", seed=seed, **others))
        one, two = ((directory / n / "model.safetensors").read_bytes() for n in ("one", "two"))
    assert one == two, f"a {teacher} teacher gives another student than the same one freshly trained"
    nats = [result.held_back["kl_at_1"].sum for result in (first, second)]
    assert nats[0] == nats[1], f"a {teacher} teacher gives a held-back divergence of {nats[1]}, not {nats[0]}"


def falsify_auto_selects_an_available_device(subject: Any) -> None:
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    seen = subject.usable_device("auto").type
    assert seen == expected, f"auto selects {seen}; expected {expected}"
