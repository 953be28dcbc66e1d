"""Attacks on the progress bar that a terminal shows below the lines of a run.

The subject is that of `falsify_progress_lines`.
"""

from __future__ import annotations

import os
import re
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.distill_observability.falsify_output_stream import XTERM, without_codes
from falsifiers.distill_observability.falsify_progress_lines import Stream, context

WIDE = XTERM | {"COLUMNS": "120"}
ERASED = "\x1b[2K"
NANOSECOND = 1e-9


class Teletype(Stream):
    """A terminal whose encoding is ASCII."""

    encoding = "ascii"


def drawn(subject: Any, stream: Stream, title: str, contexts: list[Any]) -> None:
    """Draw the bar of a run without log lines: its begin, steps and end."""
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
def falsify_progress_bar_contents(subject: Any, title: str, step: int, loss: float | None, elapsed_s: float) -> None:
    """Title, bar, percentage, loss and tokens per second, in this order; the bar is erased after the run.

    Zero elapsed seconds count as one nanosecond.
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
    assert stream.getvalue().endswith(ERASED), f"the bar is not erased after the run: {stream.getvalue()[-40:]!r}"


@given(step=st.integers(0, 10))
def falsify_progress_bar_uses_terminal_encoding(subject: Any, step: int) -> None:
    """On a terminal whose encoding is ASCII the bar is drawn in ASCII."""
    stream = Teletype(terminal=True)
    drawn(subject, stream, "", [context(subject, (2, 5), at, 1.0, 1.0) for at in (0, step)])
    odd = sorted({letter for letter in stream.getvalue() if not letter.isascii()})
    assert f"{10 * step}%" in stream.getvalue() and not odd, f"an ASCII terminal receives {odd}"
