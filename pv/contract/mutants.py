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
    """A fault that a falsifier must detect.

    seen_in: where it occurred in real code, "" if unknown. killed_by: claims of the contract's suite, with their ids
    there, which must detect it, too.
    """

    id: str
    fault: str
    change: Edit | Swap
    location: Location
    seen_in: str = ""
    killed_by: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        return self.change.function.module if isinstance(self.change, Edit) else self.change.object.module


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalent:
    """A generated mutant declared equivalent, with the reason. It is counted separately."""

    change: Edit
    reason: str
    location: Location


OWN_FILE = ".__init__"
"""The end of a name that means the `__init__.py` of a package, without the modules of the package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """A name in a contract, with its location."""

    text: str
    location: Location

    def holds(self, function: str) -> bool:
        """Return whether `module:qualified.name` is in the module or package of this name."""
        module = function.partition(":")[0]
        if self.text.endswith(OWN_FILE):
            return module == self.text.removesuffix(OWN_FILE)
        return f"{module}.".startswith(f"{self.text}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationScope:
    """The modules and packages whose generated mutants make up a contract's score, and who else judges them.

    judges: ids of other contracts, whose falsifiers judge these mutants too.
    """

    modules: tuple[Name, ...] = ()
    judges: tuple[Name, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of its modules and packages."""
        return tuple(each.text for each in self.modules)

    @property
    def judge_ids(self) -> tuple[str, ...]:
        """Return the ids of its judges."""
        return tuple(each.text for each in self.judges)

    def holds(self, function: str) -> bool:
        """Return whether `module:qualified.name` is in one of its modules and packages."""
        return any(each.holds(function) for each in self.modules)


NO_SCOPE = MutationScope()
"""The scope of a contract that names none."""
