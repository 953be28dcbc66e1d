"""The packages that `pv` requires, and those of its extras, with their installed versions. None is imported."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

DISTRIBUTION = "pv-contracts"
USEFUL = ("trainer", "symbolic", "plot", "tensorboard")
"""The extras for users, in this order; the others are for work on `pv` itself."""
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)\s*(?P<range>[^;]*)(;.*extra == ['\"](?P<extra>[\w-]+)['\"])?")


@dataclass(frozen=True, slots=True)
class Package:
    """A required package. `installed` is its version, "" if there is none; `least` the oldest one that will do."""

    name: str
    requirement: str
    least: str
    installed: str

    @property
    def usable(self) -> bool:
        """Return whether it is installed, and not too old."""
        return bool(self.installed) and _release(self.installed) >= _release(self.least)


def core() -> tuple[Package, ...]:
    """Return the packages that every installation needs."""
    return tuple(package for extra, package in _all() if not extra)


def extras() -> dict[str, tuple[Package, ...]]:
    """Return the packages of each extra for users."""
    found = list(_all())
    return {extra: tuple(package for name, package in found if name == extra) for extra in USEFUL}


def _all() -> Iterator[tuple[str, Package]]:
    for text in requires(DISTRIBUTION) or ():
        if found := _REQUIREMENT.match(text):
            least = re.search(r">=\s*([\w.]+)", found["range"])
            requirement = f"{found['name']}{found['range']}".strip()
            package = Package(found["name"], requirement, least[1] if least else "0", _installed(found["name"]))
            yield found["extra"] or "", package


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _release(text: str) -> tuple[int, ...]:
    """Return the numbers at the start of a version: (2, 13, 0) of 2.13.0+cpu."""
    start = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, start[0].split("."))) if start else ()
