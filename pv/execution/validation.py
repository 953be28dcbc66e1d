"""The plan of a validation: claims on the clean code, confirmations of counterexamples, then mutants."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from pv.contract.finding import Location
from pv.contract.model import Contract, Falsifier, Mutant
from pv.engines.registry import engine_of
from pv.engines.run import reference_run
from pv.engines.suite.engine import bench_of
from pv.engines.trial import Trial, TrialStatus
from pv.execution.attempt import Attempt, Attempts
from pv.execution.plan import Answer, Cancelled, Finished, Result, Step
from pv.mutation import scope
from pv.mutation.judge import limit_on_mutant
from pv.results.evidence import STOPPED, DeviceInfo, Evidence, RunTrace, trace_of
from pv.results.outcome import (
    KILLED,
    Selection,
    corrected_by_replay,
    killed,
    kills_equation_mutants,
    must_replay,
    name_limit,
    needs_mutants,
)
from pv.workers.device import CPU

MOST_GENERATED = 20
"""Maximum number of generated mutants for a falsifier without `kills`; `pv mutate` tries all."""
GOOD = {TrialStatus.HELD, TrialStatus.SKIPPED, TrialStatus.NOT_CLAIMED}


def supports(attempt: Attempt, trial: Trial) -> bool:
    """Return whether a trial may be cached, because it supports its claim. Other trials are run again."""
    # A killed mutant supports the claim. A generated mutant may survive, so its survival is cached too.
    on_mutant = attempt.mutant is not None
    if trial.status in KILLED:
        return on_mutant
    if trial.status is TrialStatus.NOT_CLAIMED:
        return not on_mutant
    return trial.status is TrialStatus.HELD and not (on_mutant and attempt.claim.kills)


class Validation:
    """The plan that tries the requested claims on all devices; a claim that held on the CPU is then tried on mutants.

    1. A claim that reads a run waits for the run.
    2. A counterexample of a proof counts only after a new worker has confirmed it.
    3. A claim that reads a run must first hold with the run's `small` arguments, since mutants are run with these.
    4. A claim is tried on all mutants that it declares; without any, on generated mutants until one is killed.

    Args:
        contracts: The contracts without an error that prevents trials.
        selections: The requested claims and devices, by id of the contract.
        attempts: Builds the attempts.
        stale: The locations of mutants that no longer apply, which are left out.

    Attributes:
        devices: The available devices, which must be set before the plan starts.
        unavailable: The reason why a device is not available, by name of the device.
        interrupted: Whether Ctrl-C ended the validation.
    """

    def __init__(
        self,
        contracts: Sequence[Contract],
        selections: Mapping[str, Selection],
        attempts: Attempts,
        stale: frozenset[Location] = frozenset(),
    ) -> None:
        self.devices: Mapping[str, DeviceInfo] = {}
        self.unavailable: Mapping[str, str] = {}
        self.interrupted = False
        self._contracts, self._selections, self._attempts, self._stale = contracts, selections, attempts, stale
        # By id of the contract: the trials by (id of the claim, device), or by (id of the claim, id of the mutant).
        self._trials: dict[str, dict[tuple[str, str], Trial]] = defaultdict(dict)
        self._mutants: dict[str, dict[tuple[str, str], Trial]] = defaultdict(dict)
        self._drawn: dict[str, dict[str, int]] = defaultdict(dict)
        """The number of generated mutants that were tried, by ids of contract and claim."""
        self._generated: dict[tuple[str, str], Iterator[Mutant]] = {}
        """The generated mutants that are still to try, by ids of contract and claim."""
        self._traces: dict[Attempt, RunTrace | None] = {}
        """The traces of runs, in the order of the claims that read the runs; None for a run without a valid record."""
        self._drawing = scope.Drawing(attempts.project)

    def evidence(self, contract: Contract) -> Evidence:
        """Return the evidence on a contract so far."""
        return Evidence(
            trials=self._trials[contract.id],
            mutants=self._mutants[contract.id],
            drawn_mutants=self._drawn[contract.id],
            unavailable=self.unavailable,
            interrupted=self.interrupted,
            devices=self.devices,
            runs=tuple(trace for run, trace in self._traces.items() if trace is not None and run.contract is contract),
        )

    def start(self) -> Iterator[Step]:
        for contract in self._contracts:
            selection = self._selections[contract.id]
            for claim in filter(selection.runs, contract.claims):
                for device in claim.devices:
                    if device in selection.active_devices and device in self.devices:
                        yield self._clean_attempt(contract, claim, device)

    def follow(self, event: Finished | Cancelled) -> Iterator[Step]:
        attempt = event.attempt
        if isinstance(event, Cancelled):
            yield from self._record_cancelled(attempt, queued=event.queued)
        elif attempt.executes is not None:
            self._add_trace(event)
        elif not engine_of(attempt.claim).confirms:
            yield from self._record_end(attempt, event.combined_trial)
        else:
            trial = name_limit(attempt.claim, event.trial)
            # A symbolic engine may report a counterexample that is wrong for the code, so replay it in a new worker.
            if attempt.replayed is not None:
                yield from self._record_end(attempt, corrected_by_replay(attempt.replayed, trial))
            elif must_replay(trial) and not attempt.conditions.replay:
                yield self._attempts.confirmation(attempt, trial)
            else:
                yield from self._record_end(attempt, trial)

    def _clean_attempt(
        self, contract: Contract, claim: Falsifier, device: str = CPU, *, small: bool = False
    ) -> Attempt:
        """Return the attempt of a claim on the clean code, and prepare a trace for its run."""
        attempt = self._attempts.clean(contract, claim, device, small=small)
        if attempt.run is not None and not small:
            self._traces.setdefault(attempt.run, None)
        return attempt

    def _record_end(self, attempt: Attempt, trial: Trial) -> Iterator[Step]:
        """Record the result of a claim and yield the steps that follow from it."""
        contract, claim = attempt.contract, attempt.claim
        if attempt.mutant is not None:
            self._mutants[contract.id][claim.id, attempt.mutant.id] = trial
            yield Result(attempt, trial, failed=bool(claim.kills) and trial.status not in KILLED)
            if not claim.kills and not killed(trial):
                yield from self._next_generated(contract, claim)
        elif attempt.small:
            if trial.status is TrialStatus.HELD:
                yield from self._mutant_attempts(contract, claim)
            else:
                self._mutants[contract.id][claim.id, ""] = trial
                yield Result(attempt, trial, failed=True)
        else:
            self._trials[contract.id][claim.id, attempt.device] = trial
            if trial.independent_features is not None:
                yield Answer(lambda other: self._trial_of_other(attempt, trial, other))
            yield Result(attempt, trial, failed=trial.status not in GOOD)
            if attempt.device == CPU and needs_mutants(claim, trial) and self._selections[contract.id].mutants:
                yield from self._start_mutants(contract, claim)

    def _record_cancelled(self, attempt: Attempt, *, queued: bool) -> Iterator[Step]:
        """Record that an attempt was not run."""
        contract, claim = attempt.contract, attempt.claim
        cancelled = Trial(falsifier=claim.id, device=attempt.device, status=TrialStatus.CANCELLED, detail=STOPPED)
        if attempt.mutant is not None:
            self._mutants[contract.id][claim.id, attempt.mutant.id] = replace(cancelled, mutant=attempt.mutant.id)
            # A later generated mutant may have a cached kill. Do not look for cached kills if the attempt was queued:
            # with --fail-fast, to look for them for all queued attempts would take too long.
            if not claim.kills and not queued:
                yield from self._next_generated(contract, claim)
        elif attempt.small:
            self._mutants[contract.id].setdefault((claim.id, ""), cancelled)
        elif attempt.executes is None:
            self._trials[contract.id].setdefault((claim.id, attempt.device), cancelled)

    def _trial_of_other(self, attempt: Attempt, trial: Trial, other: Attempt) -> Trial | None:
        """Return the trial of a queued attempt on a subject that cannot be tried; None if the attempt must be run.

        Args:
            attempt: The attempt that showed that the subject cannot be tried.
            trial: The trial of `attempt`, which `other` gets too unless its claim needs one of `independent_features`.
            other: A queued attempt.
        """
        same_suite = (
            other.executes is None
            and other.contract is attempt.contract
            and other.subject == attempt.subject
            and engine_of(other.claim) is engine_of(attempt.claim)
            and bench_of(other.claim) == bench_of(attempt.claim)
        )
        if not same_suite or (trial.independent_features or frozenset()).intersection(other.claim.options["needs"]):
            return None
        return replace(trial, falsifier=other.claim.id, device=other.device, seconds=0.0, cpu_s=0.0)

    def _start_mutants(self, contract: Contract, claim: Falsifier) -> Iterator[Step]:
        """Yield the attempts that test whether a claim that held detects mutants."""
        run = engine_of(claim).run_of(contract, claim)
        if not engine_of(claim).judged(claim):
            return
        # Mutants are run with the `small` arguments of a run. If these are its usual arguments, and the subject is the
        # subject of the contract, the clean trial already shows that the claim holds with these arguments.
        replaced = self._attempts.subject(contract, claim) != self._attempts.subject(contract, claim, of_contract=True)
        if run is None or (run.small == run.arguments and not replaced):
            yield from self._mutant_attempts(contract, claim)
        elif run.small is not None:
            yield self._clean_attempt(contract, claim, small=True)

    def _mutant_attempts(self, contract: Contract, claim: Falsifier) -> Iterator[Step]:
        """Yield the attempts on the declared mutants; without any, the attempt on the first generated mutant."""
        for mutant in map(contract.mutant, claim.kills):
            if mutant.location not in self._stale:
                yield self._attempts.mutated(contract, claim, mutant)
        # An equation falsifier that killed a mutant of its equation has shown that it can fail.
        if not claim.kills and not kills_equation_mutants(Evidence(trials=self._trials[contract.id]), claim):
            reached, subject = self._trials[contract.id][claim.id, CPU].reached, self._attempts.subject(contract, claim)
            drawn = self._drawing.draw(subject, reached, self._attempts.seed)
            # Generate a mutant only when it is tried, since most claims kill the first one.
            self._generated[contract.id, claim.id] = (automatic.mutant for automatic in islice(drawn, MOST_GENERATED))
            self._drawn[contract.id][claim.id] = 0
            yield from self._next_generated(contract, claim)

    def _next_generated(self, contract: Contract, claim: Falsifier) -> Iterator[Step]:
        """Yield the attempt on the next generated mutant, if one is left."""
        mutant = next(self._generated[contract.id, claim.id], None)
        if mutant is not None:
            self._drawn[contract.id][claim.id] += 1
            clean_limit_s = limit_on_mutant(self._trials[contract.id][claim.id, CPU])
            yield self._attempts.mutated(contract, claim, mutant, clean_limit_s=clean_limit_s)

    def _add_trace(self, finished: Finished) -> None:
        """Add the trace of a run to the evidence, unless the run failed or the subject damaged its record."""
        attempt, trial = finished.attempt, finished.trial
        if attempt not in self._traces or trial.status is not TrialStatus.HELD or finished.directory is None:
            return
        assert attempt.executes is not None
        name = attempt.executes.name
        # A falsifier may replace the subject of the run.
        if attempt.subject != self._attempts.subject(attempt.contract, attempt.executes):
            name = f"{name} of {attempt.subject}"
        try:
            record = reference_run.read(finished.directory)
            self._traces[attempt] = trace_of(name, attempt.device, trial.seconds, record.trace)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return
