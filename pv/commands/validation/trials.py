"""The trials of a validation: which attempt follows from which trial, until nothing is left to try."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property

from pv.commands.validation.attempt import Attempt, Options, PartialEvidence
from pv.commands.validation.mutants import Mutants
from pv.commands.validation.runs import Runs
from pv.commands.validation.submission import Submission
from pv.commands.validation.tasks import Tasks
from pv.contract.claims import Falsifier
from pv.contract.finding import Location
from pv.contract.model import Contract
from pv.contract.names import Target
from pv.contract.wording import FEW, listed
from pv.engines.registry import engine_of
from pv.results import proofs, store
from pv.results.outcome import Selection
from pv.results.trial import PROOFS, DeviceInfo, Evidence, Trial, TrialStatus
from pv.source.project import Project
from pv.workers import device as devices
from pv.workers import tasks
from pv.workers.device import CPU
from pv.workers.pool import Pool
from pv.workers.scheduler import Scheduler

GOOD = {TrialStatus.HELD, TrialStatus.SKIPPED, TrialStatus.NOT_CLAIMED}


class Trials:
    """The trials of contracts that lint found runnable. Mutants at a `stale` location are left out.

    absent: why the subject cannot be tried at all, "" if it can.
    """

    def __init__(
        self,
        project: Project,
        contracts: Sequence[Contract],
        selections: Mapping[str, Selection],
        subjects: Mapping[str, Target],
        options: Options,
        stale: frozenset[Location] = frozenset(),
        absent: str = "",
    ) -> None:
        self.project, self.contracts = project, contracts
        self.selections, self.options = selections, options
        self.stale = stale
        self.devices: dict[str, DeviceInfo] = {}
        self.notes: tuple[str, ...] = ()
        self.interrupted = False
        self._absent = {CPU: absent} if absent else {}
        self._known = {contract.id: PartialEvidence() for contract in contracts}
        self._tasks = Tasks(project, subjects, options)
        self._submission: Submission
        self._runs: Runs
        self._mutants: Mutants

    def evidence(self, contract: Contract) -> Evidence:
        """Return the evidence on a contract so far."""
        known = self._known.get(contract.id, PartialEvidence())
        return Evidence(
            trials=known.trials,
            mutants=known.mutants,
            automatic=known.drawn,
            absent=self._absent,
            interrupted=self.interrupted,
            devices=self.devices,
            runs=tuple(state.trace for state in known.runs.values() if state.trace is not None),
        )

    def fingerprints(self, contract: Contract) -> dict[str, store.Fingerprint]:
        """Return the fingerprint of each falsifier of a contract, by id."""
        return {
            f.id: store.fingerprint(self.project, contract, f, self._tasks.subject(contract, f))
            for f in contract.claims
        }

    def run(self) -> None:
        """Run all trials. A KeyboardInterrupt ends them early, and the evidence so far can be read."""
        try:
            self._run()
        except KeyboardInterrupt:
            self.interrupted = True

    def _run(self) -> None:
        if not self.contracts:
            return
        subjects = {self._tasks.subject(c, f) for c in self.contracts for f in c.claims if _imports_subject(c, f)}
        preload = tasks.preload(self.project, self.contracts, subjects)
        asked = sorted({device for contract in self.contracts for device in self.selections[contract.id].live})
        with self._pool(preload) as pool:
            self.devices, self._absent = devices.find(pool, self.project, asked, self.options.probe)
            scheduler = Scheduler[Attempt](pool, self.options.on_progress)
            self._prepare(scheduler)
            with self._submission.ordered():
                self._start()
            for attempt, found in self._submission.trials():
                self._ended(attempt, found)
            self.notes = tuple(filter(None, (pool.note, *self._reused())))

    def _pool(self, preload: list[str]) -> AbstractContextManager[Pool]:
        options = self.options
        if options.pools is not None:
            return options.pools.pool(preload)
        return Pool(preload, options.jobs, spawn=options.spawn)

    def _reused(self) -> tuple[str, ...]:
        reuse = self.options.reuse
        if reuse is None:
            return ()
        if reuse.elsewhere:
            others = listed(reuse.elsewhere, FEW)
            return f"no earlier result is reused, since the environment is another: {others}", reuse.problem
        counted = f"results reused from earlier validations: {reuse.count}" if reuse.count else ""
        return counted, reuse.problem

    def _prepare(self, scheduler: Scheduler[Attempt]) -> None:
        self._submission = Submission(scheduler, self._tasks, self.options, self._known)
        self._runs = Runs(self._submission, self._tasks, self._known, self._judged)
        self._mutants = Mutants(self._submission, self._tasks, self._runs, self._known, self.stale)

    def _start(self) -> None:
        for contract in self.contracts:
            selection = self.selections[contract.id]
            for falsifier in filter(selection.tries, contract.claims):
                for device in falsifier.devices:
                    if device in selection.live and device in self.devices:
                        self._attack(Attempt(contract=contract, falsifier=falsifier, device=device), falsifier)

    def _attack(self, attempt: Attempt, falsifier: Falsifier) -> None:
        run = engine_of(falsifier).run_of(attempt.contract, falsifier)
        if run is not None:
            self._runs.read(attempt, falsifier, run)
        else:
            self._submission.falsify(attempt, falsifier)

    def _ended(self, attempt: Attempt, found: Trial) -> None:
        if attempt.falsifier is not None and engine_of(attempt.falsifier).confirms:
            self._confirm(attempt, attempt.falsifier, proofs.within(attempt.falsifier, found))
        elif attempt.falsifier is not None:
            self._judged(attempt, attempt.falsifier, found)
        elif attempt.run is not None:
            self._runs.ended(attempt, attempt.run, found)

    def _confirm(self, attempt: Attempt, claim: Falsifier, found: Trial) -> None:
        """Replay a counterexample of a proof in a fresh worker before it counts."""
        if attempt.first is not None:
            self._judged(attempt, claim, proofs.replayed(attempt.first, found))
        elif proofs.refutes(found) and not self.options.replay:
            self._submission.falsify(replace(attempt, first=found), claim)
        else:
            self._judged(attempt, claim, found)

    def _judged(self, attempt: Attempt, falsifier: Falsifier, found: Trial) -> None:
        """Record a trial and start what follows from it."""
        if attempt.mutant is not None:
            self._mutants.ended(attempt, falsifier, attempt.mutant, found)
        elif attempt.small:
            self._mutants.after_small_run(attempt, falsifier, found)
        else:
            self._clean(attempt, falsifier, self._runs.with_run(attempt, falsifier, found))

    def _record(self, contract: Contract, falsifier: Falsifier, device: str, found: Trial) -> None:
        """Write a result of another device, or a proof, at once: a validation that is killed has what came before."""
        if device == CPU and not (engine_of(falsifier).proves and found.status is TrialStatus.HELD and found.reached):
            return
        subject = self._tasks.subject(contract, falsifier)
        fingerprint = store.fingerprint(self.project, contract, falsifier, subject)
        where = PROOFS if device == CPU else device
        trials, prints = {falsifier.id: found}, {falsifier.id: fingerprint}
        store.write(self.project, contract, where, self.devices[device], trials, prints, commit=self._commit)

    @cached_property
    def _commit(self) -> str:
        """The commit that is measured. Files that are recorded meanwhile do not count as changes of it."""
        return store.commit_of(self.project.root)

    def _clean(self, attempt: Attempt, falsifier: Falsifier, found: Trial) -> None:
        """Record a trial on the clean code; a falsifier that held on the CPU is tried on mutants."""
        contract = attempt.contract
        self._known[contract.id].trials[falsifier.id, attempt.device] = found
        if self.options.record:
            self._record(contract, falsifier, attempt.device, found)
        if found.untriable_but is not None:
            self._submission.leave_out(attempt, falsifier, found)
        if attempt.device == "cpu" and proofs.stands(falsifier, found) and self.selections[contract.id].mutants:
            self._mutants.start(contract, falsifier)
        self._submission.note(falsifier, failed=found.status not in GOOD)
        self._submission.fail_fast(found.status not in GOOD)


def _imports_subject(contract: Contract, claim: Falsifier) -> bool:
    """Return whether a worker imports the subject of a claim: not where a command runs it."""
    run = engine_of(claim).run_of(contract, claim)
    return run is None or run.callable is not None
