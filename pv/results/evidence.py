"""The evidence about a contract: trials, recorded results, the mutation score and traces of runs."""

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from pv.engines.trial import Trial, TrialStatus

PROOFS = "proofs"
"""The name under which proofs are recorded, in place of a device: a proof is the same on every machine."""

STOPPED = "not run: --fail-fast stopped at the first failure"
"""The detail of a cancelled trial, and the reason why its claim is undecided."""
INTERRUPTED = "not run: interrupted"
"""The reason of a claim that is undecided because Ctrl-C prevented its trial."""
UNFINISHED = (STOPPED, INTERRUPTED)
"""The reasons of claims that are undecided because a validation ended early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """A device that trials ran on.

    Attributes:
        name: The name of its hardware, "" for the CPU.
        torch: The version of torch, "" without torch.
    """

    name: str = ""
    torch: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Committed evidence for one claim on one device, and the files that changed since it was recorded.

    Attributes:
        falsifier: Id of the claim.
        device: The device, or `PROOFS`.
        status: The status of the recorded trial.
        valid: Number of valid examples that were tried.
        detail: The detail of the trial.
        when: Date of the measurement (UTC, ISO 8601).
        hardware: The measured device.
        commit: The measured commit.
        reached: Whether the trial reached code of the subject.
        changed: The files that changed since; the evidence is stale unless this is empty.
    """

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
    """The recorded mutation score of a contract.

    Attributes:
        total: Number of generated mutants.
        judged: Number of mutants that were tried and are neither equivalent nor invalid.
        killed: Number of killed mutants, including `by_timeout` and `by_error`.
        by_timeout: Number of mutants that were killed by exceeding a time limit.
        by_error: Number of mutants that were killed by an error.
        no_coverage: Number of mutants in code that no falsifier reaches.
        equivalent: Number of mutants that the contract declares equivalent.
        sampled: Number of mutants that were tried; less than `total` for a sample.
        scope: The modules of the contract's `mutation_scope`; () for the subject's own modules.
        judges: Ids of the other contracts whose falsifiers judged the mutants.
        when: Date of the measurement (UTC, ISO 8601).
        commit: The measured commit.
        changed: The files that changed since the score was recorded.
    """

    total: int
    judged: int
    killed: int
    by_timeout: int = 0
    by_error: int = 0
    no_coverage: int = 0
    equivalent: int = 0
    sampled: int = 0
    scope: tuple[str, ...] = ()
    judges: tuple[str, ...] = ()
    when: str = ""
    commit: str = ""
    changed: tuple[str, ...] = ()

    @property
    def value(self) -> float | None:
        """Return the killed share of the judged mutants; None if no mutant was judged."""
        return self.killed / self.judged if self.judged else None

    @property
    def percent(self) -> str:
        """Return the score as text in percent, rounded down: a score below the minimum never looks equal to it."""
        return "none" if self.value is None else f"{math.floor(self.value * 1000) / 10:g} %"

    @property
    def is_sample(self) -> bool:
        """Return whether only a sample of the mutants was tried; such an estimate satisfies no gate."""
        return self.sampled < self.total


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTrace:
    """The trace of one reference run.

    Attributes:
        events: Name of an event and the number of times it occurs in a row, in order.
        losses: Step and loss, thinned out to `MAX_POINTS`.
    """

    run: str
    device: str
    seconds: float = 0.0
    events: tuple[tuple[str, int], ...] = ()
    losses: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence about one contract: trials that ran now, and recorded results.

    Attributes:
        trials: Trials on the clean code, by id of the claim and device.
        mutants: Trials on mutants, by ids of the claim and the mutant. The id "" is the clean code with the `small`
            arguments of a run.
        recorded: Recorded results, by id of the claim and device.
        score: The recorded mutation score.
        drawn_mutants: Number of generated mutants drawn for each falsifier that names no mutant. The falsifier is tried
            on these mutants in order until it kills one.
        unavailable: The devices on which no claim can be tried, with the reasons.
        interrupted: Whether trials are missing because of Ctrl-C.
        devices: The devices on which claims were tried, by name.
        runs: The traces of the reference runs.
    """

    trials: Mapping[tuple[str, str], Trial] = field(default_factory=dict)
    mutants: Mapping[tuple[str, str], Trial] = field(default_factory=dict)
    recorded: Mapping[tuple[str, str], Recorded] = field(default_factory=dict)
    drawn_mutants: Mapping[str, int] = field(default_factory=dict)
    score: MutationScore | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)
    interrupted: bool = False
    devices: Mapping[str, DeviceInfo] = field(default_factory=dict)
    runs: tuple[RunTrace, ...] = ()


MAX_EVENTS, MAX_POINTS = 200, 300
"""Maximum numbers of event rows and of losses in a trace."""


def trace_of(run: str, device: str, seconds: float, events: Iterable[Mapping[str, object]]) -> RunTrace:
    """Return the trace of a run for reports, from the events that the run recorded. Omit events without a name."""
    named_events = [(name, event) for event in events if isinstance(name := event.get("event"), str)]
    rows = tuple((name, sum(1 for _ in same)) for name, same in groupby(name for name, _ in named_events))
    numbers = [(_number(event.get("step")), _number(event.get("loss"))) for _, event in named_events]
    losses = tuple((step, loss) for step, loss in numbers if step is not None and loss is not None)
    if len(losses) > MAX_POINTS:
        # Integer division spreads the indices evenly and always includes the first and the last.
        last = len(losses) - 1
        losses = tuple(losses[index * last // (MAX_POINTS - 1)] for index in range(MAX_POINTS))
    return RunTrace(run=run, device=device, seconds=seconds, events=rows[:MAX_EVENTS], losses=losses)


def _number(value: object) -> float | None:
    """Return a finite number as a float; None for any other value, including bools."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > sys.float_info.max:
        return None
    return None if math.isnan(value) else float(value)
