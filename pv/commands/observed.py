"""Runs a training script with an observer in it, and judges the traces: `pv check -- COMMAND`."""

import platform
import shlex
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pv import __version__
from pv.contract.load import load_file
from pv.contract.model import Contract
from pv.contract.suites import OBSERVED, observed, suites
from pv.contract.wording import count
from pv.errors import UsageError
from pv.observe import launch
from pv.results.outcome import Outcome, Selection
from pv.results.trial import Code, Counterexample, Evidence, Trial, TrialStatus
from pv.results.verdict import Report, Status, decide
from pv.suites.training_run.claims import Finding, Record, judge
from pv.suites.training_run.run import Run, read_folder, steps_of


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
    def table(self) -> list[dict[str, Any]]:
        """Return the numbers of every step of the first process."""
        return [row for process in self.run.processes[:1] for row in steps_of(process)]

    @property
    def exit_code(self) -> int:
        """Return 1 if a claim is falsified; else 2 if no step was observed or the command failed; else 0."""
        if self.falsified:
            return 1
        return 0 if self.run.steps and not self.status else 2


def check_run(
    command: Sequence[str] = (),
    *,
    steps: int = 0,
    sample: int = 1,
    trace: Path | str | None = None,
    keep_compile: bool = False,
) -> ObservedRun:
    """Run a training script, unchanged and observed, and judge the run by the claims of `training-run`.

    Args:
        command: The words of the command, such as `["python", "train.py"]`; () to judge the traces in `trace` alone.
        steps: End every process of the command after this many optimizer steps; 0: when it ends by itself.
        sample: Note the losses of the first steps and of every K-th one alone, which makes a long run cheaper.
        trace: A folder for the traces. Those that it holds already are judged too, as parts of the same run.
        keep_compile: Leave `torch.compile` on; compiled code cannot be observed, and is run uncompiled by default.

    Raises:
        UsageError: The command does not exist, or `trace` is no folder of traces of this version.
    """
    if not command:
        if trace is None or not Path(trace).is_dir():
            raise UsageError(f"no such folder of traces: {trace}")
        return _judged(Path(trace), None, command, complete=False, steps=0)
    if trace is not None:
        return _run(Path(trace), command, steps, sample=sample, keep_compile=keep_compile)
    with tempfile.TemporaryDirectory(prefix="pv-trace-") as folder:
        return _run(Path(folder), command, steps, sample=sample, keep_compile=keep_compile)


def _run(folder: Path, command: Sequence[str], steps: int, *, sample: int, keep_compile: bool) -> ObservedRun:
    try:
        status = launch.run(command, folder, steps, sample=sample, keep_compile=keep_compile)
    except FileNotFoundError as error:
        raise UsageError(f"command not found: {command[0]}") from error
    except OSError as error:
        raise UsageError(f"cannot run {command[0]}: {error.strerror}") from error
    return _judged(folder, status, command, complete=status == 0 and not steps, steps=steps)


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


def _notes(run: Run, status: int | None, steps: int) -> list[str]:
    """Return what a reader must know of the run before its claims."""
    notes = []
    if status:
        notes.append(f"the command ended with status {status}")
    if not run.processes:
        notes.append(
            "no optimizer step was observed: no Python process of the command took a step of a torch.optim optimizer "
            "(an update that is written by hand is not seen), or Python was started with -I, -E or -S"
        )
    elif steps and run.steps >= steps:
        notes.append(f"the run was ended after {count(run.steps, 'step')}, so claims about its end are not judged")
    notes += [f"not observed: {reason}" for reason in run.troubles]
    return notes
