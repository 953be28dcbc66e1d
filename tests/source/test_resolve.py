"""Names in a contract are resolved to files without importing anything."""

from pathlib import Path

import pytest

from pv.contract.names import Binding
from pv.source import resolve
from pv.source.project import Project, find_project
from pv.source.resolve import Unbound

CODE = """
from math import tau as turn

def first(subject, device=None, *, run):
    return subject

def first(again): ...

def lazy():
    yield 1

def outer():
    def inner():
        yield 1
    return inner

async def later(): ...

def anything(**keywords): ...

class Model:
    size = 3
    def forward(self): ...
"""


@pytest.fixture
def tree(tmp_path: Path) -> Project:
    (tmp_path / "pyproject.toml").write_text('[tool.pv]\nroots = ["src", "more"]\n')
    for file in ("src/pkg/__init__.py", "src/pkg/code.py", "more/pkg/code.py", "more/other.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(CODE)
    return find_project(tmp_path)


def test_a_module_comes_from_the_first_root_that_has_it(tree: Project) -> None:
    assert resolve.module_file(tree, "pkg") == tree.root / "src/pkg/__init__.py"
    assert resolve.module_file(tree, "pkg.code") == tree.root / "src/pkg/code.py"
    assert resolve.module_file(tree, "other") == tree.root / "more/other.py"
    assert resolve.find_module(tree, "json") is None
    assert resolve.find_module(tree, "a" * 300) is None


@pytest.mark.parametrize(("name", "lazy"), [("lazy", True), ("later", True), ("outer", False), ("first", False)])
def test_coroutines_and_generators_are_lazy(tree: Project, name: str, lazy: bool) -> None:
    assert resolve.function(tree, Binding("src/pkg/code.py", name)).is_lazy is lazy


@pytest.mark.parametrize(
    ("file", "name", "kind"),
    [
        ("src/pkg/missing.py", "first", "file"),
        ("src/pkg/code.py", "missing", "name"),
        ("src/pkg/broken.py", "first", "source"),
    ],
)
def test_a_binding_that_leads_nowhere_says_how_far_it_led(tree: Project, file: str, name: str, kind: str) -> None:
    (tree.root / "src/pkg/broken.py").write_text("def first(:\n")
    with pytest.raises(Unbound) as caught:
        resolve.function(tree, Binding(file, name))
    assert caught.value.kind == kind


def test_a_link_out_of_the_root_is_no_module(tree: Project, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "linked.py"
    outside.write_text(CODE)
    (tree.root / "src" / "linked.py").symlink_to(outside)
    assert resolve.find_module(tree, "linked") is None
