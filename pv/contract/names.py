"""The names by which a contract refers to code."""

from dataclasses import dataclass
from typing import Any


class UnknownName(LookupError):
    """A claim names a run or mutant that its contract does not declare."""


def hyphen_hint(name: str) -> str:
    """Return a hint for the name of code that cannot be imported because of a hyphen; "" for any other name."""
    return f"Python names have no '-': rename it, such as to {name.replace('-', '_')!r}" if "-" in name else ""


@dataclass(frozen=True, slots=True)
class Binding:
    """`path/to/file.py::name`: a function in a file of the project."""

    file: str
    name: str

    def __str__(self) -> str:
        return f"{self.file}::{self.name}"


@dataclass(frozen=True, slots=True)
class Target:
    """`module` or `module:attribute`: code under contract, or what replaces it."""

    module: str
    attribute: str = ""

    def __str__(self) -> str:
        return f"{self.module}:{self.attribute}" if self.attribute else self.module

    def inside(self, module: Any) -> Any:
        """Return the object that it names, in its imported module."""
        found = module
        for part in self.attribute.split(".") if self.attribute else ():
            found = getattr(found, part)
        return found

    @classmethod
    def parse(cls, text: str) -> "Target":
        module, _, attribute = text.partition(":")
        return cls(module, attribute)
