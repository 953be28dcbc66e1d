"""Smoke runs by the command line, in this process."""

from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

from falsifiers.distill_smoke.cases import invoked, place, read_trace


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
    """Run `distill` with APR_DISTILL_MAX_STEPS and a trace, in an empty working directory with the default output.

    Return exit code and output, and every path before and after the run.
    """
    with place(directory) as where:
        flags = where.flags(out=None, teacher_cache=None, device=device, epochs=epochs, batch_size=batch_size)
        before = where.listing()
        with chdir(where.work):
            ended = invoked(subject, where, *flags, "--trace", "trace.jsonl", APR_DISTILL_MAX_STEPS=str(steps))
        for event in read_trace(where.work / "trace.jsonl"):
            trace(event)
        # Libraries may warn on standard error, as PyTorch does on some GPUs.
        complaints = [line for line in ended.stderr.splitlines() if line.startswith(("error:", "Traceback"))]
        said = {"lines": ended.stdout.splitlines(), "complaints": complaints}
        return said | {"exit_code": ended.exit_code, "before": before, "after": where.listing()}
