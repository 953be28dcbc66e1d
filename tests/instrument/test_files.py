"""Which files a worker says that it has read, each case in a process of its own, and which it may not write."""

import json
import os
import py_compile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from pv.errors import BrokenMutant
from pv.instrument.write_guard import WriteGuard
from tests.support.processes import python
from tests.support.projects import write

READER = """
import importlib.util, json, os, sys
from pathlib import Path
from pv.instrument.files import FilesRead

{before}
files = FilesRead(Path.cwd(), Path("none"))
{code}
(read, missing), looked = files.opened(), files.probed()
print(json.dumps([read, files.listed(), files.metadata(), files.searched(), sorted({{*looked, *missing}})]))
"""
LOADED = """
spec = importlib.util.spec_from_file_location("helper", "data/code.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    hidden = (".env", ".store/kept.txt", ".store/CACHEDIR.TAG", ".set/level.txt")
    write(folder, dict.fromkeys(("data/one.txt", "data/two.txt", "data/code.py", *hidden), "1\n"))
    (tmp_path / "outside.txt").write_text("1\n")
    (folder / "link.txt").symlink_to("data/one.txt")
    (folder / "folder").symlink_to("data")
    (folder / "stored.txt").symlink_to(".store/kept.txt")
    return folder


def ran(root: Path, code: str, before: str = "") -> list[Any]:
    """Return what was read, listed, searched for packages, searched by name and looked for."""
    return list(json.loads(python("-c", READER.format(code=code, before=before), cwd=root).stdout))


def read(root: Path, code: str, before: str = "") -> list[str]:
    return sorted(ran(root, code, before)[0])


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ('open("data/one.txt"); os.open("two.txt", 0, dir_fd=os.open("data", 0))', ["data/one.txt", "data/two.txt"]),
        ('os.chdir("data"); open("one.txt", "r+")', ["data/one.txt"]),
        ('import sqlite3; sqlite3.connect("data/one.txt")', ["data/one.txt"]),
        ('open("link.txt"); open("stored.txt")', ["data/one.txt", "link.txt", "stored.txt"]),
        ('open(".env"); open(".set/level.txt")', [".env", ".set/level.txt"]),
    ],
)
def test_file_that_was_read_is_named(root: Path, code: str, names: list[str]) -> None:
    """A link is named beside its target."""
    assert read(root, code) == names


@pytest.mark.parametrize("cached", [False, True])
def test_module_of_no_name_is_its_source(root: Path, cached: bool) -> None:
    if cached:
        py_compile.compile(str(root / "data/code.py"), doraise=True)
    assert read(root, LOADED) == ["data/code.py"]


@pytest.mark.parametrize(("folder", "names"), [("shared", ["shared/scale.py"]), ("env/lib/site-packages", [])])
def test_module_loaded_before_is_named_unless_it_is_installed(root: Path, folder: str, names: list[str]) -> None:
    (root / folder).mkdir(parents=True)
    (root / folder / "scale.py").write_text("FACTOR = 2\n")
    assert read(root, "import scale", before=f"sys.path.append({folder!r}); import scale") == names


def test_what_was_only_written_and_what_is_not_of_the_project_is_not_named(root: Path) -> None:
    written = 'open("data/one.txt", "w"); open("data/new.txt", "w"); open("data/new.txt"); os.remove("data/new.txt")'
    assert read(root, f'{written}; open(".store/kept.txt"); open("../outside.txt"); os.open("data", os.O_RDONLY)') == []


def test_imports_and_finders_look_for_names_and_list_no_folder(root: Path) -> None:
    code = 'sys.path[:0] = ["data", "absent"]\nimport code\ntry:\n    import none_such\nexcept ImportError:\n    pass'
    _, listed, _, searched, _ = ran(root, code)
    assert listed == []
    assert {"code", "none_such"} <= {*searched["data"]}
    assert {"code", "none_such", "json"} <= {*searched["absent"]}
    code = 'from importlib.machinery import PathFinder\nPathFinder.find_spec("some.part", ["data"])'
    assert ran(root, code)[3]["data"] == ["part"]


def test_folder_is_listed_by_code_and_by_a_search_for_packages(root: Path) -> None:
    assert ran(root, 'os.listdir("data")')[1:3] == [["data"], []]
    assert ran(root, "os.listdir()")[1:3] == [["."], []]
    code = "from importlib.metadata import entry_points\nentry_points()"
    assert ran(root, code)[1:3] == [[], ["."]]


@pytest.mark.parametrize(
    "code",
    [
        *(f'{name}("data")' for name in ("os.mkdir", "os.rmdir", "os.remove")),
        'open("data", "x")',
        'os.stat(path="data")',
    ],
)
def test_an_attempt_tells_whether_there_is_a_file(root: Path, code: str) -> None:
    assert "data" in ran(root, f"try:\n    {code}\nexcept OSError:\n    pass")[4]


def test_pipe_that_is_open_is_no_folder(root: Path) -> None:
    looked = ran(root, 'os.pipe(); os.open("two.txt", 0, dir_fd=os.open("data", 0))')[-1]
    assert [name for name in looked if "pipe" in name] == []


@pytest.mark.parametrize(
    ("event", "arguments", "is_refused"),
    [
        ("os.remove", ("/elsewhere/a", -1), True),
        ("shutil.rmtree", ("/", None), True),
        ("os.rename", ("/own/a", "/project/a", -1, -1), True),
        ("open", ("/project/sub/../a.py", "rb+", 0), True),
        ("open", ("/project/a.py", None, os.O_CREAT | os.O_WRONLY), True),  # os.open, as in Path.touch
        ("open", ("/project/a.py", None, os.O_RDONLY | os.O_CLOEXEC), False),
        ("open", ("a.py", None, os.O_CREAT | os.O_WRONLY), False),  # may be below an open folder
        ("os.remove", ("/own/t1/a", -1), False),
        ("os.remove", ("a", 7), False),  # below an open folder
        ("shutil.rmtree", ("/own/t1", None), False),
        ("os.rename", ("/own/a", "/own/b", -1, -1), False),
        ("open", ("/project/a.py", "r", 0), False),
        ("open", ("/elsewhere/a.txt", "w", 0), False),
    ],
)
def test_only_reading_and_the_own_folder_are_allowed(event: str, arguments: Any, is_refused: bool) -> None:
    with pytest.raises(BrokenMutant, match="a mutant may not ") if is_refused else nullcontext():
        WriteGuard(["/project"], "/own")(event, arguments)
