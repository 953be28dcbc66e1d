"""Attacks on the bar that a terminal shows below the lines of a run. The subject is that of `falsify_progress`."""

from __future__ import annotations

import os
import re
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.falsify_progress import Stream, context
from falsifiers.falsify_stream import XTERM, without_codes

WIDE = XTERM | {"COLUMNS": "120"}
ERASED = "\x1b[2K"
NANOSECOND = 1e-9


class Teletype(Stream):
    """A terminal that knows no line drawing."""

    encoding = "ascii"


def drawn(subject: Any, stream: Stream, title: str, contexts: list[Any]) -> None:
    """A run without lines: told of its begin, of steps, and of its end."""
    with patch.dict(os.environ, WIDE):
        callback = subject.ProgressCallback(0, lines=subject.Lines(stream), title=title)
        callback.on_train_begin(contexts[0])
        for now in contexts[1:]:
            callback.on_step_end(now)
        callback.on_train_end(contexts[-1])


@given(
    title=st.sampled_from(["", "teacher"]),
    step=st.integers(0, 10),
    loss=st.floats(0, 1e4) | st.none(),
    elapsed_s=st.sampled_from([0.0, 0.25, 1.0, 3.0]),
)
def falsify_a_bar_shows_where_the_run_stands(
    subject: Any, title: str, step: int, loss: float | None, elapsed_s: float
) -> None:
    """Title, bar, percentage, loss and tokens per second, in this order; after the run the line is empty again.

    A run in no time counts as one of a nanosecond.
    """
    stream, steps = Stream(terminal=True), (2, 5)
    now = context(subject, steps, step, loss, elapsed_s)
    drawn(subject, stream, title, [context(subject, steps, 0, None), now])
    frames = [line.rstrip() for line in without_codes(stream) if line.strip()]
    per_s = f"{step / max(elapsed_s, NANOSECOND):,.0f}"
    reading = "" if loss is None else rf"loss {loss:.4f}  {per_s} tokens/s "
    last = re.compile(rf"{title or 'student'} [━╸╺]+ +{10 * step}% {reading} ?[0-9:-]+")
    assert frames and last.fullmatch(frames[-1]), (
        f"after step {step} of 10 at loss {loss} in {elapsed_s} s the bar is {frames[-1:]}; expected {last.pattern!r}"
    )
    assert stream.getvalue().endswith(ERASED), f"after the run its bar still stands: {stream.getvalue()[-40:]!r}"


@given(step=st.integers(0, 10))
def falsify_a_bar_is_of_characters_that_the_terminal_has(subject: Any, step: int) -> None:
    """A terminal whose encoding is ASCII gets a bar of ASCII."""
    stream = Teletype(terminal=True)
    drawn(subject, stream, "", [context(subject, (2, 5), at, 1.0, 1.0) for at in (0, step)])
    odd = sorted({letter for letter in stream.getvalue() if not letter.isascii()})
    assert f"{10 * step}%" in stream.getvalue() and not odd, f"a terminal for ASCII is sent {odd}"
