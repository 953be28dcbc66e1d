"""`python -m reference_trainer`, and the command `reference-trainer`: the signals first, then everything else."""

from __future__ import annotations

from reference_trainer import interrupts


def run() -> None:
    """Runs the command line of this process."""
    interrupts.leave_at_once()
    from reference_trainer.cli import main  # its imports take time enough to be interrupted

    main(prog_name="reference-trainer")


if __name__ == "__main__":
    run()
