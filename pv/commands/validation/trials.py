"""The trials of a validation: which attempt follows from which trial, until nothing is left to try."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from itertools import islice

from pv.commands.validation.attempts import Attempt, Options, PartialEvidence, RunState, Tasks, with_run
from pv.commands.validation.submission import Submission
from pv.contract.finding import Location
from pv.contract.model import Contract, Falsifier, Mutant, Run, Target
from pv.contract.wording import FEW, listed
from pv.engines.engine import Conditions
from pv.engines.registry import engine_of
from pv.engines.run import reference_run
from pv.mutation import scope
from pv.results import store
from pv.results.outcome import (
    Selection,
    counterexample_refutes,
    is_accepted,
    killed,
    kills_equation_mutants,
    name_limit,
    replay_trial,
)
from pv.results.trial import PROOFS, DeviceInfo, Evidence, RunTrace, Trial, TrialStatus, trace_of
from pv.source.project import Project
from pv.workers import device as devices
from pv.workers import tasks
from pv.workers.device import CPU
from pv.workers.pool import Pool
from pv.workers.scheduler import Scheduler

OnTrial = Callable[[Attempt, Falsifier, Trial], None]


class Runs:
    """Executes the runs of a validation, once per subject, device and size, for all falsifiers that read them.

    Args:
        submission: Submits the attempts.
        tasks: Builds the tasks of attempts.
        known: The evidence so far, by id of the contract.
        on_trial: Called for every falsifier whose run failed.
    """

    def __init__(
        self, submission: Submission, tasks: Tasks, known: Mapping[str, PartialEvidence], on_trial: OnTrial
    ) -> None:
        self._submission, self._tasks, self._known, self._on_trial = submission, tasks, known, on_trial

    def read(self, attempt: Attempt, falsifier: Falsifier, run: Run) -> None:
        """Try a falsifier once its run has ended; the first falsifier that reads a run starts it."""
        if self._submission.look_up_read(attempt, falsifier):
            return
        executing = self._tasks.execution(attempt, falsifier, run)
        state = self._known[attempt.contract.id].runs.get(executing.execution)
        if self._submission.cancelled and (state is None or state.trial is None):
            self._submission.cancel(attempt)
            return
        if state is None:
            state = self._started(executing, falsifier, run)
        if state.trial is None:
            state.waiting.append(falsifier)
        else:
            self._predicate(attempt, falsifier, state, state.trial)

    def ended(self, attempt: Attempt, run: Run, trial: Trial) -> None:
        """Record the trial of a run and try the falsifiers that wait for it."""
        state = self._known[attempt.contract.id].runs[attempt.execution]
        state.trial = trial
        state.trace = None if attempt.small else _trace(attempt, self._name(attempt, run), state, trial)
        for falsifier in state.waiting:
            self._predicate(replace(attempt, falsifier=falsifier, run=None, subject=None), falsifier, state, trial)

    def with_run(self, attempt: Attempt, falsifier: Falsifier, trial: Trial) -> Trial:
        """Return a trial with the coverage, the times and the files of the run that its falsifier read."""
        run = engine_of(falsifier).run_of(attempt.contract, falsifier)
        if run is None:
            return trial
        state = self._known[attempt.contract.id].runs.get(self._tasks.execution(attempt, falsifier, run).execution)
        if state is None or state.trial is None:
            return trial
        return with_run(trial, state.trial)

    def _started(self, executing: Attempt, falsifier: Falsifier, run: Run) -> RunState:
        state = RunState(self._submission.scratch())
        self._known[executing.contract.id].runs[executing.execution] = state
        self._submission.execute(executing, falsifier, run, state.directory)
        return state

    def _name(self, attempt: Attempt, run: Run) -> str:
        """Return the name of a run in reports, with the subject if a falsifier replaces the subject of the run."""
        other = attempt.subject != self._tasks.subject(attempt.contract, run)
        return f"{run.name} of {attempt.subject}" if other else run.name

    def _predicate(self, attempt: Attempt, falsifier: Falsifier, state: RunState, run: Trial) -> None:
        if run.status is not TrialStatus.HELD:
            self._on_trial(attempt, falsifier, replace(run, falsifier=falsifier.id))
            return
        self._submission.falsify(attempt, falsifier, Conditions(device=attempt.device, directory=str(state.directory)))


def _trace(attempt: Attempt, name: str, state: RunState, trial: Trial) -> RunTrace | None:
    """Return the trace of a run; None if the run failed or the subject damaged its record."""
    if trial.status is not TrialStatus.HELD:
        return None
    try:
        return trace_of(name, attempt.device, trial.seconds, reference_run.read(state.directory).trace)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


MOST_AUTOMATIC = 20
"""Maximum number of generated mutants for a falsifier without `kills`; `pv mutate` tries all."""


class Mutants:
    """Tries falsifiers that held on mutants: all declared mutants, or generated ones until one is killed.

    Args:
        submission: Submits the attempts.
        tasks: Builds the tasks of attempts.
        runs: Executes runs.
        known: The evidence so far, by id of the contract.
        stale: The locations of mutants that no longer apply, which are left out.
    """

    def __init__(
        self,
        submission: Submission,
        tasks: Tasks,
        runs: Runs,
        known: Mapping[str, PartialEvidence],
        stale: frozenset[Location],
    ) -> None:
        self._submission, self._tasks, self._runs = submission, tasks, runs
        self._known, self._stale = known, stale
        self._drawing = scope.Drawing(tasks.project)

    def start(self, contract: Contract, falsifier: Falsifier) -> None:
        """Try a falsifier on its mutants. One that reads a run must first hold with the run's `small` arguments."""
        run = engine_of(falsifier).run_of(contract, falsifier)
        if not engine_of(falsifier).judged(falsifier):
            return
        # Mutants of a run are judged with its `small` arguments. If these are its usual ones, and the subject is the
        # contract's own, the clean trial already shows that the claim holds there.
        if run is None or (run.small == run.arguments and not self._is_replaced(contract, falsifier)):
            self._try_all(contract, falsifier)
        elif run.small is not None:
            self._runs.read(Attempt(contract=contract, falsifier=falsifier, device="cpu", small=True), falsifier, run)

    def _is_replaced(self, contract: Contract, falsifier: Falsifier) -> bool:
        """Return whether the request replaces the contract's own subject, which mutants are faults of."""
        return self._tasks.subject(contract, falsifier) != self._tasks.subject(contract, falsifier, of_contract=True)

    def after_small_run(self, attempt: Attempt, falsifier: Falsifier, trial: Trial) -> None:
        """Try a falsifier on its mutants if it held on the clean code with the run's `small` arguments."""
        if trial.status is TrialStatus.HELD:
            self._try_all(attempt.contract, falsifier)
            return
        self._known[attempt.contract.id].mutants[falsifier.id, ""] = trial
        self._submission.fail_fast(True)

    def ended(self, attempt: Attempt, falsifier: Falsifier, mutant: Mutant, trial: Trial) -> None:
        """Record a trial on a mutant; if a generated mutant survived, try the next one."""
        self._known[attempt.contract.id].mutants[falsifier.id, mutant.id] = trial
        if falsifier.kills:
            self._submission.fail_fast(trial.status not in (TrialStatus.REFUTED, TrialStatus.RAISED))
        elif not killed(trial):
            self._next_automatic(attempt.contract, falsifier)

    def _try_all(self, contract: Contract, falsifier: Falsifier) -> None:
        # An equation falsifier that killed a mutant of its equation has shown that it can fail.
        evidence = Evidence(trials=self._known[contract.id].trials)
        if not falsifier.kills and not kills_equation_mutants(evidence, falsifier):
            self._next_automatic(contract, falsifier)
        for mutant in map(contract.mutant, falsifier.kills):
            if mutant.location not in self._stale:
                self._try(contract, falsifier, mutant)

    def _next_automatic(self, contract: Contract, falsifier: Falsifier) -> None:
        partial = self._known[contract.id]
        if falsifier.id not in partial.automatic:
            partial.automatic[falsifier.id] = self._draw(
                contract, falsifier, partial.trials[falsifier.id, "cpu"].reached
            )
        partial.drawn[falsifier.id] = partial.drawn.get(falsifier.id, 0) + 1
        for mutant in partial.automatic[falsifier.id]:
            if self._try(contract, falsifier, mutant):
                return
            partial.drawn[falsifier.id] += 1
        partial.drawn[falsifier.id] -= 1

    def _draw(self, contract: Contract, falsifier: Falsifier, reached: frozenset[str]) -> Iterator[Mutant]:
        """Yield generated mutants of the code that a falsifier ran; a mutant is generated when it is tried."""
        subject, seed = self._tasks.subject(contract, falsifier), self._tasks.options.seed
        drawn = self._drawing.some(subject, reached, seed)
        return (automatic.mutant for automatic in islice(drawn, MOST_AUTOMATIC))

    def _try(self, contract: Contract, falsifier: Falsifier, mutant: Mutant) -> bool:
        attempt = Attempt(contract=contract, falsifier=falsifier, device="cpu", mutant=mutant)
        run = engine_of(falsifier).run_of(contract, falsifier)
        return self._submission.falsify(attempt, falsifier, self._on_run(mutant, run) if run is not None else None)

    def _on_run(self, mutant: Mutant, run: Run) -> Conditions:
        """Return the conditions under which one worker executes a run on a mutant and tries the predicate."""
        directory = str(self._submission.scratch())
        return Conditions(device="cpu", mutant=mutant, directory=directory, execute=run.small or {})


