"""An attack on how much of the held-back text a distillation evaluates.

The subject is `reference_trainer.pipeline.distill`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.small_runs import run, small

LIMIT = 2**16
CASES = [(257, 257), (LIMIT + 1, 257), (LIMIT + 1, 256)]
"""Bytes held back, and lengths: a byte above the limit completes a sequence of 257, a byte below ends one of 256."""


@given(case=st.sampled_from(CASES))
def falsify_evaluation_has_a_limit(subject: Any, device: str, case: tuple[int, int]) -> None:
    held, length = case
    text = bytes(97 + k * k % 26 for k in range(1000)) * (held // 100 + 1)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "long").write_bytes(text[: 10 * held])
        places = {"data": directory / "long", "out": directory / "out", "device": device}
        result = run(subject, small(directory, length=length, batch_size=16, max_steps=1, **places))
    expected = (min(LIMIT, held) - 1) // (length - 1) * (length - 1)
    seen = {name: total.count for name, total in result.held_back.items()}
    assert seen.keys() >= {"hard_loss", "kl_at_1"} and set(seen.values()) == {expected}, (
        f"of {held} bytes held back, of which the first {LIMIT} count, {seen} were scored; expected {expected}"
    )
