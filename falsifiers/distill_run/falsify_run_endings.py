"""Attacks on the end of a distillation: by an exception, as a smoke run, rejected, with other defaults of torch.

The subject has the names that `reference_run.py` uses. Every run is as small as possible.
"""

from __future__ import annotations

import hashlib
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

EVENTS = ("on_train_begin", "on_epoch_begin", "on_step_end", "on_epoch_end", "on_train_end")
SMALL = {
    "layers": 1,
    "width": 16,
    "teacher_layers": 1,
    "teacher_width": 16,
    "teacher_steps": 1,
    "length": 8,
    "batch_size": 4,
    "epochs": 1,
    "device": "cpu",
}


def small(directory: Path, subject: Any, **others: Any) -> Any:
    """Settings of a run of three steps on a text of 100 bytes in `directory`."""
    path = directory / "text"
    path.write_bytes(bytes(range(100)))
    return subject.Settings(**{**SMALL, "data": path, "teacher_cache": directory / "cache", **others})


def run(subject: Any, settings: Any, **others: Any) -> Any:
    return subject.distill(settings, lines=subject.Lines(io.StringIO()), **others)


class OnPurpose(Exception):
    """Raised by a callback."""


def failing(subject: Any, event: str, fault: type[BaseException]) -> Any:
    def fail(listener: Any, context: Any) -> None:
        raise fault("on purpose")

    return type("Failing", (subject.Callback,), {event: fail})()


def found(directory: Path) -> dict[str, str]:
    """Return every file and directory below, with the digest of its content."""
    return {
        str(p.relative_to(directory)): hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else "a directory"
        for p in sorted(directory.rglob("*"))
    }


@given(
    event=st.sampled_from(EVENTS),
    fault=st.sampled_from([OnPurpose, KeyboardInterrupt]),
    there=st.sampled_from(["nothing", "a directory", "an older model"]),
)
def falsify_failed_run_leaves_no_files(subject: Any, event: str, fault: type[BaseException], there: str) -> None:
    """No directory that it created and no file in an existing one; an older model stays complete.

    The original exception is raised.
    """
    with tempfile.TemporaryDirectory() as name:
        directory, out = Path(name), Path(name, "new", "out")
        if there != "nothing":
            out.mkdir(parents=True)
        run(subject, small(directory, subject, out=out if there == "an older model" else directory / "model"))
        before = found(directory)
        settings = small(directory, subject, out=out, force=True, seed=0)
        try:
            run(subject, settings, callbacks=[failing(subject, event, fault)])
        except fault:
            pass
        else:
            raise AssertionError(f"an exception in {event} is lost")
        after = found(directory)
        assert after == before, (
            f"with {there} in its place, a run that failed in {event} created or removed "
            f"{sorted(set(after.items()) ^ set(before.items()))}"
        )


def falsify_failed_export_leaves_no_manifest(subject: Any) -> None:
    """An older model's manifest is removed before the new weights are written."""
    with tempfile.TemporaryDirectory() as name:
        directory, out = Path(name), Path(name, "out")
        run(subject, small(directory, subject, out=out))
        (out / "config.json").unlink()
        (out / "config.json").mkdir()  # nothing can be put in its place
        try:
            run(subject, small(directory, subject, out=out, force=True, seed=1))
        except OSError as error:
            assert str(out / "config.json") in str(error), f"the error does not name the file: {error}"
        else:
            raise AssertionError("a model whose configuration could not be written is reported as written")
        assert not (out / "manifest.json").exists(), "the older model's manifest is left beside the new weights"


