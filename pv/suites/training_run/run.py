"""A run, read from its traces: processes, and for every process the windows of every optimizer.

A *window* consists of a step of an optimizer and the backward passes whose gradients it contains. It begins with the
last *fresh* backward pass: a pass before which no gradient of the optimizer was left over. The observer measures
whether gradients are left over, so windows do not depend on how the script clears gradients.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pv.errors import UsageError

SCHEMA = "pv-trace/1"

Event = Mapping[str, Any]
"""One line of a trace; `pv/observe/trace.schema.json` describes its fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One call of a loss, and the weight of its scored elements in the gradient of one backward pass.

    Attributes:
        key: Identifies the call in the code; the same on every rank.
        at: The line of the call in the user's code, or of the backward pass if only a model's logits are known.
        elements: Number of scored elements, or the sum of their class weights.
        labels: Number of scored elements, without class weights.
        weight: Weight of an element in the gradient, without the factor of a loss scaler.
        uniform: Whether all elements of the call have the same weight.
        precision: Largest ratio of two equal weights, as measured: the effect of rounding.
        value: Value of the loss; NaN if it is not known.
        reduction: The `reduction` of the loss function; "" if the loss is known only by its logits.
        rows: Number of rows of the micro-batch; 0 if it is not known.
    """

    key: str
    at: str
    elements: float
    labels: float
    weight: float
    uniform: bool
    precision: float
    value: float
    reduction: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One backward pass that reached the gradients of an optimizer.

    Attributes:
        n: Position among the events of the process.
        at: The line of the backward pass.
        fresh: Whether no gradient was left over before the pass.
        touched: Whether gradients were left over before the pass, and the script had changed them.
        onto_clipped: Number of clipped gradients that the pass has added to.
        scale: The loss scale; 1 without one.
        losses: The losses whose gradient the pass computed.
        forwards: Positions of the forwards whose outputs got a gradient.
        pulls: By position of a forward: the sum of the gradient of its output, in a process with several optimizers.
        input: Identifies the inputs of the last forward with gradients before the pass; "" if there was none since the
            previous pass that reached an optimizer.
        loader: The loader of these inputs; None if it is not known.
        is_sampled: Whether losses and logits were recorded; see `--sample`.
    """

    n: int
    at: str
    fresh: bool
    touched: bool
    onto_clipped: int
    scale: float
    losses: tuple[Loss, ...]
    forwards: frozenset[int]
    pulls: Mapping[int, float]
    input: str
    loader: int | None
    is_sampled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One step of an optimizer, and the backward passes and clippings that produced its gradient.

    Attributes:
        optimizer: Number of the optimizer.
        step: Number of the step of this optimizer, from 1.
        event: The event of the step.
        passes: The backward passes since the gradients were fresh; empty if there was none since the previous step.
        stale_passes: The first of `passes`, whose gradients an earlier step has already used.
        clips: The clippings since the previous step that covered parameters of the optimizer, or no parameters at all.
        cleared: Whether gradients were cleared between the last backward pass and the step.
        unscaled: Whether `GradScaler.unscale_` was called for the optimizer since the previous step.
        begins_pass: Whether a pass over the data loader of the inputs has begun since the previous step.
    """

    optimizer: int
    step: int
    event: Event
    passes: tuple[Pass, ...]
    stale_passes: tuple[Pass, ...]
    clips: tuple[Event, ...]
    cleared: bool
    unscaled: bool
    begins_pass: bool

    @property
    def n(self) -> int:
        """Return the position of the step among the events of the process."""
        return int(self.event["n"])

    @property
    def at(self) -> str:
        """Return the line that takes the step."""
        return str(self.event["at"])

    @property
    def is_sampled(self) -> bool:
        """Return whether losses were recorded in all passes. If not, no pass of the window has losses."""
        return all(backward.is_sampled for backward in self.passes)

    @property
    def modified(self) -> bool:
        """Return whether the script itself changed gradients before the step or before one of `recent`."""
        return bool(self.event["modified"]) or any(backward.touched for backward in self.recent)

    @property
    def recent(self) -> tuple[Pass, ...]:
        """Return the backward passes since the previous step."""
        return self.passes[len(self.stale_passes) :]

    def losses(self, key: str) -> list[Loss]:
        """Return the losses of one key in the backward passes of the window."""
        return [loss for backward in self.passes for loss in backward.losses if loss.key == key]


@dataclass(slots=True, kw_only=True)
class Process:
    """One process of the run.

    Attributes:
        start: The first event of the trace.
        events: All other events, in their order.
        windows: By number of the optimizer: its windows, in the order of the steps.
        training_forwards: Forwards whose gradient a step used, with the number of steps before the backward pass of the
            first such gradient.
        users: By position of a forward: the optimizers whose steps used its gradient.
        evaluations: Forwards without gradients, and whether a loss was computed before the next such forward.
        forwards: By position: the forwards with gradients.
        by_kind: By kind: the events of this kind, in their order.
    """

    start: Event
    events: Sequence[Event]
    windows: dict[int, list[Window]] = field(default_factory=dict)
    training_forwards: list[tuple[Event, int]] = field(default_factory=list)
    users: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    evaluations: list[tuple[Event, bool]] = field(default_factory=list)
    forwards: dict[int, Event] = field(default_factory=dict)
    by_kind: dict[str, list[Event]] = field(init=False)

    def __post_init__(self) -> None:
        self.by_kind = defaultdict(list)
        for event in self.events:
            self.by_kind[event["event"]].append(event)

    def of(self, *kinds: str) -> Iterator[Event]:
        """Yield the events of these kinds, in their order."""
        if len(kinds) == 1:
            return iter(self.by_kind.get(kinds[0], ()))
        return (event for event in self.events if event["event"] in kinds)

    @property
    def rank(self) -> int:
        """Return the rank of the process; 0 in a run with one process."""
        return int(self.start["rank"])

    @property
    def steps(self) -> int:
        """Return the largest number of steps of one optimizer."""
        return max((len(windows) for windows in self.windows.values()), default=0)

    @property
    def kinds(self) -> dict[int, str]:
        """Return the class names of the models, by number of the model."""
        return {event["model"]: event["kind"] for event in self.of("model")}

    @property
    def has_ddp(self) -> bool:
        """Return whether a model is wrapped in DistributedDataParallel."""
        return any(self.of("ddp"))

    @property
    def averages_gradients(self) -> bool:
        """Return whether gradients are reduced over ranks, other than by DistributedDataParallel.

        This is assumed if, before every step with a backward pass, at least as many elements are reduced as the
        parameters have.
        """
        events = [window.event for windows in self.windows.values() for window in windows if window.passes]
        return bool(events) and all(0 < e.get("elements", 0) <= e.get("reduced", 0) for e in events)

    @property
    def held(self) -> dict[int, Event]:
        """Return the last `held` event of every optimizer, by number: facts about its parameters."""
        return {event["optimizer"]: event for event in self.of("held")}

    def keys(self, optimizer: int) -> list[str]:
        """Return the keys of the losses of an optimizer's windows, in their order."""
        passes = (backward for window in self.windows[optimizer] for backward in window.passes)
        return list(dict.fromkeys(loss.key for backward in passes for loss in backward.losses))


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All processes of a run.

    Attributes:
        processes: The processes, in the order of their traces.
        complete: Whether the command ended by itself, with status 0 and without a limit on its steps, and all its
            events are known: the observer had no error.
        comparisons: Comparisons of this run with interrupted and resumed runs, or with another command.
    """

    processes: tuple[Process, ...]
    complete: bool
    comparisons: tuple["Comparison", ...] = ()

    @property
    def steps(self) -> int:
        """Return the largest number of steps of one optimizer in any process."""
        return max((process.steps for process in self.processes), default=0)

    @property
    def ranks(self) -> list[Process]:
        """Return the first process of every rank, by rank; [] for a run with one rank."""
        ranks = {process.rank: process for process in reversed(self.processes)}
        return [ranks[rank] for rank in sorted(ranks)] if len(ranks) > 1 else []

    @property
    def replicas(self) -> list[tuple[int, ...]]:
        """Return the optimizers that exist on all ranks: for every optimizer, a tuple of its numbers on the ranks.

        Optimizers correspond if the names and shapes of their parameters are equal. Their numbers may differ, since
        they depend on the order in which a rank creates objects. Optimizers of one rank with equal names and shapes,
        such as optimizers of parameters in no model, cannot be matched and are left out.
        """
        ranks = []
        """For every rank: the numbers of its optimizers, by names and shapes."""
        for process in self.ranks:
            held = process.held
            parameters = {n: (held[n]["names"], held[n]["parameters"]) for n in process.windows if n in held}
            counts = Counter(parameters.values())
            ranks.append({key: number for number, key in parameters.items() if counts[key] == 1})
        shared = [key for key in ranks[0] if all(key in numbers for numbers in ranks)] if ranks else []
        return [tuple(numbers[key] for numbers in ranks) for key in shared]

    @property
    def troubles(self) -> list[str]:
        """Return the errors of the observer itself. Events may be missing because of them."""
        return sorted({event["reason"] for process in self.processes for event in process.of("trouble")})


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """An uninterrupted run, and a run that is compared with it.

    Attributes:
        kind: "cut" for a run that was interrupted after a step; "save" for an interruption inside a save; "extended"
            for a run that was resumed after its end; "against" for the run of another command.
        uncut: The uninterrupted run.
        repeat: A repetition of the uninterrupted run, which has no processes if there are no traces of it; None if
            `uncut` is a separate run of the length of an extended run. Facts that differ between both runs depend on
            chance.
        parts: The run up to the interruption, then its continuations; or the run of the other command.
        status: The exit status of the last part.
    """

    kind: str
    uncut: Run
    repeat: Run | None
    parts: tuple[Run, ...]
    status: int


COMPARISONS = ("cut", "save", "extended", "against")
"""Kinds of comparisons: names of subfolders of the uncut run's traces, which have a folder for every part: 1, 2, ..."""


