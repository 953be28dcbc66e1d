"""Runs a training script with an observer in it, and judges the traces: `pv check -- COMMAND`."""

import platform
import shlex
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from pv import __version__
from pv.commands.resumed import Comparing, Interruptions
from pv.contract.load import load_file
from pv.contract.model import Contract
from pv.contract.suites import OBSERVED, observed, suites
from pv.contract.wording import count
from pv.errors import UsageError
from pv.observe import launch
from pv.results.outcome import Outcome, Selection
from pv.results.steps import ObservedStep
from pv.results.trial import Code, Counterexample, Evidence, Trial, TrialStatus
from pv.results.verdict import Report, Status, decide
from pv.suites.training_run.claims import Finding, Record, judge
from pv.suites.training_run.record import is_finite
from pv.suites.training_run.run import Run, Window, read_folder


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ObservedRun:
    """A run of a script, and what follows from its traces.

    Attributes:
        contract: The claims.
        records: What every claim has tried and found, by its id.
        report: The same as a report of `pv`, for every other format.
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
        from pv.commands.observed_text import render

        return render(self).rstrip("\n")

    def __repr__(self) -> str:
        return f"<ObservedRun: {str(self).splitlines()[-1]}>"

    @property
    def held(self) -> list[str]:
        return self._ids(Outcome.HELD)

    @property
    def falsified(self) -> list[str]:
        return self._ids(Outcome.FALSIFIED)

    @property
    def not_reached(self) -> list[str]:
        return self._ids(Outcome.NOT_CLAIMED)

    def _ids(self, outcome: Outcome) -> list[str]:
        """Return the ids of the claims with an outcome. A claim that was not reached is not claimed of this run."""
        return [result.falsifier.id for result in self.report.contracts[0].results if result.outcome is outcome]

    @property
    def hints(self) -> list[tuple[str, Finding]]:
        return [(name, f) for name, record in self.records.items() for f in record.findings if f.hint]

    @property
    def audited(self) -> tuple[int, int]:
        """Return in how many steps the weight of every scored element is known, and of how many losses were noted."""
        windows = [w for process in self.run.processes for ws in process.windows.values() for w in ws if w.is_sampled]
        return sum(bool(w.passes) and all(p.losses for p in w.passes) for w in windows), len(windows)

    @property
    def exit_code(self) -> int:
        """Return 1 if a claim is falsified; else 2 if no step was observed or the command failed; else 0."""
        if self.falsified:
            return 1
        failed = self.status or any(c.status for c in self.run.comparisons)
        return 0 if self.run.steps and not failed else 2


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
) -> ObservedRun:
    """Run a training script, unchanged and observed, and judge the run by the claims of `training-run`.

    With `cut` the command is run four times: twice uncut, then killed after a step and resumed; the continuation is
    compared with the uncut run. `{out}` in `command` and `resume` is a fresh folder for each complete run, which a
    killed run shares with its continuations; without it each complete run has its own copy of the working folder.

    Args:
        command: The words of the command, such as `["python", "train.py"]`; () to judge the traces in `trace` alone.
        steps: End every process of the command after this many optimizer steps; 0: when it ends by itself.
        sample: Note the losses of the first steps and of every K-th one alone, which makes a long run cheaper.
        trace: A folder for the traces. Those that it holds already are judged too, as parts of the same run.
        keep_compile: Leave `torch.compile` on; compiled code cannot be observed, and is run uncompiled by default.
        probes: Run the model again with changed inputs, in a forked copy of the process.
        cut: The optimizer step after which the command is killed; several to kill its continuations too.
        resume: Arguments that are added to the command to resume it, such as "--resume {out}/last.pt".
        in_save: Also kill a run inside the first save at or after the first step of `cut`, and resume it.
        extend: Arguments that make the run longer; the run is resumed with them after its end.
        against: A second command, whose steps must have the same examples and updates.

    Raises:
        UsageError: The command does not exist, `trace` is no folder of traces of this version, the run has fewer steps
            than `cut`, or saves nothing before.
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
    if not command:
        if interruptions != Interruptions():
            raise UsageError("cut, extend and against need a command")
        if trace is None or not Path(trace).is_dir():
            raise UsageError(f"no such folder of traces: {trace}")
        if not any(Path(trace).glob("*.jsonl")):
            raise UsageError(f"no trace in {trace}: record one with pv check --trace {trace} -- python train.py")
        return _judged(Path(trace), None, command, complete=False, steps=0)
    if trace is not None:
        return _run(Path(trace), command, options, interruptions)
    with tempfile.TemporaryDirectory(prefix="pv-trace-") as folder:
        return _run(Path(folder), command, options, interruptions)


def _run(folder: Path, command: Sequence[str], options: launch.Options, interruptions: Interruptions) -> ObservedRun:
    steps = options.steps
    if interruptions != Interruptions():
        with tempfile.TemporaryDirectory(prefix="pv-runs-") as scratch:
            status = Comparing(command, folder, Path(scratch), options).run(interruptions)
        return _judged(folder, status, command, complete=status == 0 and not steps, steps=steps)
    try:
        status = launch.run(command, folder, options)
    except KeyboardInterrupt:
        status = INTERRUPT
    except FileNotFoundError as error:
        raise UsageError(f"command not found: {command[0]}{_suggestion(command)}") from error
    except OSError as error:
        raise UsageError(f"cannot run {command[0]}: {error.strerror}{_suggestion(command)}") from error
    return _judged(folder, status, command, complete=status == 0 and not steps, steps=steps)


