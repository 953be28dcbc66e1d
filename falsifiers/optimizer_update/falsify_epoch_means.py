"""Attacks on the loss of an epoch. The subject is that of `falsifiers.callbacks.real_run`."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from falsifiers.callbacks.plain_loop import ByHand, RealRun, Text, assert_same_fields, texts


@given(text=texts())
def falsify_epoch_means_are_over_tokens(subject: Any, device: str, text: Text) -> None:
    seen, expected = RealRun(subject, text, device), ByHand(text, device)
    ends = [[m for m in side.moments if m.event == "on_epoch_end"] for side in (seen, expected)]
    assert_same_fields(*ends, ("loss", "epoch", "learning_rate", "best_loss", "elapsed_s", "tokens"))
