"""The command line of the reference trainer: read settings, call the library, print the result."""

from reference_trainer.cli import distillation, processes, tools
from reference_trainer.cli.group import main

__all__ = ["distillation", "main", "processes", "tools"]
