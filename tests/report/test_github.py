"""Annotations are workflow commands that GitHub's runner reads as meant, worst first and at most ten."""

import re
from pathlib import Path

import pytest

from pv.contract.finding import Location
from pv.report import github, render
from pv.results.verdict import Report
from tests.report.handmade import HOSTILE, NASTY, PLAIN, many

COMMAND = re.compile(r"::(?P<name>\w+) (?P<properties>[^:]*)::(?P<message>.*)")


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    """Return the commands as the runner reads them: a line each, properties split at commas, then unescaped."""
    found = []
    for line in text.split("\n"):
        if line.lstrip().startswith("::"):
            match = COMMAND.fullmatch(line)
            assert match is not None, line
            pairs = (part.split("=", 1) for part in match["properties"].split(","))
            properties = {key: unescaped(value, {"%3A": ":", "%2C": ","}) for key, value in pairs}
            found.append((match["name"], properties, unescaped(match["message"], {})))
    return found


def unescaped(text: str, more: dict[str, str]) -> str:
    for escape, character in {"%0D": "\r", "%0A": "\n", **more, "%25": "%"}.items():
        text = text.replace(escape, character)
    return text


@pytest.mark.parametrize("report", [PLAIN, HOSTILE], ids=["plain", "hostile"])
def test_every_line_is_one_of_our_commands_or_the_closing_line(report: Report) -> None:
    shown = render(report, "github")
    found = commands(shown)
    assert [(name, properties["title"]) for name, properties, _ in found] == [
        ("error", "PV002"),
        ("error", "falsified: F-REFUTED on cpu"),
        ("error", "error: F-BROKEN on cpu"),
        ("error", "vacuous: F-BARREN on cpu"),
    ]
    assert [line for line in shown.split("\n") if not line.startswith("::")] == [
        "pv: 1 fail, 0 undecided, 0 pass, 1 notice (pv lint shows them); 1.2 s on cpu; seed 0; exit 3",
        "",
    ]


def test_a_message_is_read_back_whole_and_control_characters_are_escapes() -> None:
    message = commands(render(HOSTILE, "github"))[1][2]
    shown = NASTY.replace("\0", "\\x00").replace("\x1b", "\\x1b").replace("\x07", "\\x07").replace("\ud800", "\\ud800")
    assert f"seen: AssertionError: {shown}" in message
    assert "\n::error::no\n" in message


def test_percent_colon_and_comma_in_a_path_are_escaped() -> None:
    place = Location(Path("a,b:c%0A.yaml"), 3, 4)
    line = github.Annotation(level="error", title="a,b::c%", message="100 %0A", location=place).line("sub dir")
    assert commands(line) == [
        ("error", {"file": "sub dir/a,b:c%0A.yaml", "line": "3", "col": "4", "title": "a,b::c%"}, "100 %0A")
    ]


def test_at_most_ten_are_shown_worst_first_and_the_others_counted() -> None:
    shown = render(many(40), "github")
    assert [properties["title"].split(":")[0] for _, properties, _ in commands(shown)] == ["falsified"] * 10
    assert "pv: 17 more annotations not shown; " in shown
