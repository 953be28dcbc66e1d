"""Executes the runs of a validation, each once per subject, device and size, for all falsifiers that read it."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from pv.commands.validation.attempt import Attempt, PartialEvidence, RunState, with_run
from pv.commands.validation.submission import Submission
from pv.commands.validation.tasks import Tasks
from pv.contract.claims import Falsifier, Run
from pv.engines.engine import Conditions
from pv.engines.registry import engine_of
from pv.engines.run import reference_run
from pv.results.traces import trace_of
from pv.results.trial import RunTrace, Trial, TrialStatus

OnTrial = Callable[[Attempt, Falsifier, Trial], None]


class Runs:
    """The runs of a validation. `on_trial` is called for each falsifier whose run failed."""

    def __init__(
        self, submission: Submission, tasks: Tasks, known: Mapping[str, PartialEvidence], on_trial: OnTrial
    ) -> None:
        self._submission, self._tasks, self._known, self._on_trial = submission, tasks, known, on_trial

    def read(self, attempt: Attempt, falsifier: Falsifier, run: Run) -> None:
        """Try a falsifier on a run once that has ended; the first falsifier that reads a run starts it."""
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

    def ended(self, attempt: Attempt, run: Run, found: Trial) -> None:
        """Record the trial of a run and try the falsifiers that wait for it."""
        state = self._known[attempt.contract.id].runs[attempt.execution]
        state.trial = found
        state.trace = None if attempt.small else _trace(attempt, self._name(attempt, run), state, found)
        for falsifier in state.waiting:
            self._predicate(replace(attempt, falsifier=falsifier, run=None, subject=None), falsifier, state, found)

    def with_run(self, attempt: Attempt, falsifier: Falsifier, found: Trial) -> Trial:
        """Return a trial with the coverage, the times and the files of the run that its falsifier read."""
        run = engine_of(falsifier).run_of(attempt.contract, falsifier)
        if run is None:
            return found
        state = self._known[attempt.contract.id].runs.get(self._tasks.execution(attempt, falsifier, run).execution)
        if state is None or state.trial is None:
            return found
        return with_run(found, state.trial)

    def _started(self, executing: Attempt, falsifier: Falsifier, run: Run) -> RunState:
        state = RunState(self._submission.scratch())
        self._known[executing.contract.id].runs[executing.execution] = state
        self._submission.execute(executing, falsifier, run, state.directory)
        return state

    def _name(self, attempt: Attempt, run: Run) -> str:
        """Return the name of a run in reports, with the subject if a falsifier names another than the run."""
        other = attempt.subject != self._tasks.subject(attempt.contract, run)
        return f"{run.name} of {attempt.subject}" if other else run.name

    def _predicate(self, attempt: Attempt, falsifier: Falsifier, state: RunState, run: Trial) -> None:
        if run.status is not TrialStatus.HELD:
            self._on_trial(attempt, falsifier, replace(run, falsifier=falsifier.id))
            return
        self._submission.falsify(attempt, falsifier, Conditions(device=attempt.device, directory=str(state.directory)))


def _trace(attempt: Attempt, name: str, state: RunState, found: Trial) -> RunTrace | None:
    """Return the trace of a run that finished. The subject may have damaged its record: then there is none."""
    if found.status is not TrialStatus.HELD:
        return None
    try:
        return trace_of(name, attempt.device, found.seconds, reference_run.read(state.directory).trace)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
