"""Tries the claims of a suite on a subject."""

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

from hypothesis import HealthCheck, Phase, settings

from pv.contract.load import load_file
from pv.contract.model import Falsifier
from pv.contract.suites import suites
from pv.pytest_plugin.suites import leave_out_skipped


def runnable(claim: Falsifier, examples: int, *phases: Phase) -> Callable[..., None]:
    """Return the test of a claim, with `examples` examples."""
    assert claim.test is not None
    module = importlib.import_module(claim.test.file.removesuffix(".py").replace("/", "."))
    test: Callable[..., None] = getattr(module, claim.test.name)
    few = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=phases,
        suppress_health_check=[HealthCheck.too_slow],  # a busy machine draws slowly, too
    )
    return leave_out_skipped(few(test)) if hasattr(test, "hypothesis") else test


class Trying:
    """The claims of a suite, each tried on a few examples."""

    def __init__(self, name: str, examples: int = 8) -> None:
        suite, _ = load_file(suites()[name])
        assert suite is not None
        package = f"pv.suites.{name.replace('-', '_')}"
        self.bench = importlib.import_module(f"{package}.suite").Bench
        self.tests = {claim.id: runnable(claim, examples, Phase.generate) for claim in suite.falsifiers}
        self.needs = {claim.id: tuple(claim.options["needs"]) for claim in suite.falsifiers}

    def wrong(self, make: Any) -> dict[str, str]:
        """Return the messages of the claims that fail, and "" for those that are not claimed."""
        bench, messages = self.bench(make), {}
        for id_, test in self.tests.items():
            if bench.missing(id_, self.needs[id_]):
                messages[id_] = ""
                continue
            try:
                test(bench=bench)
            except AssertionError as error:
                messages[id_] = str(error)
        return messages


@cache
def trying_of(name: str) -> Trying:
    """Return the claims of a suite; Hypothesis allows settings only once on a test."""
    return Trying(name, 4 if name == "optimizer" else 8)
