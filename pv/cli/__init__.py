"""The command line: parses options, calls the library, renders its results, exits.

validate  `validate`, `compare`, `mutate`
check     `check`
report    `report`
lint      `lint`, `list`, `show`, `schema`
new       `new`, `explain`, `why`, `doctor`
group     the command `pv`: an exception becomes a message and an exit code
options   the options of the commands
"""

from pv.cli import check, lint, new, report, validate
from pv.cli.group import main

__all__ = ["main"]

for command in (*new.COMMANDS, *validate.COMMANDS, *check.COMMANDS, *report.COMMANDS, *lint.COMMANDS):
    main.add_command(command)
