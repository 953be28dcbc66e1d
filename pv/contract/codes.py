"""Defines the codes of findings, and lists those of loading and of evidence. A lint rule declares its own."""

from dataclasses import dataclass
from enum import Enum


class Stops(Enum):
    """The runs that a finding of a code prevents."""

    CONTRACT = "contract"
    """Nothing of the contract is run."""
    MUTANT = "mutant"
    """The mutant that it is about is not tried: a stale mutant must not hide a refutation."""
    SCORE = "score"
    """No mutation score is measured."""
    NOTHING = "nothing"
    """It fails the contract, and everything is run."""


@dataclass(frozen=True, slots=True)
class Code:
    """A code, what it means, and what it keeps from running."""

    name: str
    meaning: str
    stops: Stops = Stops.CONTRACT


LOADING = (
    Code("PV001", "the file cannot be read, or is not UTF-8"),
    Code("PV002", "the file is not YAML"),
    Code("PV003", "the file exceeds a limit of size, depth or number of values"),
    Code("PV004", "unsupported YAML: an alias, an anchor, a tag, a second document or a compound key"),
    Code("PV005", "a duplicate key in a mapping"),
    Code("PV010", "an unknown key"),
    Code("PV011", "a missing key"),
    Code("PV012", "a value of the wrong type or form"),
    Code("PV014", "not a contract, or of an unknown format"),
    Code("PV201", "existing format: a key that pv does not read", Stops.NOTHING),
    Code("PV205", "existing format: a number that contradicts the file", Stops.NOTHING),
    Code("PV206", "existing format: a reference to something that does not exist", Stops.NOTHING),
)
EVIDENCE = Code("PV170", "an evidence file cannot be read, or belongs to something else", Stops.NOTHING)
