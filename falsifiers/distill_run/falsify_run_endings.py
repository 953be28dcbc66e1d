"""Attacks on what a distillation leaves that failed or was refused, and on what it prints of its teacher."""

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

import reference_trainer
from falsifiers.support.acting import acting
from falsifiers.support.run_lines import ATTACHED, matcher
from falsifiers.support.scratch import scratch
from falsifiers.support.small_runs import found, refused, run, small

EVENTS = ("on_train_begin", "on_epoch_begin", "on_step_end", "on_epoch_end", "on_train_end")


@given(
    event=st.sampled_from(EVENTS),
    fault=st.sampled_from([RuntimeError, KeyboardInterrupt]),
    there=st.sampled_from(["nothing", "a directory", "an older model"]),
)
def falsify_failed_run_leaves_no_files(subject: Any, event: str, fault: type[BaseException], there: str) -> None:
    def fail() -> None:
        raise fault("on purpose")

    with scratch() as directory:
        out = directory / "new" / "out"
        if there != "nothing":
            out.mkdir(parents=True)
        run(subject, small(directory, out=out if there == "an older model" else directory / "model"))
        before = found(directory)
        settings = small(directory, out=out, force=True, seed=0)
        try:
            run(subject, settings, callbacks=[acting(fail, event)])
        except fault:
            pass
        else:
            raise AssertionError(f"an exception in {event} is lost")
        left = sorted(set(found(directory).items()) ^ set(before.items()))
        assert not left, f"with {there} in its place, a run that failed in {event} created or removed {left}"


TAKEN: dict[str, Callable[[Path], dict[str, Any]]] = {
    "existing results": lambda d: {"out": d, "trace": d / "trace"},
    "a file at the output path": lambda d: {"out": d / "text"},
    "an existing trace": lambda d: {"trace": d / "model" / "config.json"},
    "a trace over the text": lambda d: {"trace": d / "text", "force": True},
    "a missing teacher": lambda d: {"trace": d / "trace", "teacher": d / "missing"},
    "a missing device": lambda d: {"out": d / "new" / "out", "trace": d / "trace", "device": "cuda:999"},
}


@given(kind=st.sampled_from(list(TAKEN)))
def falsify_refused_run_leaves_no_files(subject: Any, kind: str) -> None:
    with scratch() as directory:
        run(subject, small(directory, out=directory / "model"))
        settings = small(directory, **{"out": directory / "out", **TAKEN[kind](directory)})
        before = found(directory)
        assert refused(subject, settings), f"{kind}: the run is accepted"
        left = sorted(set(found(directory).items()) ^ set(before.items()))
        assert not left, f"{kind}: the run was refused, and created or changed {left}"


SPACE = [({}, 1.5, True), ({}, 0.5, False), ({"save_every": 1}, 12.0, True)]
SPACE += [({"save_every": 1}, 3.5, False), ({"eval_every": 1}, 3.5, False)]
"""Settings, free bytes as a multiple of the weights, and whether the run fits."""


def falsify_run_that_does_not_fit_is_refused_at_its_start(subject: Any) -> None:
    for others, share, fits in SPACE:
        with scratch() as directory:
            settings = small(directory, out=directory / "out").model_copy(update={"width": 64, **others})
            with subject.Distillation(settings) as made:
                student = made.make_student()
            free = int(share * sum(each.numel() * each.element_size() for each in student.parameters()))
            before, disk = found(directory), SimpleNamespace(free=free)
            with mock.patch.object(shutil, "disk_usage", lambda path, disk=disk: disk):
                said = refused(subject, settings)
            what = f"with {others or 'no checkpoints'} and {share} times the bytes of the weights"
            assert (said == "") is fits, f"{what}, the run ends with {said or 'a model'!r}"
            assert fits or f"{free:,} bytes" in said, f"{what}, the refusal is {said!r}"
            assert fits or found(directory) == before, f"{what}, the refused run leaves {sorted(found(directory))}"


def falsify_teacher_progress_is_printed_every_hundred_steps(subject: Any) -> None:
    stream, steps = io.StringIO(), 203
    with scratch() as root:
        settings = small(root, out=root / "out", teacher_steps=steps, max_steps=1)
        subject.distill(settings, lines=reference_trainer.Lines(stream))
    lines = stream.getvalue().splitlines()
    seen = [line.partition(", loss ")[0] for line in lines if ": step " in line or matcher(ATTACHED).match(line)]
    expected = [f"teacher: step {step}/{steps}" for step in (100, 200)] + [ATTACHED.format(every=10)]
    assert seen == expected, f"for {steps} steps of a teacher the output is {seen}; expected {expected}"
