"""Digests of code and its pieces: layout leaves them, every other change does not, on every Python."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from pv.source import digest
from pv.source.digest import digest_source
from pv.source.pieces import outermost, pieces

TABLE = yaml.safe_load((Path(__file__).parent / "digests.yaml").read_text())
SAMPLE, PINNED = TABLE["sample"], TABLE["pinned"]


def test_the_digest_of_a_sample_is_pinned() -> None:
    """Committed evidence holds such digests: another form of them makes all of it stale."""
    assert digest_source(SAMPLE) == PINNED


def interpreter(version: str) -> str | None:
    """A Python of that version that runs: on the path, where a shim may lead nowhere, or among pyenv's."""
    managed = map(str, sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")))
    # A shim on the path may name a version that is not installed, so each candidate is run.
    for python in [shutil.which(f"python{version}"), *managed]:
        if python is not None and subprocess.run([python, "-c", ""], capture_output=True).returncode == 0:
            return python
    return None


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_every_python_computes_the_same_digest(version: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} is installed here")
    script = "import runpy, sys; print(runpy.run_path(sys.argv[1])['digest_source'](sys.stdin.read()))"
    command = [python, "-I", "-c", script, str(digest.__file__)]
    ended = subprocess.run(command, input=SAMPLE, capture_output=True, text=True, encoding="utf-8", timeout=600)
    assert (ended.stdout.strip(), ended.stderr) == (PINNED, "")


@pytest.mark.parametrize("same", TABLE["same"])
def test_layout_comments_and_docstrings_do_not_matter(same: str) -> None:
    assert digest_source(same) == digest_source("def f(x):\n    return x + 1\n")


@pytest.mark.parametrize(("one", "other"), TABLE["other"])
def test_any_other_change_changes_the_digest(one: str, other: str) -> None:
    assert digest_source(one) != digest_source(other)


SOURCE = """
def plain(x):
    def inner():
        return x
    return inner()

class Base:
    @property
    def method(self):
        return 1

@triton.jit
def kernel(x):
    return x
"""


def test_change_outside_a_body_changes_the_digest_of_the_import() -> None:
    for find, replace in {
        "kernel(x):\n    return x": "kernel(x):\n    return -x",  # it is compiled from its source
        "return 1": "yield 1",
        "def plain": "async def plain",
        "    @property\n": "",
    }.items():
        assert SOURCE.count(find) == 1
        assert pieces(SOURCE).at_import != pieces(SOURCE.replace(find, replace)).at_import, find


def test_definitions_of_one_name_are_one_piece_and_functions_belong_to_the_outermost() -> None:
    one = "if A:\n    def f():\n        return 1\nelse:\n    def f():\n        return 2\n"
    assert pieces(one).functions.keys() == {"f"}
    assert pieces(one).functions != pieces(one.replace("return 2", "return 3")).functions
    functions = pieces(SOURCE).functions
    assert outermost("plain.inner", functions) == "plain"
    assert outermost("Base.method", functions) == "Base.method"
    assert outermost("kernel", functions) == ""
