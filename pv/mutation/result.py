"""The options and the result of a mutation run."""

from dataclasses import dataclass

from pv.contract.model import Contract
from pv.mutation.judge import Judged, MutantStatus
from pv.results.trial import Trial
from pv.workers.scheduler import OnProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The options of a mutation run.

    sample: the number of mutants to draw, None for all. widely: also mutate the modules that the subjects import.
    modules: patterns of the only modules to mutate. fresh: ignore cached results.
    """

    jobs: int
    sample: int | None = None
    seed: int = 0
    widely: bool = False
    modules: tuple[str, ...] = ()
    fresh: bool = False
    spawn: bool = False
    on_progress: OnProgress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationResult:
    """The generated mutants of a contract with their statuses.

    total: the number of mutants, of which `judged` were tried. unfit: trials of falsifiers that do not hold on the
    clean code, and so were not used. unused: declared equivalents that match no generated mutant. idle: modules in
    `mutation_scope` of which no falsifier executes anything. scope: the modules that `mutation_scope` names. files: the
    project files that were read. restricted: the falsifiers or modules are not those of the contract's score.
    elsewhere: why nothing is mutated here, "" if something is. unrecorded: the score was not recorded because of its
    problems.
    """

    contract: Contract
    falsifiers: tuple[str, ...]
    total: int
    judged: tuple[Judged, ...]
    unfit: tuple[Trial, ...] = ()
    unused: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    files: frozenset[str] = frozenset()
    restricted: bool = False
    unrecorded: bool = False
    elsewhere: str = ""

    @property
    def whole(self) -> bool:
        """Return whether every generated mutant of the contract was tried."""
        return not self.restricted and len(self.judged) == self.total

    def count(self, *statuses: MutantStatus) -> int:
        return sum(judged.status in statuses for judged in self.judged)
