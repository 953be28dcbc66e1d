"""Run a training script under observation, and judge its traces: `pv check -- COMMAND`."""

import contextlib
import shlex
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pv.commands.naming import claim_hint, expand_topics
from pv.commands.plan import matches
from pv.commands.resumed import ComparedRuns, Interruptions
from pv.contract.load import load_file
from pv.contract.model import Contract
from pv.contract.suites import OBSERVED, for_observed_run, suites
from pv.contract.wording import count
from pv.engines.trial import Code, Counterexample, Trial, TrialStatus
from pv.errors import UsageError
from pv.observe import launch
from pv.results import steps
from pv.results.evidence import Evidence
from pv.results.outcome import Outcome, Selection
from pv.results.steps import ObservedStep
from pv.results.verdict import Report, Status, decide
from pv.suites.training_run.claim import is_finite
from pv.suites.training_run.claims import Finding, Record, judge
from pv.suites.training_run.run import Run, Window, read_folder


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ObservedRun:
    """A run of a script, its traces, and the results of the claims.

    Attributes:
        contract: All claims about a run.
        records: The number of checked facts and the findings of every chosen claim, by id.
        report: The results as a report of `pv`, for output in other formats.
        status: The exit status of the command; None if only traces were judged.
        run: The traces.
        command: The command as it was given; "" if only traces were judged.
    """

    contract: Contract
    records: Mapping[str, Record]
    report: Report
    status: int | None
    run: Run
    command: str

    def __str__(self) -> str:
        """Return the report as `pv check -- COMMAND` prints it, for `assert run.falsified == [], str(run)`."""
        return render(self).rstrip("\n")

    def __repr__(self) -> str:
        return f"<ObservedRun: {str(self).splitlines()[-1]}>"

    @property
    def held(self) -> list[str]:
        """Return the ids of the claims that were tried and not falsified."""
        return self._ids(Outcome.HELD)

    @property
    def falsified(self) -> list[str]:
        """Return the ids of the falsified claims."""
        return self._ids(Outcome.FALSIFIED)

    @property
    def not_reached(self) -> list[str]:
        """Return the ids of the claims that the run did not try."""
        return self._ids(Outcome.NOT_CLAIMED)

    def _ids(self, outcome: Outcome) -> list[str]:
        """Return the ids of the claims with an outcome; a claim that was not reached has `NOT_CLAIMED`."""
        return [result.falsifier.id for result in self.report.contracts[0].results if result.outcome is outcome]

    @property
    def hints(self) -> list[tuple[str, Finding]]:
        """Return pairs of the id of a claim and a hint: a finding that the author may intend."""
        return [(name, f) for name, record in self.records.items() for f in record.findings if f.hint]

    @property
    def audited(self) -> tuple[int, int]:
        """Return the number of sampled steps whose backward passes all have a known loss, and of all sampled steps."""
        steps = [w for process in self.run.processes for ws in process.windows.values() for w in ws if w.is_sampled]
        return sum(bool(w.passes) and all(p.losses for p in w.passes) for w in steps), len(steps)

    @property
    def exit_code(self) -> int:
        """Return 1 if a claim is falsified; else 2 if no claim was tried, no step was seen, or a run failed; else 0."""
        return self.report.exit_code


