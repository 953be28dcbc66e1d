"""The command line: parses options, calls the library, renders its results, exits."""

from pv.cli import check, lint, new, report, validate
from pv.cli.group import main

__all__ = ["main"]

for command in (*new.COMMANDS, *validate.COMMANDS, *check.COMMANDS, *report.COMMANDS, *lint.COMMANDS):
    main.add_command(command)
