"""Run a command and record it: `python -m pv.observe [OPTIONS] -- COMMAND`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import launch


def main(arguments: list[str]) -> int:
    """Record a command; return its exit status, or 3 for a usage error."""
    mark = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(prog="python -m pv.observe", description=__doc__)
    parser.add_argument("--trace", type=Path, default=Path("pv-trace"), metavar="DIR", help="folder of the traces")
    parser.add_argument("--steps", type=int, default=0, metavar="N", help="end the command after N optimizer steps")
    parser.add_argument("--sample", type=int, default=1, metavar="K", help="record the losses only in every K-th step")
    parser.add_argument("--keep-compile", action="store_true", help="leave torch.compile on")
    parser.add_argument("--no-probes", action="store_true", help="run no probes in a copy of the process")
    words = parser.parse_args(arguments[:mark])
    options = launch.Options(
        steps=words.steps, sample=words.sample, keep_compile=words.keep_compile, probes=not words.no_probes
    )
    command = arguments[mark + 1 :]
    if not command:
        parser.print_usage(sys.stderr)
        sys.stderr.write("python -m pv.observe: no command after --\n")
        return 3
    try:
        status = launch.run(command, words.trace, options)
    except KeyboardInterrupt:
        status = 130
    except OSError as error:
        sys.stderr.write(f"python -m pv.observe: cannot run {command[0]}: {error.strerror}\n")
        return 3
    sys.stderr.write(f"traces: {words.trace}; judge them with: pv check --trace {words.trace}\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
