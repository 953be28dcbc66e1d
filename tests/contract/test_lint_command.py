"""The command says what loading says, and ends with its exit code."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[[str | bytes], Path]
Refusals = Callable[[Path], list[str]]
Command = Callable[[Path], "subprocess.CompletedProcess[bytes]"]

GOOD = (Path(__file__).parents[1] / "bad_contracts" / "good.yaml").read_text(encoding="utf-8")
HOSTILE: dict[str, str | bytes] = {
    "binary": bytes(range(256)),
    "alias bomb": "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_the_command_refuses_without_a_traceback(name: str, write: Write, refusals: Refusals, command: Command) -> None:
    path = write(HOSTILE[name])
    (says,) = refusals(path)
    ended = command(path)
    assert (ended.returncode, ended.stderr) == (3, b"")
    assert ended.stdout.decode() == f"refusal: {path}:{says}\n0 contracts: 1 invalid file, 0 errors, 0 notices\n"


def test_the_command_still_lints_the_sound_files(tmp_path: Path, command: Command) -> None:
    (tmp_path / "a.yaml").write_text("[")
    (tmp_path / "b.yaml").write_text("metadata: {version: 1.0.0, description: b, depends_on: [a]}\nequations: {}\n")
    ended = command(tmp_path)
    assert ended.returncode == 3
    assert ended.stdout.decode().endswith("1 contract: 1 invalid file, 0 errors, 0 notices\n")
