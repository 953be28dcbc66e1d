"""The command line of the package."""

import os
import signal
import sys

from pkg.core import answer

LEAVE = {
    "os._exit": lambda: os._exit(3),
    "exception": lambda: {}["missing"],
    "kill": lambda: signal.raise_signal(signal.SIGKILL),
}


def main() -> None:
    print(answer(), flush=True)
    for way in sys.argv[1:]:
        LEAVE[way]()
