"""Requirements are read from the installed distribution, and compared with what is installed."""

import pytest

from pv.commands import packages
from pv.commands.packages import Package, core, extras

REQUIRED = [
    "click>=8.1",
    "absent-package>=1",
    "torch<3,>=2.8; extra == 'trainer'",
    "absent-package[more]>=2; python_version > '3' and extra == \"symbolic\"",
    "types-thing; extra == 'dev'",
]


@pytest.fixture(autouse=True)
def requirements(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"click": "8.0.9", "torch": "2.13.0+cpu"}
    monkeypatch.setattr(packages, "requires", lambda name: REQUIRED)
    monkeypatch.setattr(packages, "_installed", lambda name: installed.get(name, ""))


def test_core_has_what_no_extra_names() -> None:
    assert core() == (
        Package("click", "click>=8.1", "8.1", "8.0.9"),
        Package("absent-package", "absent-package>=1", "1", ""),
    )


def test_extras_are_those_for_users() -> None:
    found = extras()
    assert list(found) == ["trainer", "symbolic", "plot", "tensorboard"]
    assert [(each.name, each.least, each.usable) for each in found["trainer"]] == [("torch", "2.8", True)]
    assert [each.name for each in found["symbolic"]] == ["absent-package"]


@pytest.mark.parametrize(
    ("least", "installed", "usable"),
    [("8.1", "8.1", True), ("8.1", "8.10.0", True), ("8.10", "8.9", False), ("0", "1.0rc1", True), ("0", "", False)],
)
def test_versions_are_compared_as_numbers(least: str, installed: str, usable: bool) -> None:
    assert Package("a", "a", least, installed).usable is usable
