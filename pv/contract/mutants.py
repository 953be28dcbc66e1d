"""The mutants of a contract: declared mutants, declared equivalents, and the scope of generated mutants."""

from dataclasses import dataclass

from pv.contract.finding import Location
from pv.contract.names import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Replace one expression or run of statements in one function.

    occurrence: which occurrence of `find`, from 0; None where it must be the only one.
    """

    function: Target
    find: str
    replace: str
    occurrence: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """Replace an object by another one."""

    object: Target
    replacement: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A fault that a falsifier must detect. seen_in: where it occurred in real code, "" if unknown."""

    id: str
    fault: str
    change: Edit | Swap
    location: Location
    seen_in: str = ""

    @property
    def module(self) -> str:
        return self.change.function.module if isinstance(self.change, Edit) else self.change.object.module


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalent:
    """A generated mutant declared equivalent, with the reason. It is counted separately."""

    change: Edit
    reason: str
    location: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutated:
    """A module, class or function whose generated mutants make up a contract's score."""

    target: Target
    location: Location

    def holds(self, function: str) -> bool:
        """Return whether `module:qualified.name` is the target or inside it."""
        module, _, name = function.partition(":")
        if not self.target.attribute:
            return f"{module}.".startswith(f"{self.target.module}.")
        return module == self.target.module and f"{name}.".startswith(f"{self.target.attribute}.")
