"""Every page on a mistake is true: its script is falsified as shown, and the change mends it.

The scripts of all pages run observed in forks of one process, as in `test_scripts.py`; then `pv check` judges each.
"""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pv.cli import main
from pv.observe import launch
from tests.observe.test_scripts import run_scripts
from tests.pages import BLOCK, run, write

pytest.importorskip("torch", reason="the scripts need torch")
DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted((DOCS / "mistakes").glob("*.md"))


def stages(page: Path, folder: Path) -> Iterator[tuple[str, int, Path]]:
    """Yield each command of a page with its exit status, and a copy of the folder as it is then."""
    draft, count = folder / "draft", 0
    for _, info, body in BLOCK.findall(page.read_text()):
        words = dict(part.partition("=")[::2] for part in info.split())
        if "exit" in words:
            count += 1
            yield body, int(words["exit"]), Path(shutil.copytree(draft, folder / f"{page.stem}-{count}"))
        elif "file" in words:
            write(draft / words["file"], body, words)


def test_pages_show_what_is_found_and_the_change_that_mends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(free.getsockname()[1]))
    shown = [stage for page in PAGES for stage in stages(page, tmp_path)]
    assert {status for _, status, _ in shown} == {0, 1}
    scripts = []
    for body, _, folder in shown:
        path = folder / "train.py"
        if "--nproc_per_node 2" in body:
            path.write_text(f'{path.read_text()}"""\nranks: 2\n"""\n')
        scripts.append((folder.name, path))
    (tmp_path / "runs").mkdir()
    statuses = run_scripts(tmp_path / "runs", scripts, plain=False)

    def start(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
        def replay(command: Any, folder: Path, *_: Any, **__: Any) -> int:
            """Take the place of a run of the command."""
            shutil.copytree(tmp_path / "runs" / cwd.name / "trace", folder, dirs_exist_ok=True)
            return statuses[cwd.name]

        monkeypatch.setattr(launch, "run", replay)
        monkeypatch.chdir(cwd)
        result = CliRunner().invoke(main, list(words[2:]))
        output = result.stdout.replace(f"{cwd}/", "")  # `python train.py` names a file as it was given
        return subprocess.CompletedProcess(words, result.exit_code, output, result.stderr)

    for body, status, folder in shown:
        run(body, status, folder, start)
