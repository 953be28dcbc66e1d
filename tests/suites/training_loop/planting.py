"""Tries the claims of the suite on the correct loop, and on copies of it with a mutant of the contract."""

import importlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import Phase

from pv.contract.load import load_file
from pv.contract.model import Contract, Edit, Falsifier, Swap
from pv.contract.suites import suites
from pv.instrument.swap import swap
from pv.source.patch import patch
from pv.suites.training_loop import loop, network
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.job import Job, Report
from tests.suites.trying import runnable


@cache
def contract() -> Contract:
    suite, problems = load_file(suites()["training-loop"])
    assert suite is not None, problems
    return suite


@cache
def correct() -> Bench:
    """Return the bench of the correct loop; tests share its runs."""
    return Bench(loop.Loop())


def by_id(claim: str) -> Falsifier:
    (falsifier,) = (candidate for candidate in contract().falsifiers if candidate.id == claim)
    return falsifier


@cache
def _test(claim: str) -> Callable[..., None]:
    """Return the test of a claim, with the number of examples of the contract; the first counterexample is enough."""
    return runnable(by_id(claim), by_id(claim).examples, Phase.explicit, Phase.generate)


def attack(claim: str, bench: Bench) -> None:
    _test(claim)(bench=bench)


@cache
def planted(mutant: str) -> Bench:
    """Return the bench of the loop with a mutant in it; tests share its runs."""
    change = contract().mutant(mutant).change
    with pytest.MonkeyPatch.context() as patched:  # while the loop imports the network
        for original in (network, loop):
            module = _copy(original, change)
            patched.setitem(sys.modules, original.__name__, module)
    return Bench(module.Loop())


def _copy(original: ModuleType, change: Edit | Swap) -> ModuleType:
    """Return a copy of a module, with the change if it is the one that it is about."""
    file, module = str(original.__file__), ModuleType(original.__name__)
    source = Path(file).read_text(encoding="utf-8")
    if isinstance(change, Edit) and change.function.module == original.__name__:
        source = patch(source, change.function.attribute, change.find, change.replace)
    exec(compile(source, file, "exec"), module.__dict__)
    if isinstance(change, Swap) and change.object.module == original.__name__:
        with_ = change.replacement
        swap(module, change.object.attribute, getattr(importlib.import_module(with_.module), with_.attribute))
    return module


def loop_of(change: Any = lambda job: job, after: Any = lambda job, report: None, **attributes: object) -> Any:
    """Return a loop that is correct but for a change of its jobs, or for what is done with a report `after` the run."""

    def run(self: loop.Loop, job: Job) -> Report:
        report = loop.Loop.run(self, change(job))
        after(job, report)
        return report

    return type("Changed", (loop.Loop,), {"run": run, **attributes})