def read_folder(folder: Path, *, complete: bool) -> Run:
    """Read the run in a folder of traces, and the runs in its subfolders that are compared with this run.

    Args:
        folder: The folder that the observers wrote to.
        complete: See `Run`.

    Raises:
        UsageError: A file is not a trace, or has another version. The message names the file and the line.
    """
    run = _read(folder, complete)
    repeat = _read(folder / "again", complete)
    comparisons = []
    for kind in COMPARISONS:
        parts = sorted((folder / kind).glob("[0-9]*"), key=lambda part: int(part.name))
        if len(parts) >= (1 if kind == "against" else 2):
            longer = folder / kind / "uncut"  # an extended run is compared with an uncut run of the same length
            comparison = Comparison(
                kind=kind,
                uncut=_read(longer, complete) if longer.is_dir() else run,
                repeat=None if longer.is_dir() else repeat,
                parts=tuple(_read(part, complete) for part in parts),
                status=int((parts[-1] / "status").read_text()),
            )
            comparisons.append(comparison)
    return replace(run, comparisons=tuple(comparisons))


def _read(folder: Path, complete: bool) -> Run:
    return run_of([_read_file(file) for file in sorted(folder.glob("trace-*.jsonl"))], complete=complete)


def _read_file(file: Path) -> list[Event]:
    """Return the events of a trace, without an incomplete last line."""
    events = []
    # The part after the last line end is empty, or was cut when the process was killed during a write.
    for number, line in enumerate(file.read_bytes().split(b"\n")[:-1], 1):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{file}:{number}: not a trace: {getattr(error, 'msg', error)}") from error
        is_event = isinstance(event, dict) and "event" in event
        if number == 1 and not (is_event and event.get("schema") == SCHEMA):
            schema = event.get("schema") if isinstance(event, dict) else None
            raise UsageError(f"{file}:1: unknown trace schema {schema!r} (this pv reads {SCHEMA!r})")
        if not is_event:
            raise UsageError(f"{file}:{number}: not a trace: expected an object with the key 'event'")
        events.append(event)
    return events


