"""Changes a small project in hundreds of ways, and looks for results that are reused but would be others.

One validation fills the store. Then each change is made, and undone: which claims would be reused is asked of the store
(as `pv why` does), and these are run anew, each in a fresh process. A claim that fails there had a stale result. The
options: `--only TEXT` of the names of changes, `--limit N` changes of functions, `--kinds` for one change of each kind,
as the tests make, `--verbose`.

    python benchmarks/reuse.py
"""

import argparse
import importlib
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from reuse_changes import CHANGES, KINDS, Change
from reuse_claims import CLAIMS, HEAD, LINKS, METADATA

import pv
from pv.commands.explain import reuse_statuses
from pv.contract.model import Edit
from pv.mutation.generate import Module
from pv.results.reuse import cache
from pv.source import syntax
from pv.source.patch import patch
from pv.source.project import find_project


@dataclass
class Counts:
    """How many changes were tried, how many results were asked for, and how many of them were reused."""

    changes: int = 0
    asked: int = 0
    reused: int = 0
    stale: int = 0


def main() -> int:
    """Return the number of stale results, at most 1 as an exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=int, default=10_000)
    parser.add_argument("--kinds", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "project")
        write(root)
        os.chdir(root)
        warm(root)
        functions = [] if options.kinds else list(faults(root))[: options.limit]
        changes = [change for change in CHANGES if change.name in KINDS or not options.kinds] + functions
        counts = Counts()
        for change in changes:
            if options.only in change.name:
                tried(root, change, counts, verbose=options.verbose)
    share = counts.reused / max(counts.asked, 1)
    print(f"{counts.changes} changes, {share:.0%} of {counts.asked} results reused, {counts.stale} stale")
    return min(counts.stale, 1)


def write(root: Path) -> None:
    """Write the project."""
    shutil.copytree(Path(__file__).parent / "reuse_project", root.parent, dirs_exist_ok=True)
    for name, text in METADATA.items():
        written(root / "shop.egg-info" / name, text)
    for name, target in LINKS.items():
        (root / name).symlink_to(target)
    with sqlite3.connect(root / "assets/rows.db") as rows:
        rows.execute("CREATE TABLE rows (name)")
        rows.execute("INSERT INTO rows VALUES ('a')")
    (root / "assets/half.pickle").write_bytes(b"cshop.price\nhalf\n.")
    (root / "contracts").mkdir()
    for subject, claims in CLAIMS.items():
        name = subject.rpartition(".")[2]
        body = "".join(f"def falsify_{c.lower()}(subject):\n{indented(text)}\n\n" for c, text in claims.items())
        (root / f"falsify_{name}.py").write_text(HEAD + body)
        (root / f"contracts/{name}.yaml").write_text(contract(name, subject, claims))


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def contract(name: str, subject: str, claims: dict[str, str]) -> str:
    """Return the contract on a subject, one claim a test."""
    head = f"schema: pv/1\nmetadata: {{id: {name}, version: 1.0.0, description: D, references: [none]}}\n"
    return f"{head}subject: {subject}\nfalsifiers:\n" + "".join(
        f"- {{id: {c}, rule: It holds, prediction: It holds, if_fails: It is wrong, limit: 60,\n"
        f"   test: 'falsify_{name}.py::falsify_{c.lower()}'}}\n"
        for c in claims
    )


def warm(root: Path) -> None:
    """Fill the store from the unchanged project. The packages stay the same, so they are listed once."""
    described = cache.environment()
    variables = [line for line in described if not line.startswith("variable ")]
    cache.environment = lambda: [
        *variables,
        *(f"variable {name}={value}" for name, value in os.environ.items() if name.startswith("SHOP_")),
    ]
    report = pv.validate(project=find_project(root), mutants=False, jobs=2)
    failed = [f"{r.falsifier.id}: {r.reason}" for c in report.contracts for r in c.results if r.outcome.value != "held"]
    assert not failed, "\n".join(failed)
    with closing(cache.ResultCache(find_project(root), watch=False)) as results:
        results.store_report(results.report_key([]), "", 0)
    assert not (again := running(root)), again


def running(root: Path) -> set[str]:
    """Return the claims that would run."""
    return {each.claim for each in reuse_statuses(["*"], find_project(root)) if not each.reused}


def faults(root: Path) -> Iterator[Change]:
    """Yield the generated faults of every function of the project, and one that raises."""
    for path in sorted([*root.glob("shop/**/*.py"), root / "space/left.py"]):
        name = str(path.relative_to(root))
        module = Module(name.removesuffix(".py").removesuffix("/__init__").replace("/", "."), path)
        reached = frozenset(f"{module.name}:{each}" for each, _ in syntax.functions(module.source.tree))
        lines = module.source.text.splitlines(keepends=True)
        for function, node in syntax.functions(module.source.tree):
            place, indent = node.body[0].lineno - 1, " " * node.body[0].col_offset
            text = "".join([*lines[:place], f"{indent}raise KeyError\n", *lines[place:]])
            yield Change(f"raise in {function} of {name}", {name: text})
        for number, each in enumerate(module.mutants(reached)):
            edit = each.mutant.change
            assert isinstance(edit, Edit)
            text = patch(module.source.text, edit.function.attribute, edit.find, edit.replace, edit.occurrence)
            yield Change(f"fault {number} of {name}", {name: text})


def tried(root: Path, change: Change, counts: Counts, *, verbose: bool) -> None:
    """Make a change, count and print the stale results, and undo it. A whole report reuses every result."""
    claims = {claim: subject for subject, each in CLAIMS.items() for claim in each}
    with changed(root, change):
        reused = set(claims) if is_whole(root) else set(claims) - running(root)
        cold = {claim: claims[claim] for claim in reused}
        stale = [] if hold(cold) else sorted(claim for claim in reused if not hold({claim: claims[claim]}))
    counts.changes += 1
    counts.asked += len(claims)
    counts.reused += len(reused)
    counts.stale += len(stale)
    if stale or verbose:
        print(f"{change.name}: {len(reused)} of {len(claims)} reused; stale: {', '.join(stale) or 'none'}", flush=True)


def is_whole(root: Path) -> bool:
    """Return whether the report of the whole project would be reused."""
    with closing(cache.ResultCache(find_project(root), watch=False)) as results:
        return results.lookup_report(results.report_key([])) is not None


def hold(claims: Mapping[str, str]) -> bool:
    """Return whether claims hold, given with their subjects, one after the other in a fresh process as of a worker."""
    if (child := os.fork()) == 0:
        status = 1
        with suppress(BaseException):
            sys.path.insert(0, str(Path.cwd()))
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            for claim, subject in claims.items():
                tests = importlib.import_module(f"falsify_{subject.rpartition('.')[2]}")
                getattr(tests, f"falsify_{claim.lower()}")(importlib.import_module(subject))
            status = 0
        os._exit(status)
    return os.waitpid(child, 0)[1] == 0


@contextmanager
def changed(root: Path, change: Change) -> Iterator[None]:
    """Make a change, and undo it. What a change touches is kept beside the project meanwhile."""
    files: dict[str, str | None] = dict(change.files)
    if change.edit is not None:
        name, find, replace = change.edit
        text = (root / name).read_text()
        assert find in text, change
        files[name] = text.replace(find, replace, 1)
    tops = {name.split("/")[0] if not name.startswith("..") else name for name in (*files, *change.links)}
    for top in tops:
        copied(root / top, root.parent / "kept" / top.strip("./"))
    with patched(change.variables):
        try:
            for name, new in files.items():
                (root / name).unlink() if new is None else written(root / name, new)
            for name, target in change.links.items():
                (root / name).unlink()
                (root / name).symlink_to(target)
            yield
        finally:
            for top in tops:
                copied(root.parent / "kept" / top.strip("./"), root / top)


def written(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def copied(source: Path, target: Path) -> None:
    """Make the target the same as the source, which may not exist."""
    if target.is_dir():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    elif source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


@contextmanager
def patched(variables: Mapping[str, str]) -> Iterator[None]:
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


if __name__ == "__main__":
    sys.exit(main())
