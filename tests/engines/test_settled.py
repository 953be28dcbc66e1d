"""What follows where two engines try one harness, for every pair of endings."""

from itertools import product

import pytest

from pv.engines.harness import settled
from pv.evidence import Ending

REFUTED = ("refuted", "raised")
ANSWERS = {"held": "holds", "barren": "empty", "refuted": "refuted", "raised": "refuted"}
SILENT = ("time limit", "unsettled", "skipped")


def expected(one: str, other: str) -> set[str]:
    """The endings that the pair may have."""
    pair = {one, other}
    broken = pair - set(ANSWERS) - set(SILENT)
    if broken:
        return broken
    if len({ANSWERS[ending] for ending in pair & set(ANSWERS)}) > 1:
        return {"broken"}
    return pair & set(REFUTED) or pair & set(SILENT) or pair


@pytest.mark.parametrize(("one", "other"), list(product([ending.value for ending in Ending], repeat=2)))
def test_broken_then_disagreement_then_a_counterexample_then_no_answer(one: str, other: str) -> None:
    found = settled({"a": {"ending": one, "detail": "A"}, "b": {"ending": other, "detail": "B"}})
    assert found["ending"] in expected(one, other)
    if found["ending"] not in REFUTED:
        assert "A; B" in found["detail"]