def run_of(traces: Iterable[Sequence[Event]], *, complete: bool) -> Run:
    """Build a run from traces.

    Args:
        traces: One list of events per process; the first event is `start`.
        complete: See `Run`.
    """
    processes = tuple(process_of(events) for events in _with_whole_norms([events for events in traces if events]))
    return Run(processes=processes, complete=complete and not any(any(p.of("trouble")) for p in processes))


def _with_whole_norms(traces: list[Sequence[Event]]) -> list[Sequence[Event]]:
    """Replace the norms of sharded gradients by norms over all ranks, if there is exactly one trace per rank.

    The ranks of a sharded model clip and step together, so the k-th norms of all ranks belong to the same gradient.
    """
    world_size = traces[0][0]["world_size"] if traces else 1
    if world_size < 2 or sorted(events[0]["rank"] for events in traces) != list(range(world_size)):
        return traces
    norms_of_ranks: list[dict[int, float]] = [{} for _ in traces]
    """For every rank: the norms over all ranks, by position of the event."""
    for kind in ("clip", "step"):
        sharded = [[e for e in events if e["event"] == kind and _has_sharded_norm(e)] for events in traces]
        for event_of_ranks in zip(*sharded, strict=False):
            # The squared norms of disjoint shards add up. The replicated part is in the norm of every rank, but must
            # count only once.
            replicated = event_of_ranks[0].get("whole_norm") or 0.0
            squares = [_square(event["norm"]) - _square(event.get("whole_norm") or 0.0) for event in event_of_ranks]
            total = _square(replicated) + sum(squares)
            norm = 0.0 if total < 0 else math.sqrt(total)  # a negative sum is a rounding error
            for norms, event in zip(norms_of_ranks, event_of_ranks, strict=True):
                norms[event["n"]] = norm
    return [
        [{**event, "norm": norms[event["n"]]} if event["n"] in norms else event for event in events]
        for norms, events in zip(norms_of_ranks, traces, strict=True)
    ]


