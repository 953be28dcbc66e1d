"""Findings are printed as `file:line:column code message; hint`, and locations are sorted by file and line."""

from pathlib import Path

from pv.contract.finding import Finding, Location, Severity

HERE = Location(Path("c.yaml"), 3, 5)


def test_finding_is_printed_with_its_hint() -> None:
    found = Finding(code="PV101", severity=Severity.ERROR, location=HERE, message="duplicate id 'F'", hint="rename one")
    assert str(found) == "c.yaml:3:5 PV101 duplicate id 'F'; rename one"


def test_finding_without_a_hint_ends_with_its_message() -> None:
    found = Finding(code="PV002", severity=Severity.REFUSAL, location=HERE, message="is not YAML")
    assert str(found) == "c.yaml:3:5 PV002 is not YAML"


def test_locations_are_sorted_by_file_line_and_column() -> None:
    lines = [Location(Path("d.yaml")), Location(Path("c.yaml"), 10), Location(Path("c.yaml"), 9, 2), HERE]
    assert [str(line) for line in sorted(lines)] == ["c.yaml:3:5", "c.yaml:9:2", "c.yaml:10:1", "d.yaml:1:1"]