def _suggestion(command: Sequence[str]) -> str:
    """Return what to try in place of a command that is a script without its interpreter, "" for another command."""
    interpreter = {".py": "python", ".sh": "bash"}.get(Path(command[0]).suffix)
    return f"; try pv check -- {shlex.join([interpreter, *command])}" if interpreter else ""


def _judged(folder: Path, status: int | None, command: Sequence[str], *, complete: bool, steps: int) -> ObservedRun:
    started = time.monotonic()
    suite, findings = load_file(suites()[OBSERVED])
    assert suite is not None, findings
    contract = observed(suite)
    run = read_folder(folder, complete=complete)
    records = judge(run)
    trials = {(name, "cpu"): _trial(name, record) for name, record in records.items() if not record.not_reached}
    selection = Selection(
        mutants=False,
        not_claimed={name: f"not reached: {r.not_reached}" for name, r in records.items() if r.not_reached},
    )
    words = shlex.join(command)
    repeat = ("pv check", f"-- {words}" if command else f"--trace {shlex.quote(str(folder))}")
    verdict = replace(decide(contract, Evidence(trials=trials), selection), repeat=repeat)
    if status and verdict.status is Status.PASS:
        verdict = replace(verdict, status=Status.UNDECIDED)
    report = Report(
        contracts=(verdict,),
        findings=(),
        devices={},
        seed=0,
        seconds=time.monotonic() - started,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        python=platform.python_version(),
        hypothesis=version("hypothesis"),
        notes=tuple(_notes(run, status, steps)),
        steps=tuple(_steps(run)),
    )
    return ObservedRun(contract=contract, records=records, report=report, status=status, run=run, command=words)


def _trial(name: str, record: Record) -> Trial:
    """Return what a claim has found as a trial; a hint refutes nothing."""
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
    path, _, line = finding.at.rpartition(":")
    code = (Code(path, int(line), int(line), ""),) if path and line.isdigit() else ()
    frames = (finding.at,) if code else ()
    example = Counterexample(arguments={}, exact=False, error=record.explanation, code=code, frames=frames)
    return Trial(
        falsifier=name,
        device="cpu",
        status=TrialStatus.REFUTED,
        valid=record.tried,
        counterexample=example,
        reached=frozenset({"the trace"}),
    )


MAX_STEPS = 2_000
"""Steps of a report; of more, every k-th is kept."""


def _steps(run: Run) -> list[ObservedStep]:
    """Return the steps of all processes, in their order."""
    rows = [
        _step(process.rank, window)
        for process in run.processes
        for windows in process.windows.values()
        for window in windows
    ]
    return rows[:: -(-len(rows) // MAX_STEPS) or 1]


def _step(rank: int, window: Window) -> ObservedStep:
    losses = [loss for each in window.passes for loss in each.losses]
    known = bool(losses) and all(each.losses for each in window.passes)
    examples = sum(max((loss.rows for loss in each.losses), default=0) for each in window.passes)
    elements = sum(loss.elements for loss in losses)
    means = [loss.value / (loss.elements if loss.reduction == "sum" else 1) for loss in losses]
    total = sum(mean * loss.elements for mean, loss in zip(means, losses, strict=True))
    return ObservedStep(
        rank=rank,
        optimizer=window.optimizer,
        step=window.step,
        micro_batches=len(window.passes),
        examples=examples or None,
        scored=_finite(elements) if known else None,
        loss=_finite(total / elements) if known and elements else None,
        weight=_finite(sum(loss.elements * loss.weight for loss in losses)) if known else None,
        lowest_weight=_finite(min(loss.weight for loss in losses)) if known else None,
        highest_weight=_finite(max(loss.weight for loss in losses)) if known else None,
        norm=_finite(window.event["norm"]),
        rate=_finite(max(window.event["rates"], default=None)),
        limit=_finite(window.clips[-1]["limit"]) if window.clips else None,
        scale=_finite(window.passes[-1].scale) if window.passes else None,
    )


def _finite(value: float | None) -> float | None:
    """Return a number, or None if JSON cannot hold it."""
    return value if value is not None and is_finite(value) else None


INTERRUPT = 128 + signal.SIGINT
"""The exit status of a command that Ctrl-C ended."""

INTERRUPTED = {
    "cut": "killed and resumed",
    "save": "killed inside a save and resumed",
    "extended": "resumed after its end",
}


def _notes(run: Run, status: int | None, steps: int) -> list[str]:
    """Return what a reader must know of the run before its claims."""
    notes = []
    if status == INTERRUPT:
        notes.append("the command was interrupted: what was observed until then is judged")
    elif status:
        notes.append(f"the command ended with status {status}")
    if not run.processes and not status:
        notes.append(
            "no optimizer step was observed: no Python process of the command took a step of a torch.optim optimizer "
            "(an update that is written by hand is not seen), or Python was started with -I, -E or -S"
        )
    elif not run.processes:
        notes.append("no optimizer step was observed before the end of the command")
    elif steps and run.steps >= steps:
        notes.append(f"the run was ended after {count(run.steps, 'step')}, so claims about its end are not judged")
    for comparison in run.comparisons:
        if comparison.kind != "against":
            steps_of_parts = ", ".join(str(part.steps) for part in comparison.parts)
            notes.append(f"{INTERRUPTED[comparison.kind]}: the parts of the run took {steps_of_parts} steps")
        if comparison.status:
            notes.append(f"the continuation ({comparison.kind}) ended with status {comparison.status}")
    notes += [f"not observed: {reason}" for reason in run.troubles]
    return notes
