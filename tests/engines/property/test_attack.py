"""The attack with a Hypothesis test or a plain function, in this process."""

import contextlib
import functools
import re
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from pv.engines.failures import FailureClassifier
from pv.engines.property import attack as engine
from pv.engines.stream import Stream
from tests.engines import asserting


class Records(Stream):
    """A stream that keeps its records."""

    def __init__(self) -> None:
        super().__init__(-1)
        self.kept: list[dict[str, Any]] = []

    def put(self, kind: str, **fields: Any) -> None:
        self.kept.append({"kind": kind, **fields})


def attack(test: Any, *, fixed: dict[str, Any] | None = None, **options: Any) -> tuple[dict[str, Any], Records]:
    records: Any = Records()
    wanted = engine.Settings(**{"examples": 50, "seed": 1, **options})
    return engine.attack(test, fixed or {}, wanted, FailureClassifier(Path(__file__).parent, []), records), records


def below(limit: int) -> Any:
    @settings(max_examples=50, database=None, deadline=None, print_blob=True)
    @given(n=st.integers(0, 1000))
    def falsify(n: int) -> None:
        assert n < limit, f"{n} is too large"

    return falsify


def test_claim_holds_or_its_counterexample_is_streamed_and_shrunk() -> None:
    record, records = attack(below(1001))
    assert (record["status"], record["valid"], record["asked"], records.kept) == ("held", 50, 50, [])
    unset = given(n=st.integers(0, 1000))(below(1001).hypothesis.inner_test)
    assert attack(engine.with_examples(unset, 7))[0]["valid"] == 7
    record, records = attack(below(10))
    assert (record["status"], record["arguments"], record["shrunk"]) == ("refuted", {"n": 10}, True)
    assert records.kept[0]["status"] == "refuted"
    assert record["error"].startswith("AssertionError: 10 is too large")


def test_explicit_example_is_tried_with_the_profile_of_pv() -> None:
    profile = settings.get_current_profile_name()
    engine.load_profile(5, shrink=False)
    try:
        record, _ = attack(example(n=10)(given(n=st.integers(0, 9))(below(10).hypothesis.inner_test)))
    finally:
        settings.load_profile(profile)
    assert (record["status"], record.get("arguments")) == ("refuted", {"n": 10})


def test_same_seed_finds_the_same_first_counterexample() -> None:
    first, second = (attack(below(500), stop_at_first=True, seed=7)[0]["arguments"] for _ in range(2))
    assert first == second


def tolerant(test: Any) -> Any:
    @functools.wraps(test)
    def run(*args: Any, **arguments: Any) -> None:
        with contextlib.suppress(Exception):
            test(*args, **arguments)

    return run


@settings(max_examples=50, database=None, deadline=None)
@given(n=st.integers(0, 1000))
def broken(n: int) -> None:
    raise LookupError("a mistake of the test")


def compares(n: int) -> bool:
    return n == 1


HIDDEN = r"\Aan example failed, but the test passed: .*{}$".format
RETURNED = r"\ATypeError: the test returned a value of type bool: assert the claim"


@pytest.mark.parametrize(
    ("test", "fixed", "says"),
    [
        (tolerant(below(10)), {}, HIDDEN("AssertionError: 10 is too large")),
        (tolerant(broken), {}, HIDDEN("LookupError: a mistake of the test")),
        (example(n=1001).xfail()(below(1001)), {}, HIDDEN("AssertionError: 1001 is too large")),
        (example(n=0).xfail()(below(1001)), {}, "no exception was raised"),
        (given(n=st.integers())(compares), {}, RETURNED),
        (compares, {"n": 1}, RETURNED),
    ],
)
def test_failure_that_the_test_hides_or_misses_is_an_error(test: Any, fixed: dict[str, Any], says: str) -> None:
    record, _ = attack(test, fixed=fixed)
    assert record["status"] == "error" and re.search(says, record["detail"], re.MULTILINE), record


