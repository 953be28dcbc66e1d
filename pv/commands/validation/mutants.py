"""Tries falsifiers that held on mutants: on the declared ones, or on automatic ones until one is killed."""

from collections.abc import Iterator, Mapping
from itertools import islice

from pv.commands.validation.attempt import Attempt, PartialEvidence
from pv.commands.validation.runs import Runs
from pv.commands.validation.submission import Submission
from pv.commands.validation.tasks import Tasks
from pv.contract.claims import Falsifier, Run
from pv.contract.finding import Location
from pv.contract.model import Contract
from pv.contract.mutants import Mutant
from pv.engines.engine import Conditions
from pv.engines.registry import engine_of
from pv.mutation import scope
from pv.results.judging import kills_equation_mutants
from pv.results.outcome import killed
from pv.results.trial import Evidence, Trial, TrialStatus

MOST_AUTOMATIC = 20
"""Largest number of generated mutants on which a falsifier without `kills` is tried; `pv mutate` tries all."""


class Mutants:
    """The mutant trials of a validation. Mutants at a `stale` location are left out."""

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
        """Try a falsifier on its mutants; one that reads a run must first hold at the run's small arguments."""
        run = engine_of(falsifier).run_of(contract, falsifier)
        if not engine_of(falsifier).judged(falsifier):
            return
        if run is None or (run.small == run.arguments and not self._is_replaced(contract, falsifier)):
            self._try_all(contract, falsifier)
        elif run.small is not None:
            self._runs.read(Attempt(contract=contract, falsifier=falsifier, device="cpu", small=True), falsifier, run)

    def _is_replaced(self, contract: Contract, falsifier: Falsifier) -> bool:
        """Return whether another subject is tried than the contract's own, of which mutants are faults."""
        return self._tasks.subject(contract, falsifier) != self._tasks.subject(contract, falsifier, own=True)

    def after_small_run(self, attempt: Attempt, falsifier: Falsifier, found: Trial) -> None:
        """Try a falsifier on its mutants if it held on the clean code at the run's small arguments."""
        if found.status is TrialStatus.HELD:
            self._try_all(attempt.contract, falsifier)
            return
        self._known[attempt.contract.id].mutants[falsifier.id, ""] = found
        self._submission.fail_fast(True)

    def ended(self, attempt: Attempt, falsifier: Falsifier, mutant: Mutant, found: Trial) -> None:
        """Record a trial on a mutant, and try the next automatic one if this one survived.

        After a failure has ended the validation, the next one that is cached, and those before it were not run.
        """
        self._known[attempt.contract.id].mutants[falsifier.id, mutant.id] = found
        if falsifier.kills:
            self._submission.fail_fast(found.status not in (TrialStatus.REFUTED, TrialStatus.RAISED))
        elif not killed(found):
            self._next_automatic(attempt.contract, falsifier)

    def _try_all(self, contract: Contract, falsifier: Falsifier) -> None:
        evidence = Evidence(trials=self._known[contract.id].trials)
        if not falsifier.kills and not kills_equation_mutants(evidence, falsifier):
            self._next_automatic(contract, falsifier)
        for mutant in map(contract.mutant, falsifier.kills):
            if mutant.location not in self._stale:
                self._try(contract, falsifier, mutant)

    def _next_automatic(self, contract: Contract, falsifier: Falsifier) -> None:
        known = self._known[contract.id]
        if falsifier.id not in known.automatic:
            known.automatic[falsifier.id] = self._draw(contract, falsifier, known.trials[falsifier.id, "cpu"].reached)
        known.drawn[falsifier.id] = known.drawn.get(falsifier.id, 0) + 1  # an interrupt leaves it without its trial
        for mutant in known.automatic[falsifier.id]:
            if self._try(contract, falsifier, mutant):
                return
            known.drawn[falsifier.id] += 1
        known.drawn[falsifier.id] -= 1

    def _draw(self, contract: Contract, falsifier: Falsifier, reached: frozenset[str]) -> Iterator[Mutant]:
        """Yield automatic mutants of the code that a falsifier ran: each is made when it is tried."""
        subject, seed = self._tasks.subject(contract, falsifier), self._tasks.options.seed
        drawn = self._drawing.some(subject, reached, seed)
        return (automatic.mutant for automatic in islice(drawn, MOST_AUTOMATIC))

    def _try(self, contract: Contract, falsifier: Falsifier, mutant: Mutant) -> bool:
        attempt = Attempt(contract=contract, falsifier=falsifier, device="cpu", mutant=mutant)
        run = engine_of(falsifier).run_of(contract, falsifier)
        return self._submission.falsify(attempt, falsifier, self._on_run(mutant, run) if run is not None else None)

    def _on_run(self, mutant: Mutant, run: Run) -> Conditions:
        """Return how to execute a run on a mutant, at its small arguments, and try the predicate in one worker."""
        directory = str(self._submission.scratch())
        return Conditions(device="cpu", mutant=mutant, directory=directory, execute=run.small or {})
