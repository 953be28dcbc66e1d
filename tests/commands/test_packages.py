"""Requirements are read from the installed distribution, and compared with what is installed."""

import pytest

from pv.commands.packages import Package


@pytest.mark.parametrize(
    ("least", "installed", "usable"),
    [("8.1", "8.1", True), ("8.1", "8.10.0", True), ("8.10", "8.9", False), ("0", "1.0rc1", True), ("0", "", False)],
)
def test_versions_are_compared_as_numbers(least: str, installed: str, usable: bool) -> None:
    assert Package("a", "a", least, installed).usable is usable