GOOD = {TrialStatus.HELD, TrialStatus.SKIPPED, TrialStatus.NOT_CLAIMED}


class Trials:
    """Runs the trials of runnable contracts: claims on the clean code, confirmations of proofs, then mutants.

    Args:
        project: The project of the contracts.
        contracts: The contracts without an error that prevents trials.
        selections: The requested claims and devices, by id of the contract.
        subjects: Requested subjects, by id of the contract.
        options: The options of the validation.
        stale: The locations of mutants that no longer apply.
        absent: The reason why the subject cannot be tried at all; "" if it can.
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
        partial = self._known.get(contract.id, PartialEvidence())
        return Evidence(
            trials=partial.trials,
            mutants=partial.mutants,
            automatic=partial.drawn,
            absent=self._absent,
            interrupted=self.interrupted,
            devices=self.devices,
            runs=tuple(state.trace for state in partial.runs.values() if state.trace is not None),
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
        devices_requested = sorted(
            {device for contract in self.contracts for device in self.selections[contract.id].live}
        )
        with self._pool(preload) as pool:
            self.devices, self._absent = devices.find(pool, self.project, devices_requested, self.options.probe)
            # The loop is driven by its own results: every trial may submit the attempts that follow from it.
            scheduler = Scheduler[Attempt](pool, self.options.on_progress)
            self._prepare(scheduler)
            with self._submission.ordered():
                self._start()
            for attempt, trial in self._submission.trials():
                self._ended(attempt, trial)
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
            differences = listed(reuse.elsewhere, FEW)
            return f"no earlier result is reused, since the environment is another: {differences}", reuse.problem
        counted = f"results reused from earlier validations: {reuse.count}" if reuse.count else ""
        return counted, reuse.problem

    def _prepare(self, scheduler: Scheduler[Attempt]) -> None:
        self._submission = Submission(scheduler, self._tasks, self.options, self._known)
        self._runs = Runs(self._submission, self._tasks, self._known, self._judged)
        self._mutants = Mutants(self._submission, self._tasks, self._runs, self._known, self.stale)

    def _start(self) -> None:
        for contract in self.contracts:
            selection = self.selections[contract.id]
            for falsifier in filter(selection.runs, contract.claims):
                for device in falsifier.devices:
                    if device in selection.live and device in self.devices:
                        self._attack(Attempt(contract=contract, falsifier=falsifier, device=device), falsifier)

    def _attack(self, attempt: Attempt, falsifier: Falsifier) -> None:
        run = engine_of(falsifier).run_of(attempt.contract, falsifier)
        if run is not None:
            self._runs.read(attempt, falsifier, run)
        else:
            self._submission.falsify(attempt, falsifier)

    def _ended(self, attempt: Attempt, trial: Trial) -> None:
        if attempt.falsifier is not None and engine_of(attempt.falsifier).confirms:
            self._confirm(attempt, attempt.falsifier, name_limit(attempt.falsifier, trial))
        elif attempt.falsifier is not None:
            self._judged(attempt, attempt.falsifier, trial)
        elif attempt.run is not None:
            self._runs.ended(attempt, attempt.run, trial)

    def _confirm(self, attempt: Attempt, claim: Falsifier, trial: Trial) -> None:
        """Replay the counterexample of a proof in a fresh worker, and record the result of both."""
        # A symbolic engine may report a counterexample that its model of Python, not the code, gives.
        if attempt.first is not None:
            self._judged(attempt, claim, replay_trial(attempt.first, trial))
        elif counterexample_refutes(trial) and not self.options.replay:
            self._submission.falsify(replace(attempt, first=trial), claim)
        else:
            self._judged(attempt, claim, trial)

    def _judged(self, attempt: Attempt, falsifier: Falsifier, trial: Trial) -> None:
        """Record a trial and submit the attempts that follow from it."""
        if attempt.mutant is not None:
            self._mutants.ended(attempt, falsifier, attempt.mutant, trial)
        elif attempt.small:
            self._mutants.after_small_run(attempt, falsifier, trial)
        else:
            self._clean(attempt, falsifier, self._runs.with_run(attempt, falsifier, trial))

    def _record(self, contract: Contract, falsifier: Falsifier, device: str, trial: Trial) -> None:
        """Write a proof, or a result of another device, to the evidence folder."""
        # Written at once and not at the end: a validation that is killed keeps what it has measured.
        if device == CPU and not (engine_of(falsifier).proves and trial.status is TrialStatus.HELD and trial.reached):
            return
        subject = self._tasks.subject(contract, falsifier)
        fingerprint = store.fingerprint(self.project, contract, falsifier, subject)
        where = PROOFS if device == CPU else device
        trials, prints = {falsifier.id: trial}, {falsifier.id: fingerprint}
        store.write(self.project, contract, where, self.devices[device], trials, prints, commit=self._commit)

    @cached_property
    def _commit(self) -> str:
        """The measured commit, read once: evidence files that are written later must not count as changes."""
        return store.commit_of(self.project.root)

    def _clean(self, attempt: Attempt, falsifier: Falsifier, trial: Trial) -> None:
        """Record a trial on the clean code; a falsifier that held on the CPU is tried on mutants."""
        contract = attempt.contract
        self._known[contract.id].trials[falsifier.id, attempt.device] = trial
        if self.options.record:
            self._record(contract, falsifier, attempt.device, trial)
        if trial.untriable_but is not None:
            self._submission.leave_out(attempt, falsifier, trial)
        if attempt.device == "cpu" and is_accepted(falsifier, trial) and self.selections[contract.id].mutants:
            self._mutants.start(contract, falsifier)
        self._submission.note(falsifier, failed=trial.status not in GOOD)
        self._submission.fail_fast(trial.status not in GOOD)


def _imports_subject(contract: Contract, claim: Falsifier) -> bool:
    """Return whether a worker imports the subject of a claim; a run that is a command does not."""
    run = engine_of(claim).run_of(contract, claim)
    return run is None or run.callable is not None
