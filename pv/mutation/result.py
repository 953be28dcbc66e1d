"""What a mutation run is asked for, and what it found."""

from collections.abc import Callable
from dataclasses import dataclass

from pv.evidence import Trial
from pv.model import Contract
from pv.mutation.judge import Fate, Judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to mutate and how. Without `sample` every mutant is tried; `widely` also those of what subjects import.

    modules: patterns of the modules to mutate alone, of those that would be. fresh: whether nothing is recalled of
    earlier runs.
    """

    jobs: int
    sample: int | None = None
    seed: int = 0
    widely: bool = False
    modules: tuple[str, ...] = ()
    fresh: bool = False
    spawn: bool = False
    on_progress: Callable[[int, int, tuple[str, ...]], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of a contract's automatic mutants.

    total: how many there are, of which `judged` were tried. unfit: the falsifiers that don't hold on the code itself,
    so that nothing follows from what they say of a mutant. unused, idle: accepted equivalents that are no mutant, and
    places that are to be mutated though no falsifier runs them. mutated: the places that the contract names, where it
    was kept to these. files: what was read of the project meanwhile. restricted: by other falsifiers, or of other code,
    than the contract's score is. elsewhere: what is mutated instead, where none of the modules that were asked for is.
    unrecorded: a score was asked for, and refused for its problems.
    """

    contract: Contract
    falsifiers: tuple[str, ...]
    total: int
    judged: tuple[Judged, ...]
    unfit: tuple[Trial, ...] = ()
    unused: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    mutated: tuple[str, ...] = ()
    files: frozenset[str] = frozenset()
    restricted: bool = False
    unrecorded: bool = False
    elsewhere: str = ""

    @property
    def whole(self) -> bool:
        """Whether every automatic mutant of the contract was tried."""
        return not self.restricted and len(self.judged) == self.total

    def count(self, *fates: Fate) -> int:
        return sum(judged.fate in fates for judged in self.judged)
