"""Names in a contract are resolved to files without importing anything."""

from pathlib import Path

import pytest

from pv.contract.names import Binding, Target
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


def test_a_file_has_the_name_by_which_it_is_imported(tree: Project) -> None:
    assert resolve.module_name(tree, tree.root / "src/pkg/__init__.py") == "pkg"
    assert resolve.module_name(tree, tree.root / "more/pkg/code.py") == "pkg.code"
    with pytest.raises(Unbound, match="below none of the roots"):
        resolve.module_name(tree, tree.root / "code.py")


def test_an_unknown_module_names_the_known_ones(tree: Project) -> None:
    with pytest.raises(Unbound, match=r"there is no module 'pkg\.coed'") as caught:
        resolve.module_file(tree, "pkg.coed")
    assert caught.value.kind == "file"
    assert "pkg.code" in caught.value.known


@pytest.mark.parametrize("attribute", ["", "first", "turn", "Model.forward", "Model.size", "turn.anything"])
def test_an_attribute_is_defined_or_imported(tree: Project, attribute: str) -> None:
    assert resolve.target_file(tree, Target("pkg.code", attribute)) == tree.root / "src/pkg/code.py"


@pytest.mark.parametrize("attribute", ["second", "Model.backward", "tau"])
def test_an_unknown_attribute_is_unbound(tree: Project, attribute: str) -> None:
    with pytest.raises(Unbound, match=f"defines no '{attribute}'") as caught:
        resolve.target_file(tree, Target("pkg.code", attribute))
    assert caught.value.kind == "name"


def test_the_first_of_two_functions_with_one_name_is_bound(tree: Project) -> None:
    found = resolve.function(tree, Binding("src/pkg/code.py", "first"))
    assert found.parameters == ("subject", "device", "run")
    assert not found.takes_any
    assert resolve.function(tree, Binding("src/pkg/code.py", "anything")).takes_any


@pytest.mark.parametrize(("name", "lazy"), [("lazy", True), ("later", True), ("outer", False), ("first", False)])
def test_coroutines_and_generators_are_lazy(tree: Project, name: str, lazy: bool) -> None:
    assert resolve.function(tree, Binding("src/pkg/code.py", name)).is_lazy is lazy


@pytest.mark.parametrize(
    ("file", "name", "kind"),
    [
        ("src/pkg/missing.py", "first", "file"),
        ("../elsewhere.py", "first", "file"),
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


def test_a_changed_file_is_read_again(tree: Project) -> None:
    path = tree.root / "more/other.py"
    assert "added" not in resolve.exported(path)
    path.write_text(CODE + "added = 1\n")
    assert "added" in resolve.exported(path)
