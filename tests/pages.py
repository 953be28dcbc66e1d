"""Runs the blocks of a Markdown page in a folder: files are written, commands are run, their output is compared.

A block with `file=PATH` is a file; `append`, `insert-before=TEXT`, `line=START` and `replace=FUNCTION` edit one that is
there. A block with `exit=N` is a command and its output, where `...` stands for any lines, or for any part of a line.
Other blocks are not run.
"""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from tests.support.processes import Ended, python

BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = {"pv": ["-m", "pv"], "reference-trainer": ["-m", "reference_trainer"], "python": []}


def run_page(
    page: Path, folder: Path, after: Callable[[], object] = lambda: None, start: Callable[..., Ended] = python
) -> int:
    """Run the blocks of the page in order, call `after` after each command, and return how many there were."""
    commands = 0
    for _, info, body in BLOCK.findall(page.read_text()):
        words = dict(part.partition("=")[::2] for part in info.split())
        if "exit" in words:
            run(body, int(words["exit"]), folder, start)
            after()
            commands += 1
        elif "file" in words:
            write(folder / words["file"], body, words)
    return commands


def write(path: Path, body: str, words: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text() if path.exists() else ""
    lines = before.splitlines(keepends=True)
    if "append" in words:
        body = f"{before}\n\n{body}" if path.suffix == ".py" else before + body
    elif "insert-before" in words:
        first = next(line for line in lines if line.strip().startswith(words["insert-before"]))
        body = before.replace(first, body + first, 1)
    elif "line" in words:
        (old,) = (line for line in lines if line.strip().startswith(words["line"]))
        body = before.replace(old, body)
    elif "replace" in words:
        start = before.index("@given", before.rindex("\n\n\n", 0, before.index(words["replace"])))
        body = before[:start] + body
    path.write_text(body)


def run(body: str, status: int, folder: Path, start: Callable[..., Ended]) -> None:
    command, *expected = body.splitlines()
    program, *arguments = shlex.split(command.removeprefix("$ "))
    done = start(*PROGRAMS[program], *arguments, cwd=folder)
    assert done.returncode == status, done.stdout + done.stderr
    rest = done.stdout.splitlines()
    for line in (line for line in expected if line != "..."):
        pattern = re.compile(".*".join(map(re.escape, line.split("..."))))
        matches = [index for index, printed in enumerate(rest) if pattern.fullmatch(printed)]
        assert matches, f"{line!r} is not in the output, or not in this order:\n{done.stdout}"
        rest = rest[matches[0] + 1 :]
