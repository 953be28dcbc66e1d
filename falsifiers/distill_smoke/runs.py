"""Smoke runs by the command line: in a child process, as a user starts them, or in this one, where that is enough."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

from falsifiers.distill_smoke.cases import Place, invoked, place, read_trace


def smoke_by_command_line(
    subject: Any,
    *,
    device: str,
    directory: Path,
    trace: Callable[[dict[str, Any]], None],
    steps: int,
    epochs: int,
    batch_size: int,
    own_process: bool,
) -> dict[str, Any]:
    """Run `distill` with APR_DISTILL_MAX_STEPS and a trace, in an empty working directory with the default output.

    own_process: in a child process, which imports its own subject; most of its time goes into importing torch.
    """
    with place(directory) as where:
        flags = where.flags(out=None, teacher_cache=None, device=device, epochs=epochs, batch_size=batch_size)
        arguments, variables = (*flags, "--trace", "trace.jsonl"), {"APR_DISTILL_MAX_STEPS": str(steps)}
        if own_process:
            said = child(where, *arguments, **variables)
        else:
            said = in_this_process(subject, where, *arguments, **variables)
        for event in read_trace(where.work / "trace.jsonl"):
            trace(event)
    return said


def in_this_process(subject: Any, where: Place, *arguments: str, **variables: str) -> dict[str, Any]:
    """Return exit code and output of the command line, and every path before and after it."""
    before = where.listing()
    with chdir(where.work):
        ended = invoked(subject, where, *arguments, **variables)
    return _said(where, before, ended.exit_code, ended.stdout, ended.stderr.splitlines())


def _said(where: Place, before: dict[str, str], code: int, output: str, complaints: list[str]) -> dict[str, Any]:
    said = {"exit_code": code, "lines": output.splitlines(), "complaints": complaints}
    return said | {"before": before, "after": where.listing()}


def child(where: Place, *arguments: str, **variables: str) -> dict[str, Any]:
    """Return exit code, output and imports of a child process, and every path before and after it."""
    environment = {**os.environ, **where.environment(**variables)}
    before = where.listing()
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "reference_trainer", "distill", *arguments],
        cwd=where.work,
        env={name: value for name, value in environment.items() if value is not None},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    errors = ended.stderr.splitlines()
    imported = [line.rpartition("|")[2].strip() for line in errors if line.startswith("import time:")]
    complaints = [line for line in errors if not line.startswith("import time:")]
    said = _said(where, before, ended.returncode, ended.stdout, complaints)
    return said | {"imported": sorted({name.partition(".")[0] for name in imported})}
