"""Checks are aligned, with their remedy below."""

from pv.commands.doctor import Check, Level
from pv.report.checks import render


def test_remedy_is_below_the_text_and_levels_are_counted() -> None:
    checks = [Check("python", Level.OK, "3.11"), Check("extra", Level.NOTE, "none", "install it")]
    assert render(checks).splitlines() == [
        "ok       python     3.11",
        "note     extra      none",
        "                    install it",
        "",
        "0 problems, 1 note",
    ]
