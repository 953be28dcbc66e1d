"""Which claims run again after which change: one validation of the project of benchmarks/reuse.py fills the store."""

import importlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import pv
from pv.commands.explain import reuse_statuses
from pv.results.reuse import cache
from pv.results.reuse.dependencies import SETTLED_NS
from pv.source.project import find_project

TABLE = yaml.safe_load(Path(__file__).with_name("reuse_changes.yaml").read_text(encoding="utf-8"))
RUN_AGAIN = {change: claims.split() for claims, changes in TABLE["reached"].items() for change in changes}
OUTSIDE, OPENED = TABLE["outside"], TABLE["opened"]


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
        assert benchmark.running(folder) == set(), "every change was undone"


def running(benchmark: Any, shop: Path, name: str) -> set[str]:
    """Return the claims that would run after a change, which is undone."""
    (change,) = (change for change in benchmark.CHANGES if change.name == name)
    with benchmark.changed(shop, change):
        claims: set[str] = set() if benchmark.is_whole(shop) else benchmark.running(shop)
        return claims


@pytest.mark.parametrize("name", [*RUN_AGAIN, *OUTSIDE])
def test_change_runs_claims_that_it_reaches(benchmark: Any, shop: Path, name: str) -> None:
    claims = {claim for ids in benchmark.CLAIMS.values() for claim in ids}
    reached = {OUTSIDE[name]} if name in OUTSIDE else {"SHELL", *RUN_AGAIN[name]}
    assert running(benchmark, shop, name) == (claims if "ALL" in reached else reached)


@pytest.mark.parametrize("name", OPENED)
def test_data_that_was_opened_counts(benchmark: Any, shop: Path, name: str) -> None:
    assert OPENED[name] in running(benchmark, shop, name)


def test_shadowing_compiled_module_runs_claims_that_searched_for_it(benchmark: Any, shop: Path) -> None:
    change, counts = benchmark.Change("shadowing", {"override/thing.pyc": ""}), benchmark.Counts()
    with benchmark.changed(shop, change):
        assert benchmark.running(shop) == {"SHELL", "VENDOR"}
    benchmark.tried(shop, change, counts, verbose=False)
    assert (counts.changes, counts.stale) == (1, 0)


def test_no_reused_result_is_stale_after_a_change_of_each_kind(benchmark: Any, shop: Path) -> None:
    counts = benchmark.Counts()
    for change in (change for change in benchmark.CHANGES if change.name in benchmark.KINDS):
        benchmark.tried(shop, change, counts, verbose=False)
    assert (counts.changes, counts.stale) == (19, 0)
    assert {*benchmark.KINDS} <= {*RUN_AGAIN, *OUTSIDE, *OPENED}, "each runs something"


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
    reasons = {status.claim: status.reasons for status in reuse_statuses(claims, find_project(folder))}
    assert reasons == {"SQL": ("assets/rows.db",), "STATE": (), "CONSTS": ()}


def test_variable_is_the_reason(benchmark: Any, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_MODE", "fast")
    assert reuse_statuses(["PLAIN"], find_project(shop))[0].reasons == ("another variable SHOP_MODE",)