@given(steps=st.integers(1, 4), there=st.booleans(), batch_size=st.sampled_from([4, 12]))
def falsify_smoke_run_leaves_no_files(subject: Any, steps: int, there: bool, batch_size: int) -> None:
    """No model, directory or cache; existing results are kept, and reject it."""
    with tempfile.TemporaryDirectory() as name:
        directory, out = Path(name), Path(name, "new", "out")
        settings = small(directory, subject, out=out, smoke=steps, batch_size=batch_size)
        if there:
            out.mkdir(parents=True)
        before = found(directory)
        result = run(subject, settings)
        assert found(directory) == before, f"a smoke run left {sorted(set(found(directory)) - set(before))}"
        # Of twelve sequences: the batch on which the gradient is checked may be the only one.
        took, expected = result.train.steps_completed, min(steps, 12 // batch_size)
        assert took == expected and result.output is None and result.held_back == {}, (
            f"a smoke run of {expected} steps took {took}, wrote {result.output}, and measured {result.held_back}"
        )
        out.mkdir(parents=True, exist_ok=True)
        (out / "model").touch()
        assert refused(subject, settings), "a smoke run succeeds where the full run is rejected"


def refused(subject: Any, settings: Any) -> str:
    """Return the message of a rejected run; empty if it is accepted."""
    try:
        run(subject, settings)
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def _older_trace(directory: Path) -> Path:
    (directory / "older").write_text('{"event": "on_train_begin"}\n')
    return directory / "older"


TAKEN: dict[str, tuple[Callable[[Path], dict[str, Any]], str]] = {
    "existing results": (lambda d: {"out": d}, "is not empty"),
    "a file at the output path": (lambda d: {"out": d / "text"}, "not a directory"),
    "an existing trace": (lambda d: {"out": d / "out", "trace": d / "model" / "config.json"}, "exists"),
    "a trace over the text": (lambda d: {"out": d / "out", "trace": d / "text", "force": True}, "other than the text"),
    "a trace below a file": (lambda d: {"out": d / "out", "trace": d / "text" / "x"}, "can't be written"),
    "a trace for a run with existing results": (lambda d: {"out": d, "trace": d / "trace"}, "is not empty"),
    "a trace for a run without a teacher": (
        lambda d: {"out": d / "out", "trace": d / "trace", "teacher": d / "nobody"},
        "cannot read",
    ),
    "a trace over an older one for a run without a teacher": (
        lambda d: {"out": d / "out", "trace": _older_trace(d), "teacher": d / "nobody", "force": True},
        "cannot read",
    ),
}


@given(kind=st.sampled_from(list(TAKEN)))
def falsify_rejected_run_leaves_no_files(subject: Any, kind: str) -> None:
    """It is rejected before a teacher is trained, with the reason, and changes no file."""
    make, words = TAKEN[kind]
    with tempfile.TemporaryDirectory() as name:
        run(subject, small(Path(name), subject, out=Path(name, "model")))
        settings = small(Path(name), subject, **make(Path(name)))
        before = found(Path(name))
        said = refused(subject, settings)
        assert words in said, f"{kind}: rejected with {said!r}; expected the words {words!r}"
        left = sorted(set(found(Path(name)).items()) ^ set(before.items()))
        assert not left, f"{kind}: the run was rejected, and created or changed {left}"


@given(dtype=st.sampled_from([torch.float64, torch.bfloat16]), own=st.sampled_from(["float32", "float64"]))
def falsify_default_dtype_has_no_influence(subject: Any, dtype: torch.dtype, own: str) -> None:
    """Under another default dtype the exported file is the same, byte for byte, and the default stays."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        run(subject, small(directory, subject, out=directory / "one", dtype=own))
        torch.set_default_dtype(dtype)
        try:
            others = {"out": directory / "two", "teacher_cache": directory / "other", "dtype": own}
            run(subject, small(directory, subject, **others))
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
    """Every matrix product is in that dtype; bfloat16 keeps weights in float32; losses agree to its precision."""
    with tempfile.TemporaryDirectory() as temporary, _Products() as products:
        directory = Path(temporary)
        result = run(subject, small(directory, subject, out=directory / "one", dtype=name, device=device))
        dtypes = set(products.dtypes)
        plain = run(
            subject, small(directory, subject, out=directory / "two", device=device, teacher_cache=directory / "o")
        )
    assert dtypes == {getattr(torch, name)}, f"a run in {name} multiplies in {sorted(map(str, dtypes))}"
    kept = torch.float64 if name == "float64" else torch.float32
    seen = {parameter.dtype for parameter in result.student.parameters()}
    assert seen == {kept}, f"a run in {name} keeps its weights in {sorted(map(str, seen))}"
    apart = abs(result.train.initial_loss - plain.train.initial_loss)
    assert apart <= 0.02 * plain.train.initial_loss, f"the first loss in {name} is {apart:.3g} from that in float32"


@given(teacher=st.sampled_from(["cached", "named"]), seed=st.integers(0, 3))
def falsify_origin_of_teacher_has_no_influence(subject: Any, teacher: str, seed: int) -> None:
    """Students of one teacher are equal bit for bit, whether it was just trained, cached, or given by the user."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        first = run(subject, small(directory, subject, out=directory / "one", seed=seed))
        (kept,) = (directory / "cache").iterdir()
        others = {"teacher": kept} if teacher == "named" else {}
        second = run(subject, small(directory, subject, out=directory / "two", seed=seed, **others))
        one, two = ((directory / n / "model.safetensors").read_bytes() for n in ("one", "two"))
    assert one == two, f"a {teacher} teacher gives another student than the same one freshly trained"
    nats = [result.held_back["kl"].sum for result in (first, second)]
    assert nats[0] == nats[1], f"a {teacher} teacher gives a held-back divergence of {nats[1]}, not {nats[0]}"
