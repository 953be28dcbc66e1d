"""CPU seconds of `pv validate` after a change of one function, as a share of those without results.

A project is cloned and validated once. Then functions of one of its packages are drawn; each in turn gets one more
statement, which does nothing, and the clone is validated again. Seconds are summed over all processes.

    python benchmarks/changes.py [--functions N] [--seed S] [--project REPOSITORY] [--package FOLDER]
"""

import ast
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import NamedTuple

from pv.source import syntax


class Place(NamedTuple):
    """A function: its file, its name, and the line and column of its first statement after the docstring."""

    path: Path
    name: str
    line: int
    column: int


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--functions", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--project", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--package", default="reference_trainer")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "clone")
        subprocess.run(["git", "clone", "--quiet", options.project, root], check=True)
        whole, wall = validated(root)
        print(f"{'CPU s':>7} {'share':>6} {'s':>6}  changed\n{whole:7.1f} {'':6} {wall:6.1f}  everything", flush=True)
        drawn = random.Random(options.seed).sample(places(root, options.package), options.functions)
        shares = [changed(root, place, whole) for place in drawn]
    print(f"median of {len(shares)} functions: {statistics.median(shares):.1%}")


def places(root: Path, package: str) -> list[Place]:
    """Return every function of the package that has a statement on a line of its own."""
    return [
        Place(path, name, node.body[-1].lineno, node.body[-1].col_offset)
        for path in sorted((root / package).rglob("*.py"))
        for name, node in syntax.functions(ast.parse(path.read_bytes()))
        if not syntax.is_text(node.body[-1]) and node.body[-1].lineno > node.lineno
    ]


def changed(root: Path, place: Place, whole: float) -> float:
    """Change a function, and return the share of the CPU seconds that a validation then takes."""
    text = place.path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    lines.insert(place.line - 1, f"{' ' * place.column}0\n")
    place.path.write_text("".join(lines), encoding="utf-8")
    cpu, wall = validated(root)
    place.path.write_text(text, encoding="utf-8")
    name = f"{place.path.relative_to(root)}:{place.name}"
    print(f"{cpu:7.1f} {cpu / whole:6.1%} {wall:6.1f}  {name}", flush=True)
    return cpu / whole


def validated(root: Path) -> tuple[float, float]:
    """Validate, and return the seconds of CPU and wall time."""
    before, began = cpu_seconds(), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pv", "validate"], cwd=root, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return cpu_seconds() - before, time.monotonic() - began


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
