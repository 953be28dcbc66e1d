"""The write guard refuses to remove files and to write to the project."""

from contextlib import nullcontext
from typing import Any

import pytest

from pv.errors import BrokenMutant
from pv.instrument.write_guard import WriteGuard


@pytest.mark.parametrize(
    ("event", "arguments", "is_refused"),
    [
        ("os.remove", ("/elsewhere/a", -1), True),
        ("shutil.rmtree", ("/", None), True),
        ("os.rename", ("/own/a", "/project/a", -1, -1), True),
        ("open", ("/project/sub/../a.py", "rb+", 0), True),
        ("os.remove", ("/own/t1/a", -1), False),
        ("os.remove", ("a", 7), False),  # below an open folder
        ("shutil.rmtree", ("/own/t1", None), False),
        ("os.rename", ("/own/a", "/own/b", -1, -1), False),
        ("open", ("/project/a.py", "r", 0), False),
        ("open", ("/elsewhere/a.txt", "w", 0), False),
    ],
)
def test_only_reading_and_the_own_folder_are_allowed(event: str, arguments: Any, is_refused: bool) -> None:
    with pytest.raises(BrokenMutant, match="it may not ") if is_refused else nullcontext():
        WriteGuard(["/project"], "/own")(event, arguments)
