"""The mutants of a contract: declared mutants, declared equivalents, and the scope of generated mutants."""

from dataclasses import dataclass

from pv.contract.finding import Location
from pv.contract.names import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """The replacement of one expression or several statements in one function.

    occurrence: the index of the occurrence of `find` that is replaced; None if `find` must occur exactly once.
    """

    function: Target
    find: str
    replace: str
    occurrence: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """The replacement of an object by another one."""

    object: Target
    replacement: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A fault that a falsifier must detect.

    seen_in: where the fault occurred in real code, "" if unknown. killed_by: claims that must detect it too, by their
    ids in the contract's suite.
    """

    id: str
    fault: str
    change: Edit | Swap
    location: Location
    seen_in: str = ""
    killed_by: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """Return the module that the mutant changes."""
        return self.change.function.module if isinstance(self.change, Edit) else self.change.object.module


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalent:
    """A generated mutant that the author declares equivalent, with the reason. It is counted separately."""

    change: Edit
    reason: str
    location: Location


OWN_FILE = ".__init__"
"""The suffix that restricts the name of a package to its `__init__.py`, without the modules of the package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """A name in a contract, with its location."""

    text: str
    location: Location

    def holds(self, function: str) -> bool:
        """Return whether the function `module:qualified.name` is in the module or package of this name."""
        module = function.partition(":")[0]
        if self.text.endswith(OWN_FILE):
            return module == self.text.removesuffix(OWN_FILE)
        return f"{module}.".startswith(f"{self.text}.")  # with dots: the package `a.b` does not hold the module `a.bc`


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationScope:
    """The modules and packages whose generated mutants make up a contract's mutation score.

    judges: ids of other contracts, whose falsifiers judge these mutants too.
    """

    modules: tuple[Name, ...] = ()
    judges: tuple[Name, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the modules and packages."""
        return tuple(module.text for module in self.modules)

    @property
    def judge_ids(self) -> tuple[str, ...]:
        """Return the ids of the judges."""
        return tuple(judge.text for judge in self.judges)

    def holds(self, function: str) -> bool:
        """Return whether the function `module:qualified.name` is in one of the modules and packages."""
        return any(module.holds(function) for module in self.modules)


NO_SCOPE = MutationScope()
"""The scope of a contract without `mutation_scope`."""
