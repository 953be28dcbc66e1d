"""A finding is shown with its line, where that can be read."""

from pathlib import Path

from pv.contract.finding import Finding, Location, Severity
from pv.report.excerpt import excerpt


def finding(path: Path, line: int, column: int) -> Finding:
    return Finding(code="PV010", severity=Severity.REFUSAL, location=Location(path, line, column), message="unknown")


def test_mark_is_below_the_column(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("first\n  second: 2\n")
    assert list(excerpt(finding(file, 2, 3))) == [
        "      2 |   second: 2",
        "        |   ^",
        "        = pv explain PV010",
    ]


def test_missing_line_leaves_the_code(tmp_path: Path) -> None:
    assert list(excerpt(finding(tmp_path / "none.yaml", 1, 1))) == ["        = pv explain PV010"]
    assert list(excerpt(finding(tmp_path, 9, 1))) == ["        = pv explain PV010"]
