"""Digests of code and its pieces: layout leaves them, every other change does not, on every Python."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from pv.source import digest
from pv.source.digest import digest_file, digest_source
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
    for first, second in (("return 2", "return 3"), ("return 1", "return 3")):
        assert pieces(one).functions != pieces(one.replace(first, second)).functions
    functions = pieces(SOURCE).functions
    assert outermost("plain.inner", functions) == "plain"
    assert outermost("Base.method", functions) == "Base.method"
    assert outermost("kernel", functions) == ""


DOCUMENTED = """
class Box(Base[int]):
    "box"

    @staticmethod
    def plain():
        "plain"

    @command
    @staticmethod
    def shown():
        "shown"
"""


def test_docstrings_are_shown_where_a_decorator_or_base_class_may_read_them() -> None:
    base = pieces(DOCUMENTED)
    for word, is_shown in {"box": True, "plain": False, "shown": True}.items():
        changed = pieces(DOCUMENTED.replace(f'"{word}"', f'"another {word}"'))
        assert changed.docs != base.docs
        assert (changed.shown_docs != base.shown_docs) == is_shown, word
        assert (changed.at_import, changed.functions, changed.constants) == (
            base.at_import,
            base.functions,
            base.constants,
        )
    spaced = '"""one\n    two"""'
    assert pieces(spaced).docs != pieces(spaced.replace("    ", "  ")).docs
    readers = ["inspect.getdoc(f)", "f.__doc__", "f.__name__"]
    assert [pieces(reader).reads_docs for reader in readers] == [True, True, False]
    assert pieces("x = 'a'").constants != pieces("x = 'b'").constants != pieces("x = b'b'").constants


def test_only_python_is_digested_without_its_layout(tmp_path: Path) -> None:
    digests = {}
    for name in ("a.py", "b.py", "a.txt", "b.txt"):
        (tmp_path / name).write_text("x = 1\n" if name[0] == "a" else "x = 1  # one\n")
        digests[name] = digest_file(tmp_path / name)
    assert digests["a.py"] == digests["b.py"]
    assert len({*digests.values()}) == 3