def test_plain_function_is_one_example() -> None:
    def falsify(subject: int) -> None:
        assert subject == 2

    record, _ = attack(falsify, fixed={"subject": 2})
    assert (record["status"], record["valid"], record["asked"]) == ("held", 1, 1)
    assert attack(falsify, fixed={"subject": 3})[0]["status"] == "refuted"
    assert attack(falsify, replay="{}")[0]["status"] == "error"


def test_test_without_a_valid_example_is_not_held() -> None:
    @settings(max_examples=50, database=None, deadline=None)
    @given(n=st.integers())
    def falsify(n: int) -> None:
        assume(False)

    record, _ = attack(falsify)
    assert (record["status"], record["valid"]) == ("no examples", 0)


def test_an_example_that_cannot_be_drawn_is_not_replayed_and_a_replay_has_one_example() -> None:
    first, _ = attack(below(10))
    replay = f"{first['hypothesis']}:{first['blob']}"
    assert attack(below(10), replay=replay)[0].items() >= {"status": "refuted", "valid": 1, "asked": 1}.items()
    other, _ = attack(given(n=st.tuples(*[st.integers(0, 9)] * 5))(below(10).hypothesis.inner_test), replay=replay)
    assert (other["status"], other["detail"]) == ("error", engine.OTHER)


def test_health_check_of_other_than_rejections_is_an_error() -> None:
    @settings(max_examples=50, database=None, deadline=None)
    @given(n=st.integers())
    def nested(n: int) -> None:
        below(1001)()

    record, _ = attack(nested)
    assert record["status"] == "error" and record["detail"].startswith("Nesting @given"), record


def test_the_end_of_what_the_failing_example_printed_is_kept() -> None:
    def falsify() -> None:
        print("x" * 30_000)
        print("the last line")
        raise AssertionError

    assert attack(falsify)[0]["printed"].endswith("x\nthe last line\n")


def test_streamed_counterexample_has_the_output_of_its_own_example(capsys: Any) -> None:
    def falsify(n: int) -> None:
        print(n)
        assert n < 10

    _, records = attack(given(n=st.integers(0, 1000))(falsify))
    assert records.kept[0]["printed"] == f"{records.kept[0]['arguments']['n']}\n"


def test_labelled_draws_and_the_output_of_the_failing_example_are_shown(capsys: Any) -> None:
    record, _ = attack(asserting.draws)
    assert record["arguments"] == {"offset": 0, "n": 10, "draw 2": 0, "n (3)": 7}
    assert record["exact"] is False
    assert record["blob"]
    assert record["printed"] == "tried 10\n"
    assert record["error"].splitlines() == [
        "AssertionError: assert n + offset < 10 + 0 * m",
        "  n + offset = 10",
        "  10 + 0 * m = 10",
        "  n = 10",
        "  offset = 0",
        "  0 * m = 0",
        "  m = 0",
    ]
    assert "tried 10" in capsys.readouterr().out


def skipping(reason: Any, limit: int = 1001) -> Any:
    """Return a test that skips the numbers for which there is a reason, and fails from a limit on."""

    @settings(max_examples=50, database=None, deadline=None)
    @given(n=st.integers(0, 1000))
    def falsify(n: int) -> None:
        if why := reason(n):
            raise SkipTest(why)
        assert n < limit, f"{n} is too large"

    return falsify


def test_skipped_example_leaves_the_others() -> None:
    def odd(n: int) -> str:
        return "an odd number" if n % 2 else ""

    record, _ = attack(skipping(odd), skips_examples=True)
    assert record["status"] == "held" and 0 < record["valid"] < 50
    assert record["detail"] == f"{50 - record['valid']} of 50 drawn examples were skipped: an odd number"
    assert attack(skipping(odd))[0]["status"] == "skipped"
    record, _ = attack(skipping(odd, limit=500), skips_examples=True)
    assert (record["status"], record["arguments"]) == ("refuted", {"n": 500})


def test_claim_whose_examples_are_all_skipped_is_skipped_after_a_few() -> None:
    called: list[int] = []
    record, _ = attack(skipping(lambda n: called.append(n) or "no number is odd enough"), skips_examples=True)
    assert (record["status"], record["valid"], len(called)) == ("skipped", 0, engine.MOST_SKIPS)
    assert record["detail"] == "no number is odd enough"