def check_run(
    command: Sequence[str] = (),
    *,
    steps: int = 0,
    sample: int = 1,
    trace: Path | str | None = None,
    keep_compile: bool = False,
    probes: bool = True,
    cut: int | Sequence[int] = (),
    resume: str = "",
    in_save: bool = False,
    extend: str = "",
    against: str = "",
    only: Sequence[str] = (),
) -> ObservedRun:
    """Run a training script, unchanged and observed, and judge the run by the claims of `training-run`.

    With `cut` the command is run four times: twice uncut, then killed after a step and resumed; the continuation is
    compared with the uncut run. `{out}` in `command` and `resume` is a fresh folder for each complete run, which a
    killed run shares with its continuations; without it each complete run has its own copy of the working folder.

    Args:
        command: The words of the command, such as `["python", "train.py"]`; () to judge only the traces in `trace`.
        steps: End every process of the command after this many optimizer steps; 0 for no limit.
        sample: Record the losses only of the first steps and of every K-th step, which makes a long run cheaper.
        trace: A folder for the traces. Traces that it already contains are judged too, as parts of the same run.
        keep_compile: Leave `torch.compile` on; compiled code cannot be observed, and is run uncompiled by default.
        probes: Run the model again with changed inputs, in a forked copy of the process.
        cut: The optimizer step after which the command is killed; several to kill its continuations too.
        resume: Arguments that are added to the command to resume it, such as "--resume {out}/last.pt".
        in_save: Also kill a run inside the first save at or after the first step of `cut`, and resume it.
        extend: Arguments that make the run longer; the run is resumed with them after its end.
        against: A second command, whose steps must have the same examples and updates.
        only: Ids (glob patterns) or topics (`GRAD`) of the claims to judge; () for all.

    Returns:
        The run with its findings.

    Raises:
        UsageError: The command does not exist; `trace` is no folder of traces of this version; the run has no step
            after `cut`, or saves nothing before this step; the options of a comparison contradict each other; `only`
            matches no claim.
    """
    interruptions = Interruptions(
        cut=(cut,) if isinstance(cut, int) else tuple(cut),
        resume=resume,
        in_save=in_save,
        extend=extend,
        against=against,
    )
    interruptions.check()
    options = launch.Options(steps=steps, sample=sample, keep_compile=keep_compile, probes=probes)
    claims = _claims(only)
    if not command:
        if interruptions != Interruptions():
            raise UsageError("cut, extend and against need a command")
        if trace is None or not Path(trace).is_dir():
            raise UsageError(f"no such folder of traces: {trace}")
        if not any(Path(trace).glob("*.jsonl")):
            raise UsageError(f"no trace in {trace}: record one with pv check --trace {trace} -- python train.py")
        return _judge_traces(Path(trace), None, command, claims, complete=False, steps=0)
    if trace is not None:
        try:
            Path(trace).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot write traces into {trace}: {error.strerror}") from error
    # A run that was ended by a limit on its steps is not complete: claims about the end of a run are not tried.
    with contextlib.ExitStack() as stack:
        folder = trace or stack.enter_context(tempfile.TemporaryDirectory(prefix="pv-trace-"))
        status = _run(Path(folder), command, options, interruptions)
        return _judge_traces(Path(folder), status, command, claims, complete=status == 0 and not steps, steps=steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claims:
    """The claims about a run, and the selection of claims to report.

    Attributes:
        contract: The contract of all claims about a run.
        chosen: The ids of the claims that are reported.
        options: The command-line options that select them.
    """

    contract: Contract
    chosen: frozenset[str]
    options: tuple[str, ...]


def _claims(only: Sequence[str]) -> _Claims:
    """Return the claims about a run, and the selection by `--only`; raise `UsageError` if nothing is selected."""
    suite, findings = load_file(suites()[OBSERVED])
    assert suite is not None, findings
    patterns = expand_topics(suite, only)
    chosen = frozenset(claim.id for claim in suite.falsifiers if not only or matches(claim.id, patterns))
    if not chosen:
        raise UsageError(f"--only {only[0]} matches no claim: {claim_hint(suite, only[0])}")
    options = tuple(f"--only {shlex.quote(name)}" for name in only)
    return _Claims(contract=for_observed_run(suite), chosen=chosen, options=options)


def _run(folder: Path, command: Sequence[str], options: launch.Options, interruptions: Interruptions) -> int:
    """Run the command, and the other runs of a comparison; return the exit status of the first run of the command."""
    if interruptions != Interruptions():
        with tempfile.TemporaryDirectory(prefix="pv-runs-") as scratch:
            return ComparedRuns(command, folder, Path(scratch), options).run(interruptions)
    try:
        return launch.run(command, folder, options)
    except KeyboardInterrupt:
        return INTERRUPT
    except FileNotFoundError as error:
        raise UsageError(f"command not found: {command[0]}{_suggestion(command)}") from error
    except OSError as error:
        raise UsageError(f"cannot run {command[0]}: {error.strerror}{_suggestion(command)}") from error


def _suggestion(command: Sequence[str]) -> str:
    """Return how to run the command if it is a script without its interpreter; "" for another command."""
    interpreter = launch.INTERPRETERS.get(Path(command[0]).suffix)
    return f"; try pv check -- {shlex.join([interpreter, *command])}" if interpreter else ""


def _judge_traces(
    folder: Path, status: int | None, command: Sequence[str], claims: _Claims, *, complete: bool, steps: int
) -> ObservedRun:
    """Judge the traces in a folder, and return the run with its report."""
    started = time.monotonic()
    run = read_folder(folder, complete=complete)
    # Judge all claims, since the premise of a chosen claim may not be chosen.
    records = {name: record for name, record in judge(run).items() if name in claims.chosen}
    trials = {(name, "cpu"): _trial(name, record) for name, record in records.items() if not record.not_reached}
    selection = Selection(
        mutants=False,
        falsifiers=claims.chosen,
        not_claimed={name: r.not_reached for name, r in records.items() if r.not_reached},
    )
    words = shlex.join(command)
    repeat = ("pv check", *claims.options, f"-- {words}" if command else f"--trace {shlex.quote(str(folder))}")
    # The claims are the falsifiers of a contract and the run is their trial, so all formats of reports can show it.
    verdict = replace(decide(claims.contract, Evidence(trials=trials), selection), repeat=repeat)
    notes = _notes(run, status, steps)
    if (failure := _failure(run, status, trials)) and verdict.status is not Status.FAIL:
        verdict = replace(verdict, status=Status.UNDECIDED, absent=failure)
    report = Report(
        contracts=(verdict,),
        seconds=time.monotonic() - started,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        notes=tuple(notes),
        steps=tuple(_steps(run)),
    )
    judged = ObservedRun(
        contract=claims.contract, records=records, report=report, status=status, run=run, command=words
    )
    return replace(judged, report=replace(report, closing=closing(judged)))


def _failure(run: Run, status: int | None, trials: Mapping[tuple[str, str], Trial]) -> str:
    """Return the reason why a run without a falsified claim does not pass; "" if it passes."""
    if status:
        return f"the command ended with {_status(status)}"
    if failed := [comparison for comparison in run.comparisons if comparison.status]:
        return f"{PARTS[failed[0].kind]} ended with status {failed[0].status}"
    if not run.steps:
        return "no optimizer step was observed"
    return "" if trials else "no claim was tried"


def _trial(name: str, record: Record) -> Trial:
    """Return the record of a claim as a trial; a hint does not refute the claim."""
    if not record.proofs:
        reached = frozenset({"the trace"})
        return Trial(
            falsifier=name,
            device="cpu",
            status=TrialStatus.HELD,
            valid=record.tried,
            asked=record.tried,
            reached=reached,
        )
    finding = record.proofs[0]
    # A line of the user's code is "path:line"; "?" and "" are not shown as places.
    places = [(path, int(line)) for path, _, line in (f.at.rpartition(":") for f in record.proofs) if line.isdigit()]
    example = Counterexample(
        arguments={},
        exact=False,
        error=record.explanation,
        right=finding.right,
        explained=True,
        code=tuple(Code(path, line, line, "") for path, line in places),
        frames=tuple(f"{path}:{line}" for path, line in places[:1]),
    )
    return Trial(
        falsifier=name,
        device="cpu",
        status=TrialStatus.REFUTED,
        valid=record.tried,
        counterexample=example,
        reached=frozenset({"the trace"}),
    )


MAX_STEPS = 2_000
"""Maximum number of steps in a report; of a longer run, every k-th step is kept."""


def _steps(run: Run) -> list[ObservedStep]:
    """Return the steps of all processes, at most `MAX_STEPS`, in their order."""
    rows = [
        _step(process.rank, window)
        for process in run.processes
        for windows in process.windows.values()
        for window in windows
    ]
    # The stride is the quotient, rounded up.
    return rows[:: -(-len(rows) // MAX_STEPS) or 1]


def _step(rank: int, window: Window) -> ObservedStep:
    """Return the row of one optimizer step for the table of steps."""
    losses = [loss for backward in window.passes for loss in backward.losses]
    is_known = bool(losses) and all(backward.losses for backward in window.passes)
    examples = sum(max((loss.rows for loss in backward.losses), default=0) for backward in window.passes)
    elements = sum(loss.elements for loss in losses)
    # The mean over all scored elements of the step, whatever reduction the losses have.
    means = [loss.value / (loss.elements if loss.reduction == "sum" else 1) for loss in losses]
    total = sum(mean * loss.elements for mean, loss in zip(means, losses, strict=True))
    return ObservedStep(
        rank=rank,
        optimizer=window.optimizer,
        step=window.step,
        micro_batches=len(window.passes),
        examples=examples or None,
        scored=_finite(elements) if is_known else None,
        loss=_finite(total / elements) if is_known and elements else None,
        weight=_finite(sum(loss.elements * loss.weight for loss in losses)) if is_known else None,
        lowest_weight=_finite(min(loss.weight for loss in losses)) if is_known else None,
        highest_weight=_finite(max(loss.weight for loss in losses)) if is_known else None,
        norm=_finite(window.event["norm"]),
        rate=_finite(max(window.event["rates"], default=None)),
        limit=_finite(window.clips[-1]["limit"]) if window.clips else None,
        scale=_finite(window.passes[-1].scale) if window.passes else None,
    )


def _finite(value: float | None) -> float | None:
    """Return a number, or None if JSON cannot hold it."""
    return value if value is not None and is_finite(value) else None


def _status(status: int) -> str:
    """Return the text of an exit status, with the name of the signal if a signal ended the command."""
    names = {128 + number.value: number.name for number in signal.Signals}
    return f"status {status}" + (f" ({names[status]})" if status in names else "")


INTERRUPT = 128 + signal.SIGINT
"""The exit status of a command that Ctrl-C ended."""

PARTS = {
    "cut": "the run that was killed and resumed",
    "save": "the run that was killed inside a save and resumed",
    "extended": "the run that was resumed after its end",
    "against": "the second command",
}
"""By kind of a comparison: the run that is compared with the uncut run, as the subject of a sentence."""


def _notes(run: Run, status: int | None, steps: int) -> list[str]:
    """Return the notes of the report about the run: its end, its parts, and processes that were not observed."""
    notes = []
    if status == INTERRUPT:
        notes.append("the command was interrupted: only the steps until then are judged")
    elif status:
        notes.append(f"the command ended with {_status(status)}")
    if not run.processes and not status:
        notes.append(
            "no optimizer step was observed: no Python process of the command took a step of a torch.optim optimizer, "
            "or Python was started with -I, -E or -S, or with another PYTHONPATH (write PYTHONPATH=folder:$PYTHONPATH)"
        )
    elif not run.processes:
        notes.append("no optimizer step was observed before the end of the command")
    elif steps and run.steps >= steps:
        notes.append(f"the run was ended after {count(run.steps, 'step')}, so claims about its end are not judged")
    if cut_off := [process for process in run.processes if process.steps and not any(process.of("finished", "end"))]:
        processes = count(len(cut_off), "process")
        notes.append(
            f"{processes} ended before the end of the trace was written (by a signal or os._exit): up to 9 of the last "
            "steps are not judged"
        )
    for comparison in run.comparisons:
        if comparison.kind != "against":
            steps_of_parts = ", ".join(str(part.steps) for part in comparison.parts)
            notes.append(f"{PARTS[comparison.kind]}: its parts took {steps_of_parts} steps")
        if comparison.status:
            notes.append(f"{PARTS[comparison.kind]} ended with status {comparison.status}")
    notes += [f"not observed: {reason}" for reason in run.troubles]
    return notes


MAX_ROWS = 20
"""Maximum number of rows in a table of steps."""


def render(observed: "ObservedRun", *, verbose: bool = False, hints: bool = False) -> str:
    """Return the report as text.

    Args:
        observed: The run.
        verbose: Also list the claims that held or were not reached, and show a table of the steps.
        hints: Also show hints: findings that the author may intend.
    """
    return "\n".join(_lines(observed, verbose, hints)) + "\n"


def _lines(observed: "ObservedRun", verbose: bool, hints: bool) -> Iterator[str]:
    """Yield the lines of the report; see `render`."""
    rules = {falsifier.id: falsifier.rule for falsifier in observed.contract.falsifiers}
    for kind in ["FALSIFIED", "HINT"] if hints else ["FALSIFIED"]:
        for name, record in observed.records.items():
            for finding in record.findings:
                if finding.hint == (kind == "HINT"):
                    yield ""
                    yield f"{kind:<11} {name}{'  ' + finding.at if finding.at else ''}"
                    yield f"  claim     {rules[name].removesuffix(' (hint)')}"
                    yield f"  seen      {finding.seen}"
                    yield f"  right     {'if this is not intended: ' if finding.hint else ''}{finding.right}"
    if verbose:
        yield ""
        for name in filter(observed.held.__contains__, rules):
            tried = count(observed.records[name].tried, "time")
            yield f"held        {name}: {rules[name].removesuffix(' (hint)')} (tried {tried})"
        yield ""
        yield from _not_reached(observed)
        yield from _step_lines(observed)
    yield ""
    yield from (f"note: {note}" for note in observed.report.notes)
    if observed.hints and not hints:
        names = ", ".join(dict.fromkeys(name for name, _ in observed.hints))
        hidden = count(len(observed.hints), "hint")
        yield f"note: {hidden} not shown ({names}): possible mistakes, never a failure; add --hints to show them"
    yield observed.report.closing


def _not_reached(observed: "ObservedRun") -> Iterator[str]:
    """Yield the claims that were not reached, one line for each topic and reason."""
    numbers: dict[tuple[str, str], list[str]] = {}
    for name in observed.not_reached:
        topic, _, number = name.rpartition("-")
        numbers.setdefault((topic, observed.records[name].not_reached), []).append(f"-{number}")
    for (topic, reason), ends in numbers.items():
        yield f"not reached {topic}{', '.join(ends)}: {reason}"


def closing(observed: "ObservedRun") -> str:
    """Return the last line: how many claims held, on how many steps, and the exit code."""
    held, falsified, not_reached = len(observed.held), len(observed.falsified), len(observed.not_reached)
    audited, sampled = observed.audited
    processes = count(len(observed.run.processes), "process")
    parts = [
        f"{held} held, {falsified} falsified, {not_reached} not reached",
        f"{count(observed.run.steps, 'step')} on {processes}",
    ]
    if audited:
        # Steps of all optimizers and processes are counted here: a GAN has twice the steps of its optimizers.
        of_all = "" if sampled == observed.run.steps else " of all optimizers and processes"
        parts.append(f"token weights audited in {audited} of {count(sampled, 'step')}{of_all}")
    elif sampled:
        parts.append("token weights not audited: no known loss")
    return "; ".join([*parts, f"exit {observed.exit_code}"])


def _step_lines(observed: "ObservedRun") -> Iterator[str]:
    """Yield a table of the first steps of every optimizer."""
    for title, rows in steps.groups(observed.report.steps):
        table = [steps.COLUMNS, *map(steps.cells, rows[:MAX_ROWS])]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        yield ""
        yield title
        yield from ("  ".join(map(str.rjust, row, widths)) for row in table)
        if left := steps.remaining_steps(rows, MAX_ROWS):
            yield f"  ... {left}"
