"""What can go wrong, by whose doing: the user's input or our own code."""


class PvError(Exception):
    """Root of every error that a user can cause; its text says what was read and what to try."""


class UsageError(PvError):
    """The command or call asks for something that cannot be done (a wrong option, a missing path)."""


class ProjectError(PvError):
    """The `[tool.pv]` table of a project cannot be used."""


class BrokenMutant(PvError):
    """A mutant's edit does not apply to the source as it stands."""


class WorkerLost(PvError):
    """The process that starts the workers could not be started or went away for good."""
