"""`python -m reference_trainer` is `reference-trainer`."""

from __future__ import annotations

from reference_trainer.cli import main

main(prog_name="reference-trainer")
