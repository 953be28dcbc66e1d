"""A predicate is refuted at a point by an assertion that fails, by an exception, or by an answer that is not true."""

from pathlib import Path

import pytest

from pv.engines.blame import Blame
from pv.engines.harness.point import Claim, arguments


def claim(predicate) -> Claim:
    return Claim(predicate, "subject", Blame(Path(__file__).parent, []))


def fails(subject, n):
    assert n == 1, f"{n} is not 1"


def divides(subject, n):
    return 1 // n > 0


def test_predicate_holds_where_it_is_true_or_returns_nothing() -> None:
    assert claim(fails).refutation({"n": 1}) is None
    assert claim(divides).refutation({"n": 1}) is None
    assert claim(fails).holds({"n": 1})
    assert not claim(fails).holds({"n": 2})


def test_failed_assertion_is_recorded_with_its_point() -> None:
    record = claim(fails).refutation({"n": 2})
    assert record is not None
    assert (record["status"], record["arguments"], record["exact"]) == ("refuted", {"n": 2}, True)
    assert record["error"].startswith("AssertionError: 2 is not 1")


def test_answer_that_is_not_true_refutes() -> None:
    record = claim(divides).refutation({"n": 2})
    assert record is not None
    assert (record["status"], record["error"]) == ("refuted", "the predicate answered False")


def pairs(subject, n):
    return (n == 1, "n is 1")


def counts(subject, n):
    return n


def waits(subject, n):
    yield n == 1


@pytest.mark.parametrize(("predicate", "kind"), [(pairs, "tuple"), (counts, "int"), (waits, "generator")])
def test_answer_that_is_neither_true_nor_false_is_an_error(predicate, kind: str) -> None:
    record = claim(predicate).refutation({"n": 0})
    assert record is not None
    expected = (
        f"TypeError: the predicate returned a value of type {kind}: return True, False or None, or assert the claim"
    )
    assert (record["status"], record["error"]) == ("error", expected)
    with pytest.raises(TypeError):
        claim(predicate).holds({"n": 0})


def test_boolean_of_numpy_is_an_answer() -> None:
    numpy = pytest.importorskip("numpy")
    assert claim(lambda subject, n: numpy.int64(n) == 1).refutation({"n": 1}) is None
    assert claim(lambda subject, n: numpy.int64(n) == 1).holds({"n": 2}) is False


def test_exception_of_the_predicate_is_an_error_and_is_raised_by_holds() -> None:
    record = claim(divides).refutation({"n": 0})
    assert record is not None
    assert record["status"] == "error"
    with pytest.raises(ZeroDivisionError):
        claim(divides).holds({"n": 0})


def test_arguments_of_a_point_are_json() -> None:
    assert arguments({"n": 1 << 60, "xs": [True]}) == {"n": {"$int": str(1 << 60)}, "xs": [True]}
