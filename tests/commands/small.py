"""The project `small`, edited, and the cells of its report."""

import subprocess
from pathlib import Path

from click.testing import CliRunner

from pv.cli import main
from pv.results.outcome import Outcome, Result
from pv.results.verdict import Report


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run the command in this process."""
    done = CliRunner().invoke(main, arguments, env=environment)
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def edit(path: Path, find: str, replace: str) -> None:
    text = path.read_text()
    assert text.count(find) == 1, f"{find!r} occurs {text.count(find)} times in {path}"
    path.write_text(text.replace(find, replace))


def result(report: Report, falsifier: str, device: str = "cpu") -> Result:
    (only,) = (c for v in report.contracts for c in v.results if (c.falsifier.id, c.device) == (falsifier, device))
    return only


def outcomes(report: Report) -> dict[str, Outcome]:
    return {c.falsifier.id: c.outcome for v in report.contracts for c in v.results if c.device == "cpu"}
