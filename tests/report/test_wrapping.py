"""Long lines are wrapped with an indentation, and commands stay whole."""

from rich.console import Console
from rich.text import Text

from pv.report.wrapping import hanging, parts


def test_rest_of_a_long_line_is_indented_below_its_start() -> None:
    line = "  one " + "word " * 20
    wrapped = hanging(line.rstrip(), 50).splitlines()
    assert len(wrapped) > 1 and all(len(each) <= 50 for each in wrapped)
    assert all(each.startswith("      word") for each in wrapped[1:])
    assert " ".join(" ".join(wrapped).split()) == " ".join(line.split())


def test_short_lines_and_unknown_widths_are_unchanged() -> None:
    assert hanging("x " * 30, 0) == "x " * 30
    assert hanging("x " * 30, 20) == "x " * 30
    assert hanging("short", 80) == "short"


def test_styled_text_is_indented_and_commands_are_not_wrapped() -> None:
    console = Console(width=50)
    text = Text("  seen      " + "word " * 20)
    first, *rest = (part.plain for part in parts(text, console, 12))
    assert len(first) <= 50 and rest
    assert all(part.startswith(" " * 12 + "word") and len(part.rstrip()) <= 50 for part in rest)
    command = Text("  rerun     pv validate " + "--only X " * 20)
    assert [part.plain for part in parts(command, console, 12)] == [command.plain]
