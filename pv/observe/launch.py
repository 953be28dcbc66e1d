"""Run a command with an observer in each of its Python processes. Needs only the standard library."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

SITE = Path(__file__).parent / "site"
"""The folder of the `sitecustomize` that starts the observer."""
INTERPRETERS = {".py": "python", ".sh": "bash"}
"""The program that runs a script, by suffix of the script's name."""


@dataclass(frozen=True)
class Options:
    """The options of an observed process.

    Attributes:
        steps: Number of optimizer steps after which the process exits with status 0; 0 for no limit.
        sample: Record losses and logits only in the first steps and in every `sample`-th step.
        keep_compile: Leave `torch.compile` on. By default, the observer turns it off, because compiled code cannot be
            observed.
        probes: Call models with changed inputs in a forked copy of the process.
        cut: Number of optimizer steps after which the process kills itself with SIGKILL; 0 for never.
        cut_in_save: Kill the process not after the step, but in the next save, when half of the file is written.
        comparing: Record weights, optimizer states and examples in every step, to compare the run with another run.
    """

    steps: int = 0
    sample: int = 1
    keep_compile: bool = False
    probes: bool = True
    cut: int = 0
    cut_in_save: bool = False
    comparing: bool = False

    def __post_init__(self) -> None:
        for name, smallest in (("steps", 0), ("sample", 1)):
            if getattr(self, name) < smallest:
                value = getattr(self, name)
                raise ValueError(f"invalid value {value} for {name!r}: expected an integer from {smallest}")


DEFAULTS = Options()


def environment(
    folder: Path, options: Options = DEFAULTS, *, inherited: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the environment variables that start an observer in the Python processes of a command.

    Args:
        folder: The folder of traces.
        options: The options of every process.
        inherited: The environment of the command. The returned `PYTHONPATH` extends the `PYTHONPATH` of this
            environment.
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
    """Return the options of this process, from the variable that `environment` has set."""
    return Options(**json.loads(os.environ.get("PV_OBSERVE_OPTIONS", "{}")))


def run(command: Sequence[str], folder: Path, options: Options = DEFAULTS) -> int:
    """Run a command with an observer in its Python processes, and wait until the command ends.

    The command writes its output to the output streams of this process.

    Args:
        command: The words of the command.
        folder: The folder for the traces. It is created if it does not exist.
        options: The options of every process.

    Returns:
        The exit status of the command; 128 + N if signal N killed the command.

    Raises:
        OSError: The command does not exist, or cannot be run.
        KeyboardInterrupt: Ctrl-C was pressed. The terminal also interrupts the command, and this exception is raised
            when the command has ended, so its trace is complete. A second Ctrl-C kills the command.
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
