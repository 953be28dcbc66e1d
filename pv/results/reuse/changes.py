"""Which files that a result depends on may have changed while it was measured."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR

from pv.results.reuse.dependencies import EVERYTHING
from pv.results.reuse.tree import MISSING, Tree


def changed_since(tree: Tree, dependencies: Iterable[str], moment: int) -> bool:
    """Return whether a file of these changed after a time in nanoseconds: who read it may have read it before."""
    names = {*dependencies}
    if EVERYTHING in names and tree.newest() >= moment:
        return True
    places = {_place(tree, name) for name in names} - {""}
    return any(_changed_at(tree.root / place) >= moment for place in places)


def is_lost(depends: Mapping[str, str]) -> bool:
    """Return whether a file that a worker read has gone since."""
    read = ("import ", "file ", "opened ")
    return any(digest == MISSING and name.startswith(read) for name, digest in depends.items())


def _place(tree: Tree, dependency: str) -> str:
    """Return the file whose change may change a dependency, "" if there is no such file."""
    kind, _, rest = dependency.partition(" ")
    if kind == "function":
        return rest.rpartition(":")[0]
    if kind == "module":
        return tree.digest(dependency)
    return rest if kind in ("import", "file", "opened", "entry") else ""


def _changed_at(path: Path) -> int:
    """Return when a file changed, or was moved here with its time of modification; 0 for a folder, and for nothing."""
    with suppress(OSError):
        states = (path.stat(), path.lstat())
        return max((max(s.st_mtime_ns, s.st_ctime_ns) for s in states if not S_ISDIR(s.st_mode)), default=0)
    return 0
