"""Attacks on the dtypes and the device of a distillation. The subject is `pipeline.distill`, or `models.placement`."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from falsifiers.support.scratch import scratch
from falsifiers.support.small_runs import run, small


class _Products(TorchDispatchMode):
    """The dtypes of the operands of matrix products, after autocast."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: list[torch.dtype] = []

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        if function.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm):
            self.dtypes += [each.dtype for each in arguments if isinstance(each, torch.Tensor)]
        return function(*arguments, **(named or {}))


@given(name=st.sampled_from(["bfloat16", "float32", "float64"]), given_one=st.booleans())
@example(name="float64", given_one=True)
def falsify_matrix_products_use_the_dtype(subject: Any, device: str, name: str, given_one: bool) -> None:
    """given_one: the teacher is one that was saved in float32."""
    with scratch() as directory:
        plain = run(subject, small(directory, out=directory / "one", device=device, teacher_cache=directory / "o"))
        others = {"teacher": next((directory / "o").iterdir())} if given_one else {}
        with _Products() as products:
            result = run(subject, small(directory, out=directory / "two", dtype=name, device=device, **others))
        dtypes = set(products.dtypes)
    assert dtypes == {getattr(torch, name)}, f"a run in {name} multiplies in {sorted(map(str, dtypes))}"
    kept = torch.float64 if name == "float64" else torch.float32
    seen = {parameter.dtype for parameter in result.student.parameters()}
    assert seen == {kept}, f"a run in {name} keeps its weights in {sorted(map(str, seen))}"
    apart = abs(result.train.initial_loss - plain.train.initial_loss)
    assert apart <= 0.02 * plain.train.initial_loss, f"the first loss in {name} is {apart:.3g} from that in float32"


def falsify_auto_selects_an_available_device(subject: Any) -> None:
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    seen = subject.usable_device("auto").type
    assert seen == expected, f"auto selects {seen}; expected {expected}"
