"""Read the `[tool.pv]` table of a project; decide whether a file belongs to the user, to `pv` or to a library."""

import sysconfig
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pv.contract import plugins
from pv.errors import ProjectError

KEYS = {"roots", "contracts", "evidence"}
HOME = Path(__file__).resolve().parents[2]
"""The folder that holds the package `pv`."""
SUITES = HOME / "pv" / "suites"
"""The folder of the conformance suites of `pv`. The contracts of every project can name code in this folder."""
_CACHES = (".git", ".hypothesis", "__pycache__", "node_modules")
_INSTALLED = ("/site-packages/", "/dist-packages/", f"{sysconfig.get_path('stdlib')}/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The folders of a project.

    Attributes:
        root: The folder of the pyproject.toml; without a `[tool.pv]` table, the folder where the search started.
        roots: The folders that code under contract is imported from, in this order. Only the code of suites is imported
            from other folders, see `suite_homes`.
        contracts: The folders of the contracts, or single files.
        evidence: The folder of recorded evidence.
        declared: Whether a `[tool.pv]` table exists.
    """

    root: Path
    roots: tuple[Path, ...]
    contracts: tuple[Path, ...]
    evidence: Path
    declared: bool


def find_project(start: str | Path) -> Project:
    """Return the project of the nearest pyproject.toml with a `[tool.pv]` table; without one, `start` is the root.

    Args:
        start: The folder to search, with all folders above it.

    Raises:
        ProjectError: A pyproject.toml cannot be read or is a broken link, or the table is invalid.
    """
    start = Path(start).resolve()
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        if file.is_symlink() and not file.exists():
            raise ProjectError(f"{file}: broken symbolic link")
        # A pyproject.toml without the table belongs to a part of the project: continue in the folders above.
        table = _read_table(file) if file.is_file() else None
        if table is not None:
            return _project(folder, file, table)
    return Project(
        root=start, roots=(start,), contracts=(start / "contracts",), evidence=start / "evidence", declared=False
    )


@cache
def suite_homes() -> tuple[tuple[Path, Path], ...]:
    """Return the folders of the conformance suites of `pv` and of other packages.

    Returns:
        Pairs of the folder that the modules of a suite are imported from, and the folder of the suite.

    Raises:
        PluginError: A declared suite of another package does not exist.
    """
    return ((HOME, SUITES), *plugins.suite_folders().values())


def is_shipped(path: Path) -> bool:
    """Return whether a file belongs to a conformance suite of `pv` or of another package."""
    return any(path.is_relative_to(folder) for _, folder in suite_homes())


def is_user_code(file: str) -> bool:
    """Return whether a source file belongs to the user, and not to `pv`, Python or an installed package."""
    # The file name of code that was not read from a file is a text such as `<string>`.
    return file[:1] != "<" and not is_installed(file) and not Path(file).is_relative_to(HOME / "pv")


def is_cache(folder: Path) -> bool:
    """Return whether a folder is `.git` or `node_modules`, a virtual environment, or the cache of Python or a tool."""
    try:
        if folder.name in _CACHES or any((folder / mark).exists() for mark in ("pyvenv.cfg", "CACHEDIR.TAG")):
            return True
        # Tools such as mypy, ruff and pytest write a .gitignore with `*` into their caches.
        return folder.name.startswith(".") and (folder / ".gitignore").read_bytes().split()[-1:] == [b"*"]
    except OSError:
        return False


def is_installed(file: str) -> bool:
    """Return whether a file belongs to Python or to an installed package; its environment may be inside a project."""
    return any(part in file for part in _INSTALLED)


def _read_table(file: Path) -> dict[str, object] | None:
    """Return the `[tool.pv]` table of a pyproject.toml, None if it has no such table. Raise ProjectError."""
    try:
        tool = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ProjectError(f"cannot read {file}: {error}") from error
    table = tool.get("pv") if isinstance(tool, dict) else None
    if table is None or isinstance(table, dict):
        return table
    raise ProjectError(f"{file}: invalid [tool.pv]: expected a table")


def _project(folder: Path, file: Path, table: dict[str, object]) -> Project:
    unknown = sorted(set(table) - KEYS)
    if unknown:
        raise ProjectError(f"{file}: unknown key {unknown[0]!r} in [tool.pv] (choose from {', '.join(sorted(KEYS))})")
    return Project(
        root=folder,
        roots=_folders(folder, file, table, "roots", "."),
        contracts=_folders(folder, file, table, "contracts", "contracts"),
        evidence=_inside(folder, file, "evidence", table.get("evidence", "evidence")),
        declared=True,
    )


def _folders(folder: Path, file: Path, table: dict[str, object], key: str, default: str) -> tuple[Path, ...]:
    value = table.get(key, [default])
    if not isinstance(value, list) or not value:
        raise ProjectError(_invalid(file, key, value, "a non-empty list of folders"))
    return tuple(_inside(folder, file, key, item) for item in value)


def _inside(folder: Path, file: Path, key: str, item: object) -> Path:
    """Return the path of one folder in the value of `key`. Raise ProjectError unless it is inside the project."""
    if not isinstance(item, str):
        raise ProjectError(_invalid(file, key, item, "a folder"))
    try:
        path = (folder / item).resolve()
        is_broken = (folder / item).is_symlink() and not path.exists()
    except RuntimeError as error:  # a link to itself, before Python 3.13
        raise ProjectError(f"{folder / item}: circular symbolic link") from error
    except (OSError, ValueError) as error:  # a name that is too long, or has a NUL
        raise ProjectError(_invalid(file, key, item, "a folder")) from error
    if is_broken:
        raise ProjectError(f"{folder / item}: broken symbolic link to {path}")
    if not path.is_relative_to(folder):
        raise ProjectError(_invalid(file, key, item, "a folder inside the project"))
    return path


def _invalid(file: Path, key: str, value: object, expected: str) -> str:
    return f"{file}: invalid value {value!r} for {key!r} in [tool.pv]: expected {expected}"
