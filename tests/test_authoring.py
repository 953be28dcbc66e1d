"""Executes pages of docs/: writes their files, runs their commands, and compares what they print."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("page", "runs"), [("authoring.md", 5), ("harnesses.md", 2)])
def test_the_page_does_what_it_says(page: str, runs: int, tmp_path: Path) -> None:
    commands = 0
    for language, info, body in BLOCK.findall((DOCS / page).read_text()):
        words = dict(part.partition("=")[::2] for part in info.split())
        if language == "console":
            run(body, int(words["exit"]), tmp_path)
            commands += 1
        else:
            write(tmp_path / words["file"], body, words)
    assert commands == runs


def write(path: Path, body: str, words: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text() if path.exists() else ""
    if "append" in words:
        body = f"{before}\n\n{body}" if path.suffix == ".py" else before + body
    elif "insert-before" in words:
        body = before.replace(f"\n{words['insert-before']}", f"\n{body}{words['insert-before']}")
    elif "replace" in words:
        start = before.index("@given", before.rindex("\n\n\n", 0, before.index(words["replace"])))
        body = before[:start] + body
    path.write_text(body)


def run(body: str, status: int, folder: Path) -> None:
    command, *expected = body.splitlines()
    program, *arguments = shlex.split(command.removeprefix("$ "))
    assert program == "pv"
    done = subprocess.run(
        [sys.executable, "-m", "pv", *arguments], cwd=folder, capture_output=True, text=True, env=dict(os.environ)
    )
    assert done.returncode == status, done.stdout + done.stderr
    rest = done.stdout.splitlines()
    for line in (line for line in expected if line != "..."):
        assert line in rest, f"{line!r} is not in the output, or not in this order:\n{done.stdout}"
        rest = rest[rest.index(line) + 1 :]
