"""Name the requirements of a project, direct and indirect, that this interpreter lacks, all at once.

python .ci/requirements.py pyproject.toml [EXTRA ...]
"""

import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = "this project"


def missing(requirements: Iterable[str]) -> dict[str, str]:
    """Return by name what is missing, needed by these requirements or by a package that they need, and why.

    Another version is only named where this project itself asks for one: packages often work beyond what they declare.

    Args:
        requirements: as in pyproject.toml. Those whose marker excludes this interpreter are left out.
    """
    absent: dict[str, str] = {}
    pending, seen = [(each, PROJECT) for each in requirements if _holds(each, {""})], set[str]()
    while pending:
        text, whose = pending.pop()
        wanted = Requirement(text)
        extras = wanted.extras or {""}
        key = f"{wanted.name.lower()}{sorted(extras)}"
        try:
            found = distribution(wanted.name)
        except PackageNotFoundError:
            absent[wanted.name] = f"{wanted.name}: missing, needed by {whose}"
            continue
        if whose == PROJECT and not wanted.specifier.contains(found.version, prereleases=True):
            absent[wanted.name] = f"{wanted.name}: {found.version} is installed, {whose} needs {wanted.specifier}"
        if key not in seen and wanted.name != "torch":  # which images build with libraries of their own
            seen.add(key)
            pending += [(each, wanted.name) for each in found.requires or () if _holds(each, extras)]
    return absent


def _holds(text: str, extras: set[str]) -> bool:
    """Return whether a requirement of a package counts with these extras of it."""
    marker = Requirement(text).marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)


def main() -> None:
    """Exit with a line for each requirement that is missing."""
    project = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["project"]
    extras = [each for name in sys.argv[2:] for each in project["optional-dependencies"][name]]
    absent = missing([*project["dependencies"], *extras])
    if absent:
        lines = "\n".join(sorted(absent.values()))
        raise SystemExit(f"{lines}\nput wheels of these packages for this interpreter into the folder PV_WHEELS")
    sys.stdout.write("every required package is installed\n")


if __name__ == "__main__":
    main()
