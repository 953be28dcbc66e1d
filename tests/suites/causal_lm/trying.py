"""Tries the claims of the suite on a model."""

import importlib
from functools import cache
from typing import Any

from pv.contract.load import load_file
from pv.contract.model import Contract
from pv.contract.suites import suites
from pv.suites.causal_lm.bench import Bench


@cache
def contract() -> Contract:
    found, problems = load_file(suites()["causal-lm"])
    assert found is not None, problems
    return found


def tried(factory: Any) -> tuple[dict[str, str], set[str]]:
    """Return the messages of the claims that fail, and the claims that are not made; premises are not looked at."""
    bench, failed, unclaimed = Bench(factory), {}, set()
    for claim in contract().falsifiers:
        assert claim.test is not None
        name, module = claim.id.removeprefix("CLM-"), claim.test.file.removesuffix(".py").replace("/", ".")
        if bench.missing(claim.id, tuple(claim.options["needs"])):
            unclaimed.add(name)
            continue
        try:
            getattr(importlib.import_module(module), claim.test.name)(bench)
        except AssertionError as error:
            failed[name] = str(error)
    return failed, unclaimed
