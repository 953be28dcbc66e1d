"""What is handed to CrossHair and read from its words; what follows where two engines try one harness."""

import importlib.util
from itertools import product
from pathlib import Path
from typing import Any

import numpy
import pytest

from pv.contract.harness_bounds import parse_box
from pv.engines.failures import FailureClassifier
from pv.engines.harness.point import Claim
from pv.engines.harness.prove import combine, symbolic
from pv.engines.harness.symbolic import parse_counterexample
from pv.engines.trial import TrialStatus

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
    record = combine({"a": {"status": one, "detail": "A"}, "b": {"status": other, "detail": "B"}})
    assert record["status"] in expected(one, other)
    if record["status"] not in REFUTED:
        assert "A; B" in record["detail"]


SPACE = parse_box({"a": "0..9", "b": "bool", "c": "list of int 0..3, at most 2"}, "a > 0 or\n b")


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("false when calling harness(5, True, [1, 2]) (which returns False)", {"a": 5, "b": True, "c": [1, 2]}),
        ("ValueError: no (5) when calling harness(5, b = True, c = [])", {"a": 5, "b": True, "c": []}),
        ("Error: when calling harness(1) is no when calling harness(0, False, [3])", {"a": 0, "b": False, "c": [3]}),
    ],
)
def test_a_counterexample_is_read_from_text(text: str, point: dict[str, object]) -> None:
    assert parse_counterexample(text, SPACE) == point


@pytest.mark.parametrize("text", ["NotDeterministic", "when calling harness(", "when calling harness(f(1), True, [])"])
def test_text_without_a_point_gives_no_counterexample(text: str) -> None:
    assert parse_counterexample(text, SPACE) is None


@pytest.mark.parametrize(
    ("messages", "seconds", "status"),
    [
        ([("CANNOT_CONFIRM", "Not confirmed.")], 3.0, "inconclusive"),
        ([("CANNOT_CONFIRM", "Not confirmed.")], 59.0, "timeout"),
        ([("CONFIRMED", "Confirmed."), ("CANNOT_CONFIRM", "Not confirmed.")], 3.0, "inconclusive"),
        ([("SYNTAX_ERR", "no")], 0.1, "error"),
        ([("PRE_UNSAT", "no path")], 0.1, "inconclusive"),  # SPACE is not empty
    ],
)
def test_all_have_to_be_confirmed(monkeypatch: pytest.MonkeyPatch, messages: Any, seconds: float, status: str) -> None:
    # The clock is read before and after the analysis.
    times = iter([0.0, seconds])
    monkeypatch.setattr(symbolic, "_analyse", lambda *_: (messages, 12, True))
    monkeypatch.setattr(symbolic.time, "process_time", lambda: next(times))
    nothing: Any = None
    assert symbolic.prove(nothing, SPACE, 60.0, nothing)["status"] == status


def test_a_predicate_gets_copies_of_lists_and_may_return_a_bool_of_numpy() -> None:
    point, failures = {"c": [1, 2]}, FailureClassifier(Path(), [])
    assert Claim(lambda _, c: c.pop() == 2, None, failures).failure(point) is None and point == {"c": [1, 2]}
    for value in (True, False):
        assert (Claim(lambda _, c, value=value: numpy.bool_(value), None, failures).failure(point) is None) is value


def test_missing_crosshair_is_skipped_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    nothing: Any = None
    record = symbolic.prove(nothing, SPACE, 60.0, nothing)
    assert record["status"] == "skipped"
    assert record["detail"] == "CrossHair is not installed; install the extra `symbolic` of pv-contracts"
