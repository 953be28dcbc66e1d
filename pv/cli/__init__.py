"""The command line: parses options, calls the library, renders its results, exits."""

from pv.cli import reading, reporting, running, starting
from pv.cli.group import main

__all__ = ["main"]

for each in (*starting.COMMANDS, *running.COMMANDS, *reporting.COMMANDS, *reading.COMMANDS):
    main.add_command(each)
