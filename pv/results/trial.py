"""The result of one trial, and the evidence on a contract that trials and recorded results make up."""

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from pv.engines.trial import Code, Counterexample, EquationMutant, EquationMutants, Output, Trial, TrialStatus

__all__ = [
    "INTERRUPTED",
    "PROOFS",
    "STOPPED",
    "UNFINISHED",
    "Code",
    "Counterexample",
    "DeviceInfo",
    "EquationMutant",
    "EquationMutants",
    "Evidence",
    "MutationScore",
    "Output",
    "Recorded",
    "RunTrace",
    "Trial",
    "TrialStatus",
]

# Proofs are recorded under this name in place of a device: they are the same on every machine.
PROOFS = "proofs"

STOPPED = "not run: --fail-fast stopped at the first failure"
"""The detail of a trial that was cancelled, and the reason of a claim that is undecided for the lack of one."""
INTERRUPTED = "not run: interrupted"
"""The reason of a claim that is undecided for the lack of a trial that Ctrl-C prevented."""
UNFINISHED = (STOPPED, INTERRUPTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """A device as the evidence names it. `name` is "" for the CPU."""

    name: str = ""
    torch: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Committed evidence for one falsifier on one device, and the files of it that changed since."""

    falsifier: str
    device: str
    status: TrialStatus
    valid: int
    detail: str
    when: str
    hardware: DeviceInfo
    commit: str
    reached: bool = True
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationScore:
    """The recorded number of generated mutants that a contract's falsifiers killed, and what changed since.

    killed includes those killed by_timeout and by_error; total is how many there are; judged is how many of them were
    tried and are faults, neither equivalent nor invalid. scope: the modules that they are in, where the contract names
    some. judges: the other contracts whose falsifiers judged them.
    """

    total: int
    judged: int
    killed: int
    by_timeout: int = 0
    by_error: int = 0
    no_coverage: int = 0
    equivalent: int = 0
    sampled: int = 0
    """Number of mutants that were tried; the total itself unless it is a sample."""
    scope: tuple[str, ...] = ()
    judges: tuple[str, ...] = ()
    when: str = ""
    commit: str = ""
    changed: tuple[str, ...] = ()

    @property
    def value(self) -> float | None:
        """Return the share that was killed; None if no mutant was judged."""
        return self.killed / self.judged if self.judged else None

    @property
    def percent(self) -> str:
        """Return the share in percent, rounded down, so that a score below a gate never reads as equal to it."""
        return "none" if self.value is None else f"{math.floor(self.value * 1000) / 10:g} %"

    @property
    def sample(self) -> bool:
        """Return whether not all were tried: an estimate, which satisfies no gate."""
        return self.sampled < self.total


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTrace:
    """The trace of one reference run: its events in order, and its loss by step, as `pv.results.trial` reads them.

    events: name and number of equal events in a row. losses: step and loss, thinned out.
    """

    run: str
    device: str
    seconds: float = 0.0
    events: tuple[tuple[str, int], ...] = ()
    losses: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence about one contract: trials that ran now, and recorded results."""

    trials: Mapping[tuple[str, str], Trial] = field(default_factory=dict)
    mutants: Mapping[tuple[str, str], Trial] = field(default_factory=dict)
    recorded: Mapping[tuple[str, str], Recorded] = field(default_factory=dict)
    automatic: Mapping[str, int] = field(default_factory=dict)
    """Number of generated mutants drawn for each falsifier that names none; it is tried until it kills one."""
    score: MutationScore | None = None
    absent: Mapping[str, str] = field(default_factory=dict)
    interrupted: bool = False
    """Whether Ctrl-C prevented the trials that lack."""
    devices: Mapping[str, DeviceInfo] = field(default_factory=dict)
    runs: tuple[RunTrace, ...] = ()


MAX_EVENTS, MAX_POINTS = 200, 300


def trace_of(run: str, device: str, seconds: float, events: Iterable[Mapping[str, Any]]) -> RunTrace:
    """Return what a report shows of a trace. Events without a name are left out."""
    named_events = [(event["event"], event) for event in events if isinstance(event.get("event"), str)]
    rows = tuple((name, sum(1 for _ in same)) for name, same in groupby(name for name, _ in named_events))
    losses = [point for _, event in named_events if (point := _point(event)) is not None]
    return RunTrace(run=run, device=device, seconds=seconds, events=rows[:MAX_EVENTS], losses=_thinned(losses))


def _point(event: Mapping[str, Any]) -> tuple[float, float] | None:
    step, loss = _number(event.get("step")), _number(event.get("loss"))
    return (step, loss) if step is not None and loss is not None else None


def _number(value: Any) -> float | None:
    """Return a finite number as a float, None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > sys.float_info.max:
        return None
    return None if math.isnan(value) else float(value)


def _thinned(points: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return at most `MAX_POINTS` of the points, the first and the last among them."""
    if len(points) <= MAX_POINTS:
        return tuple(points)
    last = len(points) - 1
    return tuple(points[index * last // (MAX_POINTS - 1)] for index in range(MAX_POINTS))
