"""The command line: parses options, calls the library, renders its results, exits."""

from pv.cli import reading, running, starting
from pv.cli.group import main

__all__ = ["main"]

for each in (*starting.COMMANDS, *running.COMMANDS, *reading.COMMANDS):
    main.add_command(each)
