"""The command line of the reference trainer: read settings, call the library, print the result."""

from reference_trainer.cli import distillation, outputs, processes, tools
from reference_trainer.cli.group import main

__all__ = ["distillation", "main", "outputs", "processes", "tools"]
