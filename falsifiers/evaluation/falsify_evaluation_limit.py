"""An attack on how much of the held-back text a distillation evaluates. The subject is `pipeline.distill`."""

from __future__ import annotations

from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.distill_smoke.cases import finished, place


@given(most=st.sampled_from([16, 30, 31, 45, 46, 2**16]), held=st.integers(20, 70))
def falsify_evaluation_has_a_limit(subject: Any, most: int, held: int) -> None:
    """At most so many bytes of it, in whole sequences of 16 that share a byte; fewer if it has fewer."""
    with place() as where, mock.patch.object(subject, "EVALUATED_BYTES", most):
        where.text.write_bytes(bytes(97 + k * k % 26 for k in range(10 * held)))
        ran = finished(subject, where, max_steps=1, traced=False)
    expected = (min(most, held) - 1) // 15 * 15
    seen = {name: total.count for name, total in ran.result.held_back.items()}
    assert seen == {"cross_entropy": expected, "kl": expected}, (
        f"of {held} bytes held back, of which at most {most} count, {seen} were scored; expected {expected}"
    )
