"""The tutorials of docs/ and the pages on extending `pv` and on the trainer do what they say."""

import contextlib
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

import pv
from tests.commands import small
from tests.commands.checked import checked
from tests.pages import run_page
from tests.reference_trainer import forked
from tests.support.processes import Ended, python
from tests.support.workers import shared_workers as shared_workers

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
COMMANDS = {"tutorial": 6, "authoring": 5, "harnesses": 2, "api": 5, "runs": 5, "adapters": 4}


@pytest.fixture(autouse=True)
def own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `python` in a page be the interpreter of the tests."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def start(*arguments: str, cwd: Path) -> Ended:
    """Run a command of a page: `pv` in this process, with workers that commands share; a script in one of its own."""
    if arguments[:2] != ("-m", "pv"):
        return python(*arguments, cwd=cwd)
    if "--" in arguments:
        words = [sys.executable if word == "python" else word for word in arguments[3:]]
        ended = checked(cwd, *words)
        return Ended(arguments, ended.returncode, ended.stdout.replace(sys.executable, "python"), ended.stderr)
    with contextlib.chdir(cwd):
        return small.run(*arguments[2:])


@pytest.mark.parametrize("page", COMMANDS)
def test_the_page_does_what_it_says(page: str, tmp_path: Path) -> None:
    assert run_page(DOCS / f"{page}.md", tmp_path, start=start) == COMMANDS[page]


def test_the_recipes_extend_a_copy_of_pv(tmp_path: Path) -> None:
    """The copy comes before the installed package, because Python puts the working directory first."""
    # With compiled modules, but without their partial files, which another process may rename meanwhile.
    shutil.copytree(ROOT / "pv", tmp_path / "pv", ignore=shutil.ignore_patterns("*.pyc.*"))
    assert run_page(DOCS / "extending.md", tmp_path) == 4


WANDB = """
import json

def init(project, name, mode):
    print(json.dumps(["init", project, name, mode]), file=open("wandb.jsonl", "a"))
    return Run()

class Run:
    def log(self, values, step):
        print(json.dumps(["log", step, sorted(values)]), file=open("wandb.jsonl", "a"))

    def finish(self):
        print(json.dumps(["finish"]), file=open("wandb.jsonl", "a"))
"""


def test_the_trainer_does_what_its_pages_say(tmp_path: Path) -> None:
    """A stand-in takes the place of wandb."""
    assert run_page(ROOT / "reference_trainer/README.md", tmp_path / "readme", start=forked.python) == 1
    (tmp_path / "wandb.py").write_text(WANDB)
    pages = sorted(DOCS.glob("trainer*.md"))
    assert sum(run_page(page, tmp_path, start=forked.python) for page in pages) == 4
    first, *logged, last = map(json.loads, (tmp_path / "wandb.jsonl").read_text().splitlines())
    assert (first, last) == (["init", "distillation", "tracked", None], ["finish"])
    steps = {name: [step for _, step, names in logged if name in names] for name in ("loss", "eval/hard_loss")}
    assert steps == {"loss": [2, 4], "eval/hard_loss": [4]}


def test_page_of_the_api_has_every_public_name() -> None:
    text = (DOCS / "api.md").read_text()
    assert [name for name in pv.__all__ if f"pv.{name}" not in text and f"`{name}`" not in text] == []
    assert set(pv.__all__) <= set(dir(pv))
