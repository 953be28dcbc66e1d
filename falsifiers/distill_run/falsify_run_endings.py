"""Attacks on the files that a distillation leaves that failed, was a smoke run or was refused.

The subject is `reference_trainer.pipeline.distill`, or has its name.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import reference_trainer
from falsifiers.support.small_runs import found, refused, run, small

EVENTS = ("on_train_begin", "on_epoch_begin", "on_step_end", "on_epoch_end", "on_train_end")


class OnPurpose(Exception):
    """Raised by a callback."""


def failing(event: str, fault: type[BaseException]) -> Any:
    def fail(listener: Any, context: Any) -> None:
        raise fault("on purpose")

    return type("Failing", (reference_trainer.Callback,), {event: fail})()


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
        run(subject, small(directory, out=out if there == "an older model" else directory / "model"))
        before = found(directory)
        settings = small(directory, out=out, force=True, seed=0)
        try:
            run(subject, settings, callbacks=[failing(event, fault)])
        except fault:
            pass
        else:
            raise AssertionError(f"an exception in {event} is lost")
        after = found(directory)
        assert after == before, (
            f"with {there} in its place, a run that failed in {event} created or removed "
            f"{sorted(set(after.items()) ^ set(before.items()))}"
        )


@given(steps=st.integers(1, 4), there=st.booleans(), batch_size=st.sampled_from([4, 12]))
def falsify_smoke_run_leaves_no_files(subject: Any, steps: int, there: bool, batch_size: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory, out = Path(name), Path(name, "new", "out")
        settings = small(directory, out=out, smoke=steps, batch_size=batch_size)
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
        assert refused(subject, settings), "a smoke run succeeds where the full run is refused"


def _older_trace(directory: Path) -> Path:
    (directory / "older").write_text('{"event": "on_train_begin"}\n')
    return directory / "older"


def _text_like_a_trace(directory: Path) -> dict[str, Any]:
    path = directory / "text-like-a-trace"
    path.write_text('{"event": "on_train_begin"}\n' * 4)
    return {"data": path, "trace": path, "force": True}


TAKEN: dict[str, Callable[[Path], dict[str, Any]]] = {
    "existing results": lambda d: {"out": d},
    "a file at the output path": lambda d: {"out": d / "text"},
    "an existing trace": lambda d: {"out": d / "out", "trace": d / "model" / "config.json"},
    "a trace over the text": lambda d: {"out": d / "out", **_text_like_a_trace(d)},
    "a trace below a file": lambda d: {"out": d / "out", "trace": d / "text" / "x"},
    "a trace for a run with existing results": lambda d: {"out": d, "trace": d / "trace"},
    "a trace for a run without a teacher": lambda d: {"out": d / "out", "trace": d / "trace", "teacher": d / "missing"},
    "a trace over an older one for a run without a teacher": lambda d: {
        "out": d / "out",
        "trace": _older_trace(d),
        "teacher": d / "missing",
        "force": True,
    },
    "a device that is missing": lambda d: {"out": d / "new" / "out", "trace": d / "trace", "device": "cuda:999"},
}


def falsify_older_trace_is_replaced_with_force(subject: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        settings = small(directory, out=directory / "out", trace=directory / "trace", force=True)
        lengths = []
        for steps in (3, 1):
            run(subject, settings.model_copy(update={"max_steps": steps}))
            lengths.append(len((directory / "trace").read_text().splitlines()))
        assert lengths[1] < lengths[0], f"the traces of 3 steps and of 1 step have {lengths} lines"


@given(kind=st.sampled_from(list(TAKEN)))
def falsify_refused_run_leaves_no_files(subject: Any, kind: str) -> None:
    """It is refused before a teacher is trained, and changes no file."""
    with tempfile.TemporaryDirectory() as name:
        run(subject, small(Path(name), out=Path(name, "model")))
        settings = small(Path(name), **TAKEN[kind](Path(name)))
        before = found(Path(name))
        assert refused(subject, settings), f"{kind}: the run is accepted"
        left = sorted(set(found(Path(name)).items()) ^ set(before.items()))
        assert not left, f"{kind}: the run was refused, and created or changed {left}"
