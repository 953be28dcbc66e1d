"""Which claims run again after which change: one validation of the project of benchmarks/reuse.py fills the store."""

import importlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pv
from pv.commands.why import why
from pv.results.reuse import cache
from pv.results.reuse.dependencies import SETTLED_NS
from pv.source.project import find_project

OF_PRICE = "PLAIN DECORATED CLASSES LAZY STATE ASYNC NAMES SPACE TEXT CONSTS WARNED LOADER OWN_NAMES"
MODELS, QUOTED = "CLICK MISSING MODEL", "LOADER TEXT WARNED"
SEARCHED = "ENTRY EXTRA GLOBBED PLUGINS REGISTERED SIBLING VENDOR WALKED"
CHANGES = {
    "ALL": (
        "constant, default, parameter, import, re-export, patch at import, shadowing package of a subject, "
        "shadowing module of the library, folder with the name of a library, variable"
    ),
    "OWN_NAMES": "comment, layout, unused helper",
    "": (
        "global after a function, clause: rule, data that is not read, another module on the path, "
        "unrelated document, new text in the root, new hidden file, new module that nothing imports"
    ),
    QUOTED: "line of a comment, source read by a loader",
    f"{QUOTED} CONSTS OWN_NAMES SCRIPT_DOCS": "docstring, docstring of a module",
    f"{QUOTED} CONSTS": "docstring that is read, constant of code that does not run",
    "SCRIPT_DOCS": "docstring that a child reads",
    MODELS: "docstring of a model, docstring of a command, name of __getattr__",
    OF_PRICE: "constant of an unused helper",
    "MODULE OWN_NAMES PLAIN": "body",
    "COMMAND FORKED OWN_NAMES PICKLE PLAIN SCRIPT SPACE SPAWNED THREAD": "body that many call",
    "CLASSES": "body of a method, base class, attribute of a base class",
    "STATE": "body of what was patched in",
    "DECORATED": "body of a decorator, decorator removed, cache removed",
    "ASYNC": "no generator",
    "NAMES": "value behind a star import",
    SEARCHED: "registered name",
    "MODULE": "block of __main__",
    "PLAIN": "body of a test, clause: limit",
    "SIZE": "size",
    "VENDOR": "module beside, shadowing module on the path, shadowing package on the path, shadowing extension module",
    "LAZY": "module removed, optional module, optional package, part of an optional package",
    "GLOBBED OWN_NAMES PLUGINS WALKED": "new plugin",
    "FOLDERS": "new folder",
    "OPTIONAL": "optional data",
    "EXISTS": "switch in a new folder",
    "EXTRA": "optional module of another package",
    f"{MODELS} ENTRY": "new egg-info",
}
"""Changes by the claims that they reach, beside SHELL: its program leaves no log, so every file counts for it."""
RUN_AGAIN = {change: claims for claims, changes in CHANGES.items() for change in changes.split(", ")}
OUTSIDE = {"data outside the project": "OUTSIDE", "module outside the project": "SIBLING", "target of a link": "LINK"}
READ = {
    "text that is executed": {"TEXT"},
    "entry point": {"ENTRY"},
    "hidden file": {"NESTED_HIDDEN"},
    "data of a shell": {"SHELL"},
    "data that native code reads": {"SQL"},
    "data removed": {"JSON"},
}
"""The kernel does not tell who opened a file, so it counts also for claims that ran at the same time."""


@pytest.fixture(scope="module")
def benchmark() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
        yield importlib.import_module("reuse")


@pytest.fixture(scope="module")
def shop(benchmark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("shop") / "project"
    benchmark.write(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(cache, "environment", cache.environment)  # the benchmark replaces it
        benchmark.warm(folder)
        yield folder


def running(benchmark: Any, shop: Path, name: str) -> set[str]:
    """Return the claims that would run after a change, which is undone."""
    (change,) = (each for each in benchmark.CHANGES if each.name == name)
    with benchmark.changed(shop, change):
        found: set[str] = set() if benchmark.is_whole(shop) else benchmark.running(shop)
    assert benchmark.running(shop) == set()
    return found


@pytest.mark.parametrize("name", [*RUN_AGAIN, *OUTSIDE])
def test_change_runs_claims_that_it_reaches(benchmark: Any, shop: Path, name: str) -> None:
    claims = {claim for each in benchmark.CLAIMS.values() for claim in each}
    reached = {OUTSIDE[name]} if name in OUTSIDE else {"SHELL", *RUN_AGAIN[name].split()}
    assert running(benchmark, shop, name) == (claims if "ALL" in reached else reached)


@pytest.mark.parametrize("name", READ)
def test_data_that_was_opened_counts(benchmark: Any, shop: Path, name: str) -> None:
    assert running(benchmark, shop, name) >= READ[name]


def test_shadowing_compiled_module_runs_what_searched_for_it(benchmark: Any, shop: Path) -> None:
    change, counts = benchmark.Change("shadowing", {"override/thing.pyc": ""}), benchmark.Counts()
    with benchmark.changed(shop, change):
        assert benchmark.running(shop) == {"SHELL", "VENDOR"}
    benchmark.tried(shop, change, counts, verbose=False)
    assert (counts.changes, counts.stale) == (1, 0)


def test_no_reused_result_is_stale_after_a_change_of_each_kind(benchmark: Any, shop: Path) -> None:
    counts = benchmark.Counts()
    for change in (each for each in benchmark.CHANGES if each.name in benchmark.KINDS):
        benchmark.tried(shop, change, counts, verbose=False)
    assert (counts.changes, counts.stale) == (19, 0)
    assert {*benchmark.KINDS} <= {*RUN_AGAIN, *OUTSIDE, *READ}, "each runs something"


def test_data_counts_for_its_reader_alone_where_one_claim_runs_at_a_time(
    benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "project"
    benchmark.write(folder)
    time.sleep(2 * SETTLED_NS / 1e9)  # else pv itself reads them again between the claims
    monkeypatch.chdir(folder)
    claims = ["SQL", "STATE", "CONSTS"]
    pv.validate(project=find_project(folder), mutants=False, jobs=1, only=claims)
    (folder / "assets/rows.db").write_text("other")
    found = {each.claim: each.reasons for each in why(claims, find_project(folder))}
    assert found == {"SQL": ("assets/rows.db",), "STATE": (), "CONSTS": ()}


def test_variable_is_the_reason(benchmark: Any, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_MODE", "fast")
    assert why(["PLAIN"], find_project(shop))[0].reasons == ("another variable SHOP_MODE",)
