"""What a validation is asked for, what each of its tasks is for, and what is known so far."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pv import devices
from pv.evidence import Trial
from pv.model import Contract, Falsifier, Mutant, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a validation is: tasks done, tasks known of so far, and what runs now."""

    done: int
    total: int
    running: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to carry a validation out; see `pv.validate`."""

    jobs: int
    fail_fast: bool = False
    examples: int | None = None
    seed: int = 0
    replay: str = ""
    spawn: bool = False
    probe: devices.Probe | None = None
    on_progress: Callable[[Progress], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a task is for. Without a falsifier it executes `run`; `small` marks the run that mutants are held to."""

    contract: Contract
    device: str
    falsifier: Falsifier | None = None
    mutant: Mutant | None = None
    run: Run | None = None
    small: bool = False
    first: Trial | None = None
    """The search whose counterexample this task replays."""

    def __str__(self) -> str:
        who = self.falsifier.id if self.falsifier is not None else f"run {self.run.name if self.run else ''}"
        return f"{who} / {self.mutant.id}" if self.mutant is not None else who


@dataclass(slots=True)
class RunState:
    """A run that was started: where its record is, how it ended, and who waits for it."""

    directory: Path
    trial: Trial | None = None
    waiting: list[Falsifier] = field(default_factory=list)


@dataclass(slots=True)
class Known:
    """What is known of one contract so far."""

    trials: dict[tuple[str, str], Trial] = field(default_factory=dict)
    mutants: dict[tuple[str, str], Trial] = field(default_factory=dict)
    runs: dict[tuple[str, str, bool], RunState] = field(default_factory=dict)
    automatic: dict[str, list[Mutant]] = field(default_factory=dict)
    """For each falsifier that declares no mutant, the automatic ones that it has not been tried on yet."""
    drawn: dict[str, int] = field(default_factory=dict)
