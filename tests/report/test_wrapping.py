"""Long lines are wrapped with an indentation, and commands stay whole."""

from rich.console import Console
from rich.text import Text

from pv.report.wrapping import parts


def test_styled_text_is_indented_and_commands_are_not_wrapped() -> None:
    console = Console(width=50)
    text = Text("  seen      " + "word " * 20)
    first, *rest = (part.plain for part in parts(text, console, 12))
    assert len(first) <= 50 and rest
    assert all(part.startswith(" " * 12 + "word") and len(part.rstrip()) <= 50 for part in rest)
    command = Text("  rerun     pv validate " + "--only X " * 20)
    assert [part.plain for part in parts(command, console, 12)] == [command.plain]
