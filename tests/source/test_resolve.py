"""Names in a contract are resolved to files without importing anything."""

import ast
from pathlib import Path

import pytest

from pv.contract.model import Binding, Target
from pv.errors import ProjectError
from pv.source import imports, resolve
from pv.source.project import Project, find_project
from pv.source.resolve import Unbound, follow_imports
from tests.support.projects import write

CODE = "def first(subject):\n    return subject\n"


@pytest.fixture
def tree(tmp_path: Path) -> Project:
    files = ("src/pkg/__init__.py", "src/pkg/code.py", "more/pkg/code.py", "more/other.py")
    write(tmp_path, {"pyproject.toml": '[tool.pv]\nroots = ["src", "more"]\n', **dict.fromkeys(files, CODE)})
    return find_project(tmp_path)


def test_a_module_comes_from_the_first_root_that_has_it(tree: Project) -> None:
    assert resolve.module_file(tree, "pkg") == tree.root / "src/pkg/__init__.py"
    assert resolve.module_file(tree, "pkg.code") == tree.root / "src/pkg/code.py"
    assert resolve.module_file(tree, "other") == tree.root / "more/other.py"
    assert resolve.find_module(tree, "json") is None
    assert resolve.find_module(tree, "a" * 300) is None
    (tree.root / "linked.py").write_text(CODE)  # which is in no root
    (tree.root / "src/linked.py").symlink_to("../linked.py")
    assert resolve.find_module(tree, "linked") is None


def test_unresolved_binding_names_the_missing_part(tree: Project) -> None:
    (tree.root / "src/pkg/broken.py").write_text("def first(:\n")
    for file, name, kind in (("missing", "first", "file"), ("code", "missing", "name"), ("broken", "first", "source")):
        with pytest.raises(Unbound) as caught:
            resolve.function(tree, Binding(f"src/pkg/{file}.py", name))
        assert caught.value.kind == kind


def test_a_subject_is_defined_or_imported_by_its_module(tree: Project) -> None:
    (tree.root / "src/pkg/user.py").write_text("from pkg.code import first, Own\nimport json as tool\nclass Own: ...\n")
    for name in ("first", "tool", "tool.any", "Own", ""):
        assert resolve.target_file(tree, Target("pkg.user", name)) == tree.root / "src/pkg/user.py"
    for name in ("second", "Own.second"):
        with pytest.raises(Unbound) as caught:
            resolve.target_file(tree, Target("pkg.user", name))
        assert caught.value.kind == "name"


FILES = {
    "pkg/__init__.py": "import yaml.nodes",
    "pkg/a.py": "from .b import value\nfrom . import c\nfrom numpy import linalg as algebra",
    "pkg/b.py": "def f():\n    import pkg.sub.deep, json",
    "pkg/c.py": "import typing\nif typing.TYPE_CHECKING:\n    import pkg.unused, torch\nelse:\n    import attr",
    "pkg/sub/deep.py": "from ..a import algebra\nfrom pkg import a",
    "pkg/unused.py": "import pandas",
    **dict.fromkeys(["alone/__init__.py", "alone/one.py"], ""),
}


def test_the_closure_has_every_file_that_may_run(tmp_path: Path) -> None:
    write(tmp_path, {"pyproject.toml": "[tool.pv]\n", **FILES})
    packages = find_project(tmp_path)
    files, foreign = imports.closure(packages, [packages.root / "pkg/a.py"])
    shown = {path.relative_to(packages.root).as_posix() for path in files}
    assert shown == {"pkg/__init__.py", "pkg/a.py", "pkg/b.py", "pkg/c.py", "pkg/sub/deep.py"}
    assert foreign == {"yaml", "numpy", "json", "typing", "attr"}
    files, _ = imports.closure(packages, [packages.root / "alone/one.py"])
    assert {path.name for path in files} == {"__init__.py", "one.py"}


