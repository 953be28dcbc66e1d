"""What a trial on an automatic mutant says of it."""

from dataclasses import dataclass
from enum import Enum

from pv.evidence import Ending, Trial
from pv.mutation.generate import Automatic

LEAST_LIMIT_S, SLOWER = 5.0, 5.0
LIMITS = {Ending.TIME}
ERRORS = {Ending.BROKEN, Ending.FLAKY, Ending.BARREN, Ending.CRASHED, Ending.SILENT, Ending.MEMORY}
MISSING_NAMES = ("NameError", "UnboundLocalError")


class Fate(Enum):
    """What became of an automatic mutant."""

    KILLED = "killed"
    BY_LIMIT = "killed by the time limit"
    BY_ERROR = "killed by an error"
    """The falsifier could not end as it does on the code: it raised, crashed, or ran out of memory."""
    SURVIVED = "survived"
    UNREACHED = "never reached"
    EQUIVALENT = "equivalent"
    """Accepted in the contract, and no falsifier that runs it could tell it from the code."""
    NOT_EQUIVALENT = "not equivalent"
    """Accepted in the contract, and yet a falsifier can tell."""
    VOID = "void"
    """It breaks the import of its module, or names what is not there: a fault that nobody could ship."""


FALLEN = (Fate.KILLED, Fate.BY_LIMIT, Fate.BY_ERROR, Fate.NOT_EQUIVALENT)
STANDING = (Fate.SURVIVED, Fate.UNREACHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """An automatic mutant and what became of it: which falsifiers were tried, and what the last of them saw.

    recalled: that was on an earlier run, and nothing has changed since that could bear on it.
    """

    mutant: Automatic
    fate: Fate
    tried: tuple[str, ...] = ()
    seen: str = ""
    recalled: bool = False


def limit_on_mutant(seconds: float) -> float:
    """How long a falsifier may take on a mutant when it takes `seconds` on the code itself."""
    return max(LEAST_LIMIT_S, SLOWER * seconds)


def fate(trial: Trial) -> Fate | None:
    """What one trial says of the mutant; None where it held, so that the next falsifier is asked."""
    if trial.ending in (Ending.REFUTED, Ending.RAISED):
        return Fate.KILLED
    if trial.counterexample is not None and trial.ending in (*LIMITS, *ERRORS) and trial.ending is not Ending.BROKEN:
        return Fate.KILLED
    if trial.ending in LIMITS:
        return Fate.BY_LIMIT
    if trial.ending is Ending.VOID or (trial.ending is Ending.BROKEN and _never_ran(trial)):
        return Fate.VOID
    return Fate.BY_ERROR if trial.ending in ERRORS else None


def _never_ran(trial: Trial) -> bool:
    """Whether the import failed, or a name was missing."""
    return not (trial.valid or trial.asked) or seen(trial).startswith(MISSING_NAMES)


def seen(trial: Trial) -> str:
    """What the falsifier saw, in a line."""
    text = trial.counterexample.error if trial.counterexample is not None else trial.detail
    return text.splitlines()[0][:200] if text else trial.ending.value
