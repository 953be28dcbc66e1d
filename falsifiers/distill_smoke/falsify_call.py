"""Attacks on calls of `distill` as a library function. The subject is that of `falsify_smoke`."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.distill_smoke.cases import changes, distilled, finished, place


def falsify_lines_are_printed_by_default(subject: Any) -> None:
    """Without `lines`, standard output receives every line."""
    said = io.StringIO()
    with place() as where, redirect_stdout(said):
        subject.distill(subject.Settings(**where.settings(smoke=2)))
        expected = finished(subject, where, smoke=2, traced=False).lines
    words = [line.partition(" in ")[0].partition(": ")[0] for line in said.getvalue().splitlines()]
    assert words == [line.partition(" in ")[0].partition(": ")[0] for line in expected], (
        f"standard output has {said.getvalue()!r}; expected lines like {expected}"
    )


@given(at=st.integers(0, 2), kind=st.sampled_from(["class", "function", "None"]))
def falsify_callbacks_are_checked_first(subject: Any, at: int, kind: str) -> None:
    """An object that is not a callback is refused by its position, before the text is read or a line written."""
    odd = {"class": subject.Callback, "function": lambda context: None, "None": None}[kind]
    callbacks = [subject.Callback(), subject.Callback()]
    callbacks.insert(at, odd)
    reading = mock.Mock(side_effect=AssertionError("the text was read before the callbacks were looked at"))
    with place() as where, mock.patch.object(subject, "read_text", reading):
        before = where.listing()
        ran = distilled(subject, where, callbacks=callbacks, smoke=2)
        changed = changes(before, where.listing())
    refused = type(ran.error).__name__ == "CallbackError" and f"callback {at + 1} is " in str(ran.error)
    assert refused, f"callback {at + 1} is a {kind}: {ran.error!r}"
    assert ran.lines == [] and not changed, f"refused, but not before {ran.lines} and {changed}"


@given(counted=st.booleans())
def falsify_callbacks_may_be_any_iterable(subject: Any, counted: bool) -> None:
    """The callbacks of an iterator that can be consumed only once are called at every step."""
    heard: list[int] = []
    listener = type("Listener", (subject.Callback,), {"on_step_end": lambda self, context: heard.append(context.step)})
    with place() as where:
        callbacks = [listener()] if counted else iter([listener()])
        ran = distilled(subject, where, callbacks=callbacks, smoke=2)
    assert ran.error is None and heard == [1, 2], f"of two steps the callback heard {heard}: {ran.error!r}"
