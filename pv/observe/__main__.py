"""Run a command and record it: `python -m pv.observe [OPTIONS] -- COMMAND`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from . import launch

REFUSED = 3
"""The exit code of a wrong call, as of `pv`; the 2 of argparse means undecided there."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(REFUSED, f"{self.prog}: {message}\n")


def main(arguments: list[str]) -> int:
    """Run a command with an observer, and print where the traces are.

    Args:
        arguments: Options, then `--` and the words of the command.

    Returns:
        The exit status of the command; 3 if the command cannot be run; 130 after Ctrl-C.

    Raises:
        SystemExit: The command is missing, or an option is unknown or has an invalid value (status 3), or is `--help`.
    """
    separator = arguments.index("--") if "--" in arguments else len(arguments)
    parser = _Parser(prog="python -m pv.observe", description=__doc__)
    parser.add_argument("--trace", type=Path, default=Path("pv-trace"), metavar="DIR", help="folder of the traces")
    parser.add_argument("--steps", type=int, default=0, metavar="N", help="end the command after N optimizer steps")
    parser.add_argument(
        "--sample", type=int, default=1, metavar="K", help="record losses in the first steps and in every K-th step"
    )
    parser.add_argument("--keep-compile", action="store_true", help="leave torch.compile on")
    parser.add_argument("--no-probes", action="store_true", help="run no probes in a copy of the process")
    parsed = parser.parse_args(arguments[:separator])
    try:
        options = launch.Options(
            steps=parsed.steps, sample=parsed.sample, keep_compile=parsed.keep_compile, probes=not parsed.no_probes
        )
    except ValueError as error:
        parser.error(str(error))
    command = arguments[separator + 1 :]
    if not command:
        parser.error("no command after --")
    try:
        status = launch.run(command, parsed.trace, options)
    except KeyboardInterrupt:
        status = 130
    except OSError as error:
        sys.stderr.write(f"python -m pv.observe: cannot run {command[0]}: {error.strerror}\n")
        return REFUSED
    sys.stderr.write(f"traces: {parsed.trace}; judge them with: pv check --trace {parsed.trace}\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
