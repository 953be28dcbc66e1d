"""Tests of others have the same outcomes with and without the plugin, beside other plugins."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.processes import run_pytest
from tests.support.projects import Project

PLUGINS = ("pytest_asyncio", "pytest_cov", "pytest_mock", "random_order", "pytest_rerunfailures", "pytest_timeout")
for plugin in PLUGINS:
    pytest.importorskip(plugin)


def outcomes(*arguments: str) -> tuple[list[tuple[str, str, str]], str]:
    """Return file, name and outcome of each test in the order of their ends, and what pytest printed."""
    report = Path("report.xml")
    done = run_pytest("-p", "others_plugin", "--junitxml", str(report), "-o", "junit_family=xunit1", *arguments)
    assert report.exists(), done.stdout + done.stderr
    cases = list(ElementTree.parse(report).iter("testcase"))
    report.unlink()
    return [(case.get("file", ""), case.get("name", ""), _outcome(case)) for case in cases], done.stdout


def _outcome(case: ElementTree.Element) -> str:
    return " ".join(f"{part.tag}: {part.get('message', '')}" for part in case if part.tag != "properties") or "passed"


@pytest.mark.parametrize("options", ["--cov=shop --cov-report=", "-n 2 --dist worksteal --import-mode=importlib"])
def test_outcomes_of_others_are_equal(project: Project, monkeypatch, options: str) -> None:
    folder = project("beside")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    without, _ = outcomes("-p", "no:pv", *options.split())
    both, printed = outcomes(*options.split())
    theirs = [case for case in both if case[0].startswith("tests/")]
    ours = {name: outcome for file, name, outcome in both if not file.startswith("tests/")}
    lost, gained = sorted(set(without) - set(theirs)), sorted(set(theirs) - set(without))
    assert (lost, gained) == ([], []), f"without pv: {lost}\nwith pv: {gained}\n{printed}"
    assert len(theirs) == len(without) > 20
    assert "-n" in options or theirs == without, "the order of tests has changed"
    assert set(ours.values()) == {"passed"} and len(ours) == 4, ours