def _square(value: float) -> float:
    return value * value  # `**` raises OverflowError for large values, `*` returns infinity


def _has_sharded_norm(event: Event) -> bool:
    """Return whether the norm of a clipping or a step covers only the shards of one rank."""
    return event["norm"] is not None and (event.get("partial", False) or "whole_norm" in event)


def process_of(events: Sequence[Event]) -> Process:
    """Group the events of one process into windows.

    Args:
        events: The events of one trace; the first one is `start`.
    """
    process = Process(start=events[0], events=events[1:])
    models = _model_names(process)
    # By optimizer: the backward passes since its gradients were fresh, the position of its last step, and whether its
    # gradients were cleared since the last backward pass.
    since_fresh: dict[int, list[Pass]] = defaultdict(list)
    last_steps: dict[int, int] = defaultdict(lambda: -1)
    cleared: dict[int, bool] = defaultdict(bool)
    unscaled: set[int] = set()
    clips: list[Event] = []
    forwards: dict[int, Event] = {}
    steps_before: dict[int, int] = {}
    """By position of a backward pass: the number of steps before the pass."""
    loaders_read: set[int] = set()
    """The loaders over which a pass has begun."""
    new_passes: dict[int, set[int]] = defaultdict(lambda: set(loaders_read))
    """By optimizer: the loaders over which a pass has begun since its last step."""
    # The rows, inputs and loader of the last forward with gradients, and the largest number of steps so far.
    rows, inputs, steps = 0, "", 0
    loader: int | None = None
    first_uses: dict[int, int] = {}
    """By position of a forward whose gradient a step used: the number of steps before its first backward pass."""
    # Visit the events in their order. For every optimizer, collect the backward passes since its gradients were fresh.
    # A step ends a window but does not empty this list: gradients that are not cleared are carried into the next step.
    for event in process.events:
        kind = event["event"]
        if kind == "forward":
            if event["grad"]:
                forwards[event["n"]] = event
                loader = event["loader"]
                rows, inputs = (event["rows"] or [0])[-1], str((event["model"], event["inputs"]))
            else:
                process.evaluations.append((event, False))
        elif kind == "evaluation_loss" and process.evaluations:
            process.evaluations[-1] = (process.evaluations[-1][0], True)
        elif kind == "backward":
            for name, reached in event["reached"].items():
                number = int(name)
                backward = _pass(event, reached, rows, inputs, loader, models)
                if backward.fresh:
                    since_fresh[number] = []
                since_fresh[number].append(backward)
                cleared[number] = False
            # The inputs of a forward belong to the first backward pass after the forward.
            if event["reached"]:
                steps_before[event["n"]] = steps
                inputs, loader = "", None
        elif kind == "pass":
            loaders_read.add(event["loader"])
            for loaders in new_passes.values():
                loaders.add(event["loader"])
        elif kind == "zero":
            cleared.update(dict.fromkeys(event["optimizers"], True))
        elif kind == "clip":
            clips.append(event)
        elif kind == "unscale":
            unscaled.add(event["optimizer"])
        # Optimizers of accelerate or ZeRO wrap another optimizer: their step is left out, since the inner step counts.
        elif kind == "step" and not event["wraps"]:
            number = event["optimizer"]
            last = last_steps[number]
            passes = since_fresh[number]
            # If losses were recorded in only some passes, drop them: the step would seem to have fewer losses.
            if not all(backward.is_sampled for backward in passes):
                passes = [replace(backward, losses=()) for backward in passes]
            # A step without a backward pass since the previous step has an empty window.
            has_new = any(backward.n > last for backward in passes)
            covering = [
                c for c in clips if c["n"] > last and (c["covers"].get(str(number), [0])[0] or not c["parameters"])
            ]
            window = Window(
                optimizer=number,
                step=event["step"],
                event=event,
                passes=tuple(passes) if has_new else (),
                stale_passes=tuple(backward for backward in passes if backward.n < last) if has_new else (),
                clips=tuple(covering),
                cleared=cleared[number],
                unscaled=number in unscaled,
                begins_pass=bool({backward.loader for backward in passes} & new_passes[number]),
            )
            new_passes[number] = set()
            process.windows.setdefault(number, []).append(window)
            for backward in window.passes:
                for position in backward.forwards:
                    first_uses.setdefault(position, steps_before[backward.n])
                    process.users[position].add(number)
            last_steps[number] = event["n"]
            unscaled.discard(number)
            steps = max(steps, event["step"])
    process.forwards = forwards
    process.training_forwards = [(forwards[position], first_uses[position]) for position in sorted(first_uses)]
    return process


