"""The result of a mutation run."""

from dataclasses import dataclass

from pv.contract.model import Contract
from pv.mutation.judge import Judged, MutantStatus
from pv.results.trial import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationResult:
    """The generated mutants of a contract with their statuses."""

    contract: Contract
    falsifiers: tuple[str, ...]
    # The number of generated mutants; `judged` holds the mutants that were tried.
    total: int
    judged: tuple[Judged, ...]
    # Trials of falsifiers that do not hold on the clean code and were therefore not used.
    unfit: tuple[Trial, ...] = ()
    # Declared equivalents that match no generated mutant.
    unused: tuple[str, ...] = ()
    # Modules in `mutation_scope` of which no falsifier executes anything.
    idle: tuple[str, ...] = ()
    # The modules that `mutation_scope` names.
    scope: tuple[str, ...] = ()
    # The project files that were read.
    files: frozenset[str] = frozenset()
    # The falsifiers or modules are not those of the contract's score.
    restricted: bool = False
    # The score was not recorded because of its problems.
    unrecorded: bool = False
    # The reason why nothing is mutated; "" if something is.
    elsewhere: str = ""

    @property
    def whole(self) -> bool:
        """Return whether every generated mutant of the contract was tried."""
        return not self.restricted and len(self.judged) == self.total

    def count(self, *statuses: MutantStatus) -> int:
        return sum(judged.status in statuses for judged in self.judged)
