"""Runs a command with an observer in each of its Python processes. Needs only the standard library."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

SITE = Path(__file__).parent / "site"
INTERPRETERS = {".py": "python", ".sh": "bash"}
"""The program that runs a script, by the suffix of its name."""


@dataclass(frozen=True)
class Options:
    """What an observed process does beside observing.

    Attributes:
        steps: It ends with status 0 after this many optimizer steps; 0: never.
        sample: Losses and logits are noted only in the first steps and in every K-th one.
        keep_compile: `torch.compile` is left on. What is compiled cannot be observed, so it is off by default.
        probes: Models are probed in a forked copy of the process.
        cut: It kills itself by SIGKILL after this many optimizer steps; 0: never.
        cut_in_save: It does so inside the first save after `cut` steps instead, with half of the file written.
        comparing: What a comparison with another run needs is noted in every step.
    """

    steps: int = 0
    sample: int = 1
    keep_compile: bool = False
    probes: bool = True
    cut: int = 0
    cut_in_save: bool = False
    comparing: bool = False


DEFAULTS = Options()


def environment(
    folder: Path, options: Options = DEFAULTS, *, inherited: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the variables that make each Python process below observe itself.

    Args:
        folder: The folder of traces.
        options: What each process does beside.
        inherited: The variables that the command has besides.
    """
    paths = [str(SITE), *filter(None, [inherited.get("PYTHONPATH")])]
    compiling = {} if options.keep_compile else {"TORCH_COMPILE_DISABLE": "1", "TORCHDYNAMO_DISABLE": "1"}
    return {
        **compiling,
        "PYTHONPATH": os.pathsep.join(paths),
        "PV_OBSERVE_TRACE": str(folder.resolve()),
        "PV_OBSERVE_OPTIONS": json.dumps(asdict(options)),
    }


def options_from_environment() -> Options:
    """Return the options that `environment` has put into the variables of this process."""
    return Options(**json.loads(os.environ.get("PV_OBSERVE_OPTIONS", "{}")))


def run(command: Sequence[str], folder: Path, options: Options = DEFAULTS) -> int:
    """Run a command to its end, observed, with its output passed through.

    Returns:
        Its exit status; 128 + N if signal N killed it.

    Raises:
        OSError: The command does not exist, or cannot be run.
        KeyboardInterrupt: Ctrl-C was pressed. The terminal interrupts the command too, which has ended by then, with
            its trace complete; a second Ctrl-C kills a command that still runs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(command, env={**os.environ, **environment(folder, options)})
    interrupt: KeyboardInterrupt | None = None
    while process.returncode is None:
        try:
            process.wait()
        except KeyboardInterrupt as error:
            if interrupt is not None:
                process.kill()
            interrupt = error
    if interrupt is not None:
        raise interrupt
    return process.returncode if process.returncode >= 0 else 128 - process.returncode
