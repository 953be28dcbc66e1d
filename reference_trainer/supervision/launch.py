"""Several processes on this machine that train together, once: without retries, which `until` has."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from reference_trainer import interrupts
from reference_trainer.supervision.decision import Ending

__all__ = ["SAVED", "launch"]

EXIT_CODES = {Ending.FINISHED: 0, Ending.FAILED: 1, Ending.REFUSED: 2}
SAVED = "saved"
"""File beside the heartbeats: a rank has saved a checkpoint and left on request."""


def launch(arguments: Sequence[str], *, ranks: int, report: Callable[[str], object]) -> int:
    """Run the command `arguments` in `ranks` processes, and return the exit code; what went wrong goes to `report`.

    The processes end with this one, however it ends. After a signal, which they got too, it is that of a run which has
    saved a checkpoint; raise `KeyboardInterrupt` if it has not.
    """
    from reference_trainer.supervision.attempts import attempted  # takes a while

    with TemporaryDirectory(prefix="reference-trainer-") as beats:
        try:
            ending, why = attempted(arguments, Path(beats), ranks=ranks, name=f"launch-{os.getpid()}")
        except KeyboardInterrupt:
            if (Path(beats) / SAVED).exists():
                return interrupts.SAVED
            raise
    if ending is not Ending.FINISHED:
        report(why)
    return EXIT_CODES[ending]
