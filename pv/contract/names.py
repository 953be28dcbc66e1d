"""The names by which a contract refers to code: `Binding` of a test function, `Target` of a subject."""

from dataclasses import dataclass
from typing import Any


class UnknownName(LookupError):
    """A claim refers to a run or mutant that its contract does not declare."""


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
        """Return the object of this target; `module` is the imported module. Raise AttributeError."""
        value = module  # step by step, since `getattr` takes no dotted name
        for part in self.attribute.split(".") if self.attribute else ():
            value = getattr(value, part)
        return value

    @classmethod
    def parse(cls, text: str) -> "Target":
        """Return the target that `module` or `module:attribute` names."""
        module, _, attribute = text.partition(":")
        return cls(module, attribute)
