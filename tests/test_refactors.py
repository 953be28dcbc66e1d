"""Renaming private functions and local variables of the trainer gives no finding in any contract.

All are renamed together first; if that gives a finding, they are renamed one at a time to tell which one it is.

The renames are made by syntax tree in a copy of the project. A file is parsed again only if it changed, and only
contracts that name one of its modules are linted.
"""

import ast
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pv.contract.load import load
from pv.contract.model import Contract
from pv.linting import lint
from pv.source.project import find_project

ROOT = Path(__file__).parents[1]
PACKAGE = "reference_trainer"
COPIED = (PACKAGE, "contracts", "falsifiers")
LOCALS = 100
NEW = "renamed_by_a_refactor"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (*FUNCTIONS, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True)
class Rename:
    """One rename: of a private function in the whole package, or of a local variable in one function."""

    name: str
    function: tuple[str, str] | None = None
    """The file and the line of the function whose local variable is renamed."""

    @property
    def new(self) -> str:
        return f"{'_' if self.name.startswith('_') else ''}{NEW}_{self.name.strip('_')}"

    def __str__(self) -> str:
        return self.name if self.function is None else f"{self.name} in {self.function[0]}:{self.function[1]}"

    def of(self, file: str, tree: ast.Module) -> ast.Module:
        """Return the tree of a file after the rename."""
        if self.function is None:
            return _Everywhere(self).visit(tree)
        if file == self.function[0]:
            for node in ast.walk(tree):
                if isinstance(node, FUNCTIONS) and str(node.lineno) == self.function[1]:
                    _Names(self).visit(node)
        return tree


class _Names(ast.NodeTransformer):
    """Renames a variable."""

    def __init__(self, rename: Rename) -> None:
        self.name, self.new = rename.name, rename.new

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.new if node.id == self.name else node.id
        return node


class _Everywhere(_Names):
    """Renames a private function or method: its definition, its imports, and every use by name or as an attribute."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self.new if node.name == self.name else node.name
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        node.attr = self.new if node.attr == self.name else node.attr
        return self.generic_visit(node)

    def visit_alias(self, node: ast.alias) -> ast.AST:
        node.name = self.new if node.name == self.name else node.name
        return node


class Copy:
    """A copy of the project, in which a refactor is made, linted and undone."""

    def __init__(self, folder: Path) -> None:
        for name in COPIED:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        self.folder, self.project = folder, find_project(folder)
        self.files = {str(p.relative_to(folder)): p.read_text() for p in sorted((folder / PACKAGE).rglob("*.py"))}
        self.contracts = load(self.project.contracts).contracts
        self.texts = {contract.id: contract.location.path.read_text() for contract in self.contracts}
        self.before = self.findings(self.contracts)

    def findings(self, contracts: tuple[Contract, ...]) -> frozenset[str]:
        return frozenset(f"{f.code} {f.location.path.name}: {f.message}" for f in lint(contracts, project=self.project))

    def new_findings(self, *renames: Rename) -> frozenset[str]:
        """Return the findings that renames cause together."""
        changed = {file: new for file in self.files if (new := self.renamed(file, renames))}
        modules = [
            Path(file).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__") for file in changed
        ]
        named = tuple(c for c in self.contracts if any(module in self.texts[c.id] for module in modules))
        times = {file: (self.folder / file).stat().st_mtime_ns for file in changed}
        for file, text in changed.items():
            (self.folder / file).write_text(text)
        try:
            return self.findings(named) - self.before
        finally:
            for file, time in times.items():  # with its old time, a file that was parsed before is not parsed again
                (self.folder / file).write_text(self.files[file])
                os.utime(self.folder / file, ns=(time, time))

    def renamed(self, file: str, renames: Sequence[Rename]) -> str:
        """Return the text of a file after renames; "" if it does not change."""
        tree = ast.parse(self.files[file])
        before = ast.unparse(tree)
        for rename in renames:
            if rename.name in self.files[file]:
                tree = rename.of(file, tree)
        after = ast.unparse(tree)
        return after if after != before else ""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_functions(copy: Copy) -> list[Rename]:
    nodes = (node for text in copy.files.values() for node in ast.walk(ast.parse(text)))
    return [Rename(name) for name in sorted({n.name for n in nodes if isinstance(n, FUNCTIONS) and is_private(n.name)})]


def local_variables(copy: Copy) -> list[Rename]:
    found = []
    for file, text in copy.files.items():
        for node in ast.parse(text).body:
            for function in (each for each in ast.walk(node) if isinstance(each, FUNCTIONS)):
                found += [Rename(name, (file, str(function.lineno))) for name in sorted(_locals(function))]
    return found


def _locals(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the variables that a function assigns itself and binds in no other way, in it or in functions inside."""
    assigned = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return assigned - set(_bound_otherwise(function))


def _bound_otherwise(function: ast.AST) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Global | ast.Nonlocal):
            yield from node.names
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[0]
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar | ast.ClassDef | ast.FunctionDef):
            yield node.name or ""
        if isinstance(node, SCOPES) and node is not function:  # its own variables are renamed with it
            yield from (n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


def sample_of_locals(copy: Copy) -> list[Rename]:
    return random.Random(0).sample(local_variables(copy), LOCALS)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("refactors"))


@pytest.mark.parametrize("renames_of", [private_functions, sample_of_locals])
def test_renames_give_no_finding(copy: Copy, renames_of: Callable[[Copy], list[Rename]]) -> None:
    renames = renames_of(copy)
    suspects = renames if copy.new_findings(*renames) else []
    broken = {str(rename): sorted(found) for rename in suspects if (found := copy.new_findings(rename))}
    lines = [f"{name}: {len(found)} findings, such as {found[0]}" for name, found in broken.items()]
    assert len(broken) <= 0.02 * len(renames), f"{len(broken)} of {len(renames)} renames:\n" + "\n".join(lines)


def test_a_rename_of_public_names_is_noticed(copy: Copy) -> None:
    assert any("PV1" in found for found in copy.new_findings(Rename("kd_loss")))
    assert copy.findings(copy.contracts) == copy.before, "the refactor was undone"
