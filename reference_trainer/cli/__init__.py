"""The command line of the reference trainer: read settings, call the library, print the result.

distillation  `distill`, and the flags of all settings
processes     `until`, `launch`
tools         `recipes`, `schema`, `gradcheck`, `plot`, `evaluate`, `checkpoints`, `precompute`
group         the command `reference-trainer`: an exception becomes an exit code and a line on standard error
rank          the process of one rank, which `until` and `launch` start
"""

from reference_trainer.cli import distillation, processes, tools
from reference_trainer.cli.group import main

__all__ = ["distillation", "main", "processes", "tools"]
