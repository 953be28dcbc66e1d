"""Smoke runs by the command line in a child process, as a user starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from falsifiers.distill_smoke.cases import Place, place, read_trace


def smoke_by_command_line(
    subject: Any,
    *,
    device: str,
    directory: Path,
    trace: Callable[[dict[str, Any]], None],
    steps: int,
    epochs: int,
    batch_size: int,
) -> dict[str, Any]:
    """Run `distill` with APR_DISTILL_MAX_STEPS and a trace, in an empty working directory with the default output."""
    del subject  # the child process imports its own
    with place(directory) as where:
        flags = where.flags(out=None, teacher_cache=None, device=device, epochs=epochs, batch_size=batch_size)
        said = child(where, *flags, "--trace", "trace.jsonl", APR_DISTILL_MAX_STEPS=str(steps))
        for event in read_trace(where.work / "trace.jsonl"):
            trace(event)
    return said


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
    told = ended.stderr.splitlines()
    imported = [line.rpartition("|")[2].strip() for line in told if line.startswith("import time:")]
    return {
        "exit_code": ended.returncode,
        "lines": ended.stdout.splitlines(),
        "complaints": [line for line in told if not line.startswith("import time:")],
        "imported": sorted({name.partition(".")[0] for name in imported}),
        "before": before,
        "after": where.listing(),
    }
