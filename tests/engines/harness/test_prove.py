"""What follows where two engines try one harness, for every pair of endings."""

from itertools import product

import pytest

from pv.engines.harness.prove import settled
from pv.results.trial import TrialStatus

REFUTED = ("refuted", "raised")
ANSWERS = {"held": "holds", "no examples": "empty", "refuted": "refuted", "raised": "refuted"}
SILENT = ("timeout", "inconclusive", "skipped")


def expected(one: str, other: str) -> set[str]:
    """The endings that the pair may have."""
    pair = {one, other}
    broken = pair - set(ANSWERS) - set(SILENT)
    if broken:
        return broken
    if len({ANSWERS[status] for status in pair & set(ANSWERS)}) > 1:
        return {"error"}
    return pair & set(REFUTED) or pair & set(SILENT) or pair


@pytest.mark.parametrize(("one", "other"), list(product([status.value for status in TrialStatus], repeat=2)))
def test_broken_then_disagreement_then_a_counterexample_then_no_answer(one: str, other: str) -> None:
    found = settled({"a": {"status": one, "detail": "A"}, "b": {"status": other, "detail": "B"}})
    assert found["status"] in expected(one, other)
    if found["status"] not in REFUTED:
        assert "A; B" in found["detail"]
