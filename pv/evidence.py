"""What was tried, on what, and what came back. Nothing here says what follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

# Under this name, in the place of a device's, proofs are recorded: they are the same on every machine.
PROOFS = "proofs"


class Ending(Enum):
    """How one trial of a falsifier ended."""

    HELD = "held"
    """Every valid example was tried and none refuted the claim."""
    REFUTED = "refuted"
    """An assertion of the falsifier failed."""
    RAISED = "raised"
    """The subject raised on a valid input."""
    FLAKY = "flaky"
    """The same input failed once and passed once."""
    BARREN = "barren"
    """No valid example could be drawn."""
    SKIPPED = "skipped"
    """The falsifier said why it cannot be tried here."""
    UNSETTLED = "unsettled"
    """The search of a proof ended without an answer: neither refuted nor complete."""
    BROKEN = "broken"
    """The falsifier itself raised, or could not be bound."""
    VOID = "void"
    """The mutant was never planted: its module was not imported, or its edit did not apply."""
    TIME = "time limit"
    MEMORY = "memory limit"
    CRASHED = "crashed"
    """The process was killed by a signal."""
    SILENT = "silent"
    """The process ended without an answer, whatever its exit status."""
    CANCELLED = "cancelled"
    """Nothing was tried: the validation was stopped first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterexample:
    """An input that refuted the claim. `arguments` are JSON (see `pv.engines.encoding`); `exact` if they rebuild it."""

    arguments: Mapping[str, Any]
    exact: bool
    error: str
    frames: tuple[str, ...] = ()
    shrunk: bool = False
    blob: str = ""
    hypothesis: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    """What a worker printed: head and tail, how many bytes it was in all, and how many of them are in neither."""

    head: str = ""
    tail: str = ""
    size: int = 0
    dropped: int = 0

    @property
    def text(self) -> str:
        between = f"\n... {self.dropped} bytes left out ...\n" if self.dropped else ""
        return self.head + between + self.tail


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A one-symbol change of an equation: of which one, where in its expression, from what to what."""

    equation: str
    line: int
    column: int
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """How many changes of its equation an attack told apart from it, of how many, and which ones it did not."""

    told_apart: int
    total: int
    survivors: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One execution of one falsifier, on one device, against the subject or a mutant of it."""

    falsifier: str
    device: str
    ending: Ending
    mutant: str | None = None
    detail: str = ""
    valid: int = 0
    invalid: int = 0
    counterexample: Counterexample | None = None
    reached: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    asked: int = 0
    mutant_reached: bool = False
    seed: int = 0
    seconds: float = 0.0
    peak_mib: int = 0
    output: Output = Output()
    changes: Changes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """A device as the evidence names it. `name` is "" for the CPU."""

    name: str = ""
    torch: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Committed evidence for one falsifier on one device, and what of it no longer matches this tree."""

    falsifier: str
    device: str
    ending: Ending
    valid: int
    detail: str
    when: str
    hardware: DeviceInfo
    commit: str
    reached: bool = True
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationScore:
    """How many of a contract's automatic mutants fell to its falsifiers, as it was recorded, and what changed since.

    killed counts those ended by_limit and by_error too; total is how many there are, and judged how many of them were
    tried and stood for a fault: neither equivalent nor void. mutated: the places that they are of, where the contract
    named some.
    """

    total: int
    judged: int
    killed: int
    by_limit: int = 0
    by_error: int = 0
    unreached: int = 0
    equivalent: int = 0
    sampled: int = 0
    """How many of the total were drawn; the total itself where all were tried."""
    mutated: tuple[str, ...] = ()
    when: str = ""
    commit: str = ""
    changed: tuple[str, ...] = ()

    @property
    def value(self) -> float | None:
        """The share that fell; None where there was nothing to judge."""
        return self.killed / self.judged if self.judged else None

    @property
    def sample(self) -> bool:
        """Whether not all were tried: an estimate, with which no gate is satisfied."""
        return self.sampled < self.total


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that is known of one contract: what ran now, and what was recorded elsewhere."""

    trials: Mapping[tuple[str, str], Trial] = field(default_factory=dict)
    mutants: Mapping[tuple[str, str], Trial] = field(default_factory=dict)
    recorded: Mapping[tuple[str, str], Recorded] = field(default_factory=dict)
    automatic: Mapping[str, int] = field(default_factory=dict)
    """How many automatic mutants were drawn for each falsifier that declares none; it is tried until one falls."""
    score: MutationScore | None = None
    absent: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, DeviceInfo] = field(default_factory=dict)
