"""The write guard refuses to remove files and to write to the project."""

from typing import Any

import pytest

from pv.errors import BrokenMutant
from pv.instrument.write_guard import WriteGuard


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        ("os.remove", ("/elsewhere/a", -1)),
        ("shutil.rmtree", ("/", None)),
        ("os.rename", ("/own/a", "/project/a", -1, -1)),
        ("open", ("/project/sub/../a.py", "rb+", 0)),
    ],
)
def test_removing_and_writing_to_the_project_is_refused(event: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(BrokenMutant, match="it may not "):
        WriteGuard(["/project"], "/own")(event, arguments)


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        ("os.remove", ("/own/t1/a", -1)),
        ("os.remove", ("a", 7)),  # below an open folder
        ("shutil.rmtree", ("/own/t1", None)),
        ("os.rename", ("/own/a", "/own/b", -1, -1)),
        ("open", ("/project/a.py", "r", 0)),
        ("open", ("/elsewhere/a.txt", "w", 0)),
    ],
)
def test_reading_and_the_own_folder_are_allowed(event: str, arguments: tuple[Any, ...]) -> None:
    WriteGuard(["/project"], "/own")(event, arguments)