def _model_names(process: Process) -> dict[int, str]:
    """Return, by number of the model, a name that is usually the same on every rank: its class and a count."""
    # Numbers of models depend on all objects that a rank creates; the count within a class is more stable.
    names: dict[int, str] = {}
    count: Counter[str] = Counter()
    for number, kind in process.kinds.items():
        count[kind] += 1
        names[number] = f"{kind} {count[kind]}"
    return names


def _pass(event: Event, reached: Event, rows: int, inputs: str, loader: int | None, models: Mapping[int, str]) -> Pass:
    """Return a backward pass as seen by one optimizer.

    Args:
        event: The event of the pass.
        reached: The facts of the event about the gradients of the optimizer.
        rows: Number of rows of the last forward.
        inputs: Identifies the inputs of the last forward.
        loader: The loader of these inputs.
        models: Names of the models, by number.
    """
    scale = event["scale"] or 1.0
    losses = [_loss(loss, scale, rows) for loss in event["losses"]]
    if not losses:
        losses = [_loss_at_logits(loss, scale, rows, event["at"], models) for loss in event["logits"]]
    return Pass(
        n=event["n"],
        at=event["at"],
        fresh=not reached["left_over"],
        touched=bool(reached["left_over"]) and not reached["kept"],
        onto_clipped=reached["onto_clipped"],
        scale=scale,
        losses=tuple(loss for loss in losses if loss is not None),
        forwards=frozenset(event["forwards"]),
        pulls={int(position): value for position, value in event.get("pulls", {}).items()},
        input=inputs,
        loader=loader,
        is_sampled=event.get("sampled", True),
    )


