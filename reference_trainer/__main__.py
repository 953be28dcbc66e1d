"""Entry point of `python -m reference_trainer` and of the command `reference-trainer`."""

from __future__ import annotations

import os
import sys

from reference_trainer import interrupts
from reference_trainer.errors import missing_package


def run() -> None:
    """Run the command line. Signal handlers are set before the other imports, because these take a while."""
    interrupts.exit_at_once()
    sys.path.append(os.getcwd())  # noqa: PTH109  # --callbacks and --parts import from there; Path is not imported yet
    try:
        from reference_trainer.cli import main
    except ModuleNotFoundError as error:
        message = missing_package(error)
        if message is None:
            raise
        sys.exit(f"error: {message}")

    main(prog_name="reference-trainer")


if __name__ == "__main__":
    run()
