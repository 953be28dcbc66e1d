"""Turn every claim of a conformance suite into a test of pytest, as `parametrize_with_checks` of scikit-learn does."""

import functools
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest

from pv.contract.load import load_file
from pv.contract.model import Binding, Falsifier
from pv.contract.suites import adapter_suites
from pv.contract.wording import did_you_mean
from pv.engines.failures import FailureClassifier, describe_error
from pv.engines.suite.engine import bench_of, refuse_unknown
from pv.errors import NotClaimed, PvError, UsageError
from pv.pytest_plugin.arguments import one_thread
from pv.suites.bench import SuiteBench

Test = Callable[..., None]


@dataclass(frozen=True, slots=True)
class SuiteClaim:
    """A claim of a suite about one trainer; calling it tries the claim.

    Attributes:
        claim: The claim.
        all_claims: All claims of the suite by id.
        make_bench: Returns the bench of the trainer, which caches the trainer's runs.
        held: Whether each tried claim held, by its id. All claims about the trainer share this mapping.
    """

    claim: Falsifier
    all_claims: Mapping[str, Falsifier]
    make_bench: Callable[[], SuiteBench]
    held: dict[str, bool]

    def __call__(self) -> None:
        """Try the claim. Raise AssertionError if it does not hold; skip the test if the trainer does not claim it.

        Fail the test if a premise of the claim does not hold, or if the simplest job of the trainer raises.
        """
        with one_thread():  # a forked process lacks the OpenMP threads of its parent, and would wait for them forever
            self._try(self.make_bench())

    def _try(self, bench: SuiteBench) -> None:
        needs = tuple(self.claim.options["needs"])
        if reason := bench.missing(self.claim.id, needs):
            pytest.skip(f"not claimed: {reason}")
        _warm_up(bench, needs)
        for premise in self.claim.options.get("premises", ()):
            self._require(bench, premise)
        self._attack(bench, self.claim)

    def _attack(self, bench: object, claim: Falsifier) -> None:
        """Run the test of a claim and store whether the claim held."""
        try:
            _load_test(claim)(bench=bench)
        except NotClaimed as error:
            pytest.skip(f"not claimed: {error}")
        except AssertionError:
            self.held[claim.id] = False
            raise
        self.held[claim.id] = True

    def _require(self, bench: SuiteBench, premise: str) -> None:
        """Skip or fail the test if a premise does not hold. A premise that needs a missing feature is not required."""
        reason = bench.missing(premise, tuple(self.all_claims[premise].options["needs"]))
        if reason and premise not in bench.not_claimed:  # the reason is a missing feature
            return
        if premise not in self.held:
            with suppress(AssertionError):
                self._attack(bench, self.all_claims[premise])
        if not self.held[premise]:
            if reason:
                pytest.skip(f"not claimed: its premise {premise} is not claimed: {reason}")
            pytest.fail(f"vacuous: its premise {premise} does not hold", pytrace=False)


def suite(name: str, *, trainer: object) -> Callable[[Test], Test]:
    """Return a decorator that parametrizes a test with the claims of a suite, as its argument `claim`.

    The claims run in this process and share the runs of the trainer.

    Args:
        name: The name of the suite.
        trainer: An adapter, or a class that the suite makes an adapter of.

    Raises:
        UsageError: The suite is unknown.

    >>> @pv.suite("training-loop", trainer=MyLoop)
    ... def test_my_loop(claim):
    ...     claim()
    """
    files = adapter_suites()
    if name not in files:
        raise UsageError(f"unknown suite {name!r}; {did_you_mean(name, files)}")
    contract, _ = load_file(files[name])
    assert contract is not None
    claims_by_id = {claim.id: claim for claim in contract.falsifiers}

    @functools.cache
    def make_bench() -> SuiteBench:
        # All claims of a suite name the same function that makes a bench.
        bench: SuiteBench = _import_function(bench_of(contract.falsifiers[0]))(trainer, None)
        refuse_unknown(bench.not_claimed, tuple(claims_by_id))
        return bench

    held: dict[str, bool] = {}
    claims = [
        pytest.param(SuiteClaim(claim, claims_by_id, make_bench, held), id=claim.id) for claim in contract.falsifiers
    ]
    decorator: Callable[[Test], Test] = pytest.mark.parametrize("claim", claims)
    return decorator


def _warm_up(bench: SuiteBench, needs: tuple[str, ...]) -> None:
    """Run the simplest job of a bench. If the job raises, fail the test as undecided: no claim can be tried."""
    if not hasattr(bench, "warm_up"):
        return
    try:
        bench.warm_up(needs)
    except PvError as error:
        pytest.fail(f"undecided: {error}", pytrace=False)
    except Exception as error:
        frame = FailureClassifier(Path.cwd(), ()).user_frame(error)
        place = f"\nat {frame}" if frame else ""
        pytest.fail(f"undecided: {bench.warm_up_failure}: {describe_error(error)}{place}", pytrace=False)


def _load_test(claim: Falsifier) -> Test:
    """Return the test function of a claim; a Hypothesis test draws as many examples as the contract states."""
    assert claim.test is not None
    return _with_examples(claim.test, claim.examples)


@functools.cache  # Hypothesis allows `settings` only once on a test
def _with_examples(bound: Binding, examples: int) -> Test:
    from hypothesis import HealthCheck, settings

    test: Test = _import_function(bound)
    if not hasattr(test, "hypothesis"):
        return test
    drawn: Test = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        report_multiple_bugs=False,  # raise one AssertionError, not an exception group
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )(test)
    return leave_out_skipped(drawn)


def leave_out_skipped(test: Test) -> Test:
    """Return a Hypothesis test in which a skip leaves out one example, as in `pv.engines.property`.

    Hypothesis itself ends a test at the first skip. Here, the test is skipped if all examples are skipped, and emits a
    warning if only some are.

    Args:
        test: A test that `hypothesis.given` made.

    Returns:
        A function with the arguments of the test.
    """
    from pv.engines.property.attack import MOST_SKIPS

    handle: Any = vars(test)["hypothesis"]
    # Several benches share a test: get the original function if an earlier call has already wrapped it.
    inner = getattr(handle.inner_test, "original", handle.inner_test)
    tried: list[bool] = []
    skipped: list[str] = []

    @functools.wraps(inner)  # Hypothesis derives its examples from the name and the source of the function
    def counted(*args: object, **arguments: object) -> None:
        try:
            inner(*args, **arguments)
        except SkipTest as error:
            skipped.append(str(error))
            # Many skips at the beginning: probably all examples are skipped, and drawing the rest would waste time.
            if not tried and len(skipped) >= MOST_SKIPS:
                raise
        else:
            tried.append(True)

    def attack(**arguments: object) -> None:
        tried.clear()
        skipped.clear()
        test(**arguments)
        if skipped and not tried:
            raise SkipTest(skipped[0])
        if skipped:
            text = f"{len(skipped)} of {len(skipped) + len(tried)} drawn examples were skipped: {skipped[0]}"
            warnings.warn(pytest.PytestWarning(text), stacklevel=2)

    vars(counted)["original"] = inner
    handle.inner_test = counted
    return attack


def _import_function(bound: Binding) -> Any:
    """Return the function that `path/to/module.py::name` in a contract refers to."""
    return getattr(import_module(bound.file.removesuffix(".py").replace("/", ".")), bound.name)