def test_the_nearest_table_counts(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.pv]\nroots = ["src"]\nevidence = "kept"\n')
    below = tmp_path / "src" / "package"
    below.mkdir(parents=True)
    (below / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    project = find_project(below)
    assert (project.root, project.declared) == (tmp_path, True)
    assert project.roots == (tmp_path / "src",)
    assert project.contracts == (tmp_path / "contracts",)
    assert project.evidence == tmp_path / "kept"
    (tmp_path / "pyproject.toml").write_text("[tool.pv]\n")
    project = find_project(below)
    assert (project.root, project.declared) == (tmp_path, True), "an empty table declares a project"


MALFORMED = {
    "[tool]\npv = 1\n": "expected a table",
    "[tool.pv]\nroot = ['.']\n": "unknown key 'root'",
    "[tool.pv]\nroots = '.'\n": "for 'roots' in .*: expected a non-empty list of folders",
    "[tool.pv]\nroots = []\n": "for 'roots' in .*: expected a non-empty list of folders",
    "[tool.pv]\nroots = [1]\n": "invalid value 1 for 'roots' in .*: expected a folder",
    "[tool.pv]\nevidence = '../elsewhere'\n": "expected a folder inside the project",
    '[tool.pv]\nevidence = "a\\u0000b"\n': "for 'evidence' in .*: expected a folder",
    f"[tool.pv]\ncontracts = ['{'a' * 300}']\n": "for 'contracts' in .*: expected a folder",
    "[tool.pv\n": "cannot read",
}


@pytest.mark.parametrize("text", MALFORMED)
def test_a_malformed_table_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(ProjectError, match=MALFORMED[text]):
        find_project(tmp_path)


def test_names_with_an_underscore_are_not_imported_by_a_star(tmp_path: Path) -> None:
    inner = "def shown(): ...\n\n\ndef _hidden(): ...\n"
    write(
        tmp_path,
        {
            "package/__init__.py": "from .inner import *\nfrom .inner import _hidden as known\n",
            "package/inner.py": inner,
        },
    )
    homes = [
        follow_imports(find_project(tmp_path), Target("package", name)).module for name in ("shown", "_hidden", "known")
    ]
    assert homes == ["package.inner", "package", "package.inner"]


CALLED = """
def plain(a, /, b, *, c, d=1): ...
def open_(*args, **more): ...
def partly(a, /, b=0, **more): ...
@wraps(plain)
def wrapped(): ...
class Made:
    def __init__(self, a, b=1): ...
    @staticmethod
    def static(a): ...
    @classmethod
    def of(cls, a): ...
    def method(self, a): ...
@dataclass
class Added:
    def __init__(self): ...
class Inherits(Made): ...
"""


@pytest.mark.parametrize(
    ("name", "count", "keywords", "problem"),
    [
        ("plain", 2, ["c"], ""),
        ("plain", 1, ["c", "b", "d"], ""),
        ("plain", 3, ["c"], "takes 2 positional arguments, got 3"),
        ("plain", 2, ["c", "e"], "has no parameter 'e'"),
        ("plain", 0, ["a", "b", "c"], "has no parameter 'a'"),
        ("plain", 2, ["b", "c"], "gets multiple values for 'b'"),
        ("plain", 1, [], "is missing 'b', 'c'"),
        ("open_", 5, ["x"], ""),
        ("partly", 1, ["a"], ""),
        ("partly", 0, ["a"], "is missing 'a'"),
        ("partly", 2, ["a", "b"], "gets multiple values for 'b'"),
        ("Made", 1, [], ""),
        ("Made", 0, ["b"], "is missing 'a'"),
        ("Made", 3, [], "takes 2 positional arguments, got 3"),
        *((f"Made.{name}", 1, [], "") for name in ("static", "of", "method")),
        *((f"Made.{name}", 2, [], "takes 1 positional arguments, got 2") for name in ("static", "of", "method")),
        *((name, 9, [], None) for name in ("wrapped", "Added", "Inherits", "missing")),
    ],
)
def test_a_call_is_checked_where_the_source_shows_the_parameters(
    tmp_path: Path, name: str, count: int, keywords: list[str], problem: str | None
) -> None:
    write(tmp_path, {"pyproject.toml": "[tool.pv]\n", "called.py": CALLED})
    signature = resolve.parameters(find_project(tmp_path), Target("called", name))
    assert (signature.problem(count, keywords) if signature is not None else None) == problem


NOTHING = {
    "x()": True,
    "return": True,
    "return None": True,
    "if a: return None\n    return": True,
    "if a: return 1\n    return": False,
    "pass": False,
    "'a stub'": False,
    "raise E": False,
    "yield": False,
}


@pytest.mark.parametrize("body", NOTHING)
def test_a_function_without_a_result_is_told_from_a_stub(body: str) -> None:
    (function,) = ast.parse(f"def f():\n    {body}").body
    assert resolve.returns_nothing(function) == NOTHING[body]
    (decorated,) = ast.parse(f"@unknown\ndef f():\n    {body}").body
    assert not resolve.returns_nothing(decorated)


def test_a_file_has_the_name_by_which_it_is_imported(tree: Project) -> None:
    names = ("src/pkg/__init__.py", "src/pkg/code.py", "more/other.py")
    assert [resolve.module_name(tree, tree.root / name) for name in names] == ["pkg", "pkg.code", "other"]
    with pytest.raises(Unbound, match="is outside the roots"):
        resolve.module_name(tree, tree.root / "beside.py")
