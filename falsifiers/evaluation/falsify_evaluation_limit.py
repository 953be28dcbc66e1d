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
LENGTH = 2**8 + 1
"""256 such sequences, of 256 bytes each that are predicted, need one byte more than the limit."""


@given(held=st.sampled_from([LENGTH, LIMIT, LIMIT + 1]))
def falsify_evaluation_has_a_limit(subject: Any, device: str, held: int) -> None:
    """At most its first 2^16 bytes, in whole sequences that share a byte; all whole sequences of a shorter text."""
    text = bytes(97 + k * k % 26 for k in range(1000)) * (held // 100 + 1)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "long").write_bytes(text[: 10 * held])
        places = {"data": directory / "long", "out": directory / "out", "device": device}
        result = run(subject, small(directory, length=LENGTH, batch_size=16, max_steps=1, **places))
    expected = (min(LIMIT, held) - 1) // (LENGTH - 1) * (LENGTH - 1)
    seen = {name: total.count for name, total in result.held_back.items()}
    assert seen == {"cross_entropy": expected, "kl": expected}, (
        f"of {held} bytes held back, of which the first {LIMIT} count, {seen} were scored; expected {expected}"
    )
