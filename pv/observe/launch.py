"""Runs a command with an observer in each Python process of it. Standard library alone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

SITE = Path(__file__).parent / "site"


def environment(
    folder: Path,
    steps: int = 0,
    *,
    sample: int = 1,
    keep_compile: bool = False,
    inherited: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """Return the variables that make each Python process below observe itself.

    Args:
        folder: The folder of traces.
        steps: End each process after this many optimizer steps; 0: never.
        sample: Note the losses of the first steps and of every K-th one alone.
        keep_compile: Leave `torch.compile` on. What is compiled cannot be observed, so it is off by default.
        inherited: The variables that the command has besides.
    """
    paths = [str(SITE), *filter(None, [inherited.get("PYTHONPATH")])]
    compiling: Mapping[str, str] = {} if keep_compile else {"TORCH_COMPILE_DISABLE": "1", "TORCHDYNAMO_DISABLE": "1"}
    return {
        **compiling,
        "PYTHONPATH": os.pathsep.join(paths),
        "PV_OBSERVE_TRACE": str(folder.resolve()),
        "PV_OBSERVE_STEPS": str(steps),
        "PV_OBSERVE_SAMPLE": str(sample),
    }


def run(command: Sequence[str], folder: Path, steps: int = 0, *, sample: int = 1, keep_compile: bool = False) -> int:
    """Run a command to its end, observed, with its output passed through.

    Returns:
        Its exit status; 128 + N if signal N killed it.

    Raises:
        OSError: The command does not exist, or cannot be run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    variables = {**os.environ, **environment(folder, steps, sample=sample, keep_compile=keep_compile)}
    status = subprocess.run(command, env=variables).returncode
    return status if status >= 0 else 128 - status
