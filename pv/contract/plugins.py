"""Find the engines, suites and report formats of other installed packages by their entry points.

The pyproject.toml of such a package declares them:

[project.entry-points."pv.engines"]
table = "pv_tables.engine:TableEngine"

[project.entry-points."pv.suites"]
my-suite = "my_package.my_suite"

[project.entry-points."pv.formats"]
tsv = "pv_tables.tsv"
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pv.errors import PluginError

ENGINES, SUITES, FORMATS = "pv.engines", "pv.suites", "pv.formats"


@cache
def declared(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, without importing their objects.

    Raises:
        PluginError: Two packages declare the same name.
    """
    by_name: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=group)):
        # An editable install lists the same distribution twice, so equal values are no conflict.
        if point.name in by_name and point.value != by_name[point.name].value:
            first, second = _source(by_name[point.name]), _source(point)
            raise PluginError(f"{first} and {second} both declare {point.name!r} in {group}; uninstall one of them")
        by_name[point.name] = point
    return by_name


@cache
def load(group: str, name: str) -> Any:
    """Return the object of an entry point.

    Args:
        group: `ENGINES`, `SUITES` or `FORMATS`.
        name: The name of a declared entry point.

    Raises:
        PluginError: The object cannot be imported; the message names the package, the entry point and the error.
    """
    point = declared(group)[name]
    try:
        return point.load()
    except Exception as error:  # a package of another author may raise anything at import
        text = f"{type(error).__name__}: {error}"
        raise PluginError(f"{_source(point)} declares {name!r} in {group} as {point.value}: {text}") from error


@cache
def suite_folders() -> dict[str, tuple[Path, Path]]:
    """Return the folders of the suites of other packages, by the name of the suite.

    Returns:
        Pairs of the folder of `sys.path` that holds the package, and the suite's own folder.

    Raises:
        PluginError: The package or the folder of a suite does not exist.
    """
    folders = {}
    for name, point in declared(SUITES).items():
        package, *parts = point.value.split(".")
        # Look up only the top-level package: for a module inside a package, `find_spec` would import the package.
        spec = find_spec(package)
        locations = (spec.submodule_search_locations or ()) if spec is not None else ()
        candidates = (Path(location, *parts) for location in locations)
        folder = next((candidate for candidate in candidates if candidate.is_dir()), None)
        if folder is None:
            raise PluginError(
                f"{_source(point)} declares {name!r} in {SUITES} as {point.value}: no such package or folder"
            )
        folders[name] = (folder.parents[len(parts)].resolve(), folder.resolve())
    return folders


def _source(point: EntryPoint) -> str:
    """Return the name and version of the distribution that declares an entry point."""
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unknown package"
