"""Attacks on the file of `MetricsCallback`: resumed runs, existing files, lost lines. The subject is as in
`falsify_lines`."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

import reference_trainer
from falsifiers.metrics_files.lines import begin, context, directory, refusal, steps_in, write
from falsifiers.support.descriptors import held


@given(checkpoint=st.integers(0, 4), more=st.integers(0, 3), again=st.integers(0, 4), cut=st.integers(0, 30))
@example(checkpoint=3, more=2, again=3, cut=10)
@example(checkpoint=1, more=3, again=1, cut=0)
def falsify_resumed_run_has_each_step_once(subject: Any, checkpoint: int, more: int, again: int, cut: int) -> None:
    """checkpoint: the step at which `length` was recorded. more: steps between it and the kill. again: steps of the
    resumed run. cut: bytes of the last line that were lost.
    """
    with directory() as place:
        path, first = place / "metrics", subject.MetricsCallback(place / "metrics")
        write(first, range(1, checkpoint + 1))
        length = first.length
        for step in range(checkpoint + 1, checkpoint + more + 1):
            first.on_log(context(step))
        first.close()
        before = path.read_bytes()[: -cut if cut and more else None] if path.exists() else b""
        path.write_bytes(before)
        second = subject.MetricsCallback(path, truncate_to=length)
        kept = path.read_bytes()
        assert kept == before, f"before its run has begun, the resumed file holds {kept!r}; expected {before!r}"
        assert second.length == length, f"length is {second.length} before the resumed run; expected {length}"
        write(second, range(checkpoint + 1, checkpoint + again + 1))
        seen, size = steps_in(subject, path), path.stat().st_size
        assert second.length == size, f"length is {second.length} after the resumed run; the file has {size} bytes"
        second.close()
    assert seen == list(range(1, checkpoint + again + 1)), (
        f"killed at step {checkpoint + more} and resumed at {checkpoint} for {again} steps, the file has steps {seen}"
    )


@given(lines=st.integers(0, 3), wrong=st.sampled_from([-3, -1, 1, 50]))
def falsify_length_of_another_file_is_refused(subject: Any, lines: int, wrong: int) -> None:
    with directory() as place:
        path, callback = place / "metrics", subject.MetricsCallback(place / "metrics")
        write(callback, range(1, lines + 1))
        callback.close()
        path.touch()
        length, before = max(callback.length + wrong, 1), path.read_bytes()
        cases = {"another length": (path, length), "no length": (path, None), "a missing file": (place / "new", length)}
        cases |= {"a directory": (place, None), "a missing directory": (place / "none" / "metrics", None)}
        for kind, (where, at) in cases.items():
            said = refusal(partial(subject.MetricsCallback, where, truncate_to=at), reference_trainer.OutputError)
            assert str(where) in said, f"{kind}, resumed at {at}: the error is {said!r}; expected one with {where}"
        left, open_, made = path.read_bytes(), len(held(path)), (place / "new").exists()
    assert (left, open_, made) == (before, 0, False), f"refused files: {left!r}, open {open_} times, made: {made}"


@given(older=st.booleans(), begun=st.booleans(), steps=st.integers(0, 2))
def falsify_empty_file_is_removed(subject: Any, older: bool, begun: bool, steps: int) -> None:
    with directory() as place:
        path = place / "metrics"
        if older:
            path.touch()
        callback = subject.MetricsCallback(path, truncate_to=0 if older else None)
        if begun:
            write(callback, range(1, steps + 1))
        callback.close()
        exists = path.exists()
        open_ = held(path)
    expected = older or (begun and steps > 0)
    assert exists == expected and not open_, (
        f"a file {'of an older run' if older else 'created here'} with {steps if begun else 0} lines "
        f"{'exists' if exists else 'is removed'} once it is closed, open {len(open_)} times; expected "
        f"{'that it exists' if expected else 'that it is removed'}, closed"
    )


@given(before=st.integers(0, 3), then=st.sampled_from(["the beginning", "a step", "the end"]))
def falsify_lost_line_ends_run(subject: Any, before: int, then: str) -> None:
    with directory() as place:
        path, callback = place / "metrics", subject.MetricsCallback(place / "metrics")
        write(callback, range(1, before + 1))
        length = callback.length
        for descriptor in held(path):
            os.close(descriptor)
        calls = {"the beginning": lambda: begin(callback, before), "a step": lambda: callback.on_log(context(9))}
        said = [refusal(calls[then], reference_trainer.OutputError)] if then in calls else []
        said.append(refusal(callback.close, reference_trainer.OutputError))
        lines = len(steps_in(subject, path)) if path.exists() else 0
    named = [str(path) in each for each in said]
    assert named == ([True, False] if then in calls else [True]), (
        f"lost after {before} lines, detected at {then}: the errors are {said}; expected one that names the file"
    )
    assert lines == before and callback.length == length, (
        f"lost after {before} lines, the file has {lines} and length is {callback.length}; expected {length}"
    )
