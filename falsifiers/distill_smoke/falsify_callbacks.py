"""Attacks on the callbacks of `distill`. The subject is that of `falsify_steps`."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.distill_smoke.cases import changes, distilled, place
from reference_trainer.errors import CallbackError
from reference_trainer.training.callbacks import Callback


@given(at=st.integers(0, 2), kind=st.sampled_from(["class", "function", "None"]))
def falsify_callbacks_are_checked_first(subject: Any, at: int, kind: str) -> None:
    odd: Any = {"class": Callback, "function": lambda context: None, "None": None}[kind]
    callbacks = [Callback(), Callback()]
    callbacks.insert(at, odd)
    with place() as where:
        before = where.listing()
        ran = distilled(subject, where, callbacks=callbacks, smoke=2, data=where.tree / "missing")
        changed = changes(before, where.listing())
    refused = isinstance(ran.error, CallbackError) and re.search(rf"\b{at + 1}\b", str(ran.error))
    assert refused, f"callback {at + 1} is a {kind}, and the run ended with {ran.error!r}; expected a CallbackError"
    assert ran.lines == [] and not changed, f"before the refusal: lines {ran.lines}, changed files {changed}"


@given(counted=st.booleans())
def falsify_callbacks_may_be_any_iterable(subject: Any, device: str, counted: bool) -> None:
    """The callbacks of an iterator that can be consumed only once are called at every step."""
    called: list[int] = []
    listener = type("Listener", (Callback,), {"on_step_end": lambda self, context: called.append(context.step)})
    with place() as where:
        callbacks: Any = [listener()] if counted else iter([listener()])
        ran = distilled(subject, where, device=device, callbacks=callbacks, smoke=2)
    assert ran.error is None and called == [1, 2], (
        f"on_step_end was called for {called}; expected [1, 2]: {ran.error!r}"
    )
