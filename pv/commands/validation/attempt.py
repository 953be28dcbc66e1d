"""The options of a validation, its attempts, and what is known of each contract so far."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from pv.contract.claims import Falsifier, Run
from pv.contract.model import Contract
from pv.contract.mutants import Mutant
from pv.contract.names import Target
from pv.results.reuse.cache import ResultCache
from pv.results.trial import RunTrace, Trial
from pv.workers import device
from pv.workers.pools import Pools
from pv.workers.scheduler import OnProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a validation; see `pv.validate`.

    record: write proofs and results of other devices than the CPU as they come. reuse: the results of earlier ones.
    pools: workers that outlive it, None for workers of its own.
    """

    jobs: int
    fail_fast: bool = False
    examples: int | None = None
    seed: int = 0
    replay: str = ""
    spawn: bool = False
    probe: device.Probe | None = None
    on_progress: OnProgress | None = None
    record: bool = False
    reuse: ResultCache | None = None
    pools: Pools | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One execution of a run, shared by the falsifiers that read the run of the same subject."""

    run: str
    subject: Target | None
    device: str
    small: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of a falsifier, or where there is none the execution of `run` on `subject`.

    small: whether the run has its `small` arguments, at which mutants are judged. first: the search whose
    counterexample is replayed.
    """

    contract: Contract
    device: str
    falsifier: Falsifier | None = None
    mutant: Mutant | None = None
    run: Run | None = None
    subject: Target | None = None
    small: bool = False
    first: Trial | None = None

    @property
    def execution(self) -> Execution:
        """Return which execution of a run this is."""
        name = self.run.name if self.run is not None else ""
        return Execution(run=name, subject=self.subject, device=self.device, small=self.small)

    def __str__(self) -> str:
        name = self.falsifier.id if self.falsifier is not None else f"run {self.run.name if self.run else ''}"
        return f"{name} / {self.mutant.id}" if self.mutant is not None else name


@dataclass(slots=True)
class RunState:
    """A run that was started: the directory of its record, its trial, and the falsifiers that wait for it."""

    directory: Path
    trial: Trial | None = None
    waiting: list[Falsifier] = field(default_factory=list)
    trace: RunTrace | None = None


def with_run(found: Trial, run: Trial) -> Trial:
    """Return the trial of a predicate with the coverage, the times and the files of the run that it read."""
    seconds, cpu_s, files = found.seconds + run.seconds, found.cpu_s + run.cpu_s, found.files | run.files
    return replace(found, reached=run.reached, seconds=seconds, cpu_s=cpu_s, files=files)


@dataclass(slots=True)
class PartialEvidence:
    """The evidence gathered for one contract so far."""

    trials: dict[tuple[str, str], Trial] = field(default_factory=dict)
    mutants: dict[tuple[str, str], Trial] = field(default_factory=dict)
    runs: dict[Execution, RunState] = field(default_factory=dict)
    automatic: dict[str, Iterator[Mutant]] = field(default_factory=dict)
    """For each falsifier that declares no mutant, the automatic ones that it has not been tried on yet."""
    drawn: dict[str, int] = field(default_factory=dict)
    """Number of automatic mutants that were drawn for each of them so far."""