def _loss(loss: Event, scale: float, rows: int) -> Loss | None:
    """Return a loss whose scored elements are counted; None without scored elements or with an unknown weight."""
    # The observer records gradients that are still multiplied by the loss scale.
    weight, low, high = (loss[key] / scale for key in ("weight", "low", "high"))
    if not loss["elements"] or weight != weight:
        return None
    return Loss(
        key=str(loss["key"]),
        at=loss["at"],
        elements=loss["elements"],
        labels=loss["labels"],
        weight=weight,
        uniform=abs(high - low) <= 1e-4 * max(abs(high), abs(low)),
        precision=1.001,
        value=loss["value"],
        reduction=loss["reduction"],
        rows=rows,
    )


def _loss_at_logits(loss: Event, scale: float, rows: int, at: str, models: Mapping[int, str]) -> Loss | None:
    """Return a loss that is known only by its logits and their gradient; None if it is not a cross-entropy."""
    # If fewer than half of the sampled rows fit a cross-entropy, the loss is a different one.
    fit = loss["weights"]
    if not fit["sampled"] or 2 * fit["fitting"] < fit["sampled"]:
        return None
    low, high = fit["low"] / scale, fit["high"] / scale
    return Loss(
        key=loss.get("key") or f"logits of {models.get(loss['model'], loss['model'])}",
        at=loss.get("at", at),
        elements=loss["elements"],
        labels=loss["elements"],
        weight=(low + high) / 2,
        uniform=abs(high - low) <= 0.02 * max(abs(high), abs(low)),
        precision=1.02,
        value=float("nan"),
        reduction="",
        rows=rows,
    )


def step_rows(process: Process) -> Iterator[dict[str, object]]:
    """Yield a row of numbers for every step of every optimizer of a process; None for unknown numbers.

    Some of the columns:
        loss: Mean of the losses in the backward passes of the step.
        scored: Number of scored elements.
        weight: Sum of the weights of the scored elements.
        norm: 2-norm of the gradient.
        rate: Largest learning rate of the parameter groups.
    """
    for optimizer, windows in process.windows.items():
        for window in windows:
            losses = [loss for backward in window.passes for loss in backward.losses]
            values = [loss.value for loss in losses]
            mean = sum(values) / len(values) if values else float("nan")
            yield {
                "rank": process.rank,
                "optimizer": optimizer,
                "step": window.step,
                "micro_batches": len(window.passes),
                "loss": mean if mean == mean else None,
                "scored": sum(loss.elements for loss in losses) if losses else None,
                "weight": sum(loss.elements * loss.weight for loss in losses) if losses else None,
                "norm": window.event["norm"],
                "rate": max(window.event["rates"], default=0),
                "clipped_at": window.clips[-1]["limit"] if window.clips else None,
                "scale": window.passes[-1].scale if window.passes else None,
            }


def largest_ratio(values: Iterable[float]) -> float:
    """Return the ratio of the largest to the smallest magnitude; 1 if there are no numbers, or all are 0."""
    sizes = [abs(value) for value in values]
    if not sizes or max(sizes) == 0:
        return 1.0
    return max(sizes) / max(min(sizes), 1e-300)
