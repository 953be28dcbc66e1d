"""`pv check -- python SCRIPT` in a fork of this process, which has loaded torch; the script is a fork of it, too."""

import os
from pathlib import Path

from pv.cli import main
from pv.commands import resumed
from pv.observe import launch
from tests.reference_trainer import forked
from tests.support.processes import Ended


def checked(folder: Path, *arguments: str) -> Ended:
    """Run `pv check ARGUMENTS` in a folder."""

    def start() -> None:
        launch.subprocess.Popen = resumed.subprocess.Popen = forked.Interpreter  # type: ignore[attr-defined,assignment,misc]
        main()

    return forked.command(["check", *arguments], folder, os.environ, start)
