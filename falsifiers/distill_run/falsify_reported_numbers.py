"""Attacks on the numbers that a run reports, its dtypes and its threads. The subject is `pipeline.distill`.

Result and manifest are compared with the losses of `falsifiers/support/decoder_oracle.py`.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from falsifiers.distill_run.run_observations import held_back_of
from falsifiers.support.scratch import scratch
from falsifiers.support.small_runs import run, small
from reference_trainer.callbacks.base import Callback


def falsify_held_back_metrics_match_exported_model(run: Any) -> None:
    expected, tokens = held_back_of(run, "out")
    manifest = json.loads((run.directory / "out/manifest.json").read_text())["held_back"]
    reported = {"the result": run.result["held_back"]}
    reported["the manifest"] = {name: [value["sum"], value["count"]] for name, value in manifest.items()}
    # Logits are float32, wrong by some 1e-6: a sum over many bytes is wrong by less than that share of its bytes. The
    # divergence is the smaller number, made of the same logits.
    for where, held_back in reported.items():
        assert set(expected) < set(held_back), f"{where} reports {sorted(held_back)}"
        for name, nats in expected.items():
            seen, count = held_back[name]
            assert count == tokens, f"{where} counts {count} held-back bytes for {name}; there are {tokens}"
            assert abs(seen - nats) <= 1e-5 * tokens, f"{where}: {name} is {seen}; recomputed in float64 it is {nats}"


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


@given(asked=st.sampled_from([None, 1, 3]), variable=st.booleans())
def falsify_run_uses_one_thread_unless_asked(subject: Any, asked: int | None, variable: bool) -> None:
    before = 2  # what torch has read from the variable, or has chosen by itself without one
    used, environment = set[int](), {"OMP_NUM_THREADS": str(before)} if variable else {}

    class Noting(Callback):
        def on_step_end(self, context: Any) -> None:
            used.add(torch.get_num_threads())

    kept = torch.get_num_threads()
    torch.set_num_threads(before)
    try:
        with tempfile.TemporaryDirectory() as name:
            settings = small(Path(name), out=Path(name, "out"), threads=asked)
            run(subject, settings, callbacks=[Noting()], environment=environment)
            recorded = json.loads((settings.out / "manifest.json").read_text())["threads"]
        after = torch.get_num_threads()
    finally:
        torch.set_num_threads(kept)
    expected = asked or (before if variable else 1)
    case = f"threads {asked}, {environment}, {before} before"
    assert (used, recorded) == ({expected}, expected), f"{case}: {used} used, {recorded} recorded; expected {expected}"
    assert after == before, f"{case}: the process is left with {after}"
