"""Claims about a run that was interrupted and resumed.

There are two kinds of evidence:

1. `pv check --cut` runs a script three times: uncut, uncut again, and interrupted. The continuation is compared with
   the uncut run. A fact that differs between the two uncut runs is not judged, since it depends on chance.
2. Without `--cut`, two processes in one folder of traces may be a run and its restart: the later process begins with
   the weights that the earlier process had at a save, and restores more than weights. The two traces show which state
   is lost.

Of weights and of optimizer states, the observer records only two sums: see `same_sums`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pv.suites.training_run.claim import Record, claim
from pv.suites.training_run.run import Comparison, Event, Process, Run, Window

ROUNDING = 1e-5
"""Largest relative difference of losses, norms and rates that rounding explains."""
REPEATED_STEPS = 3
"""Number of steps that must repeat earlier steps, as evidence of a restart without an uncut run."""
PERIODIC = ("CosineAnnealingWarmRestarts", "CyclicLR", "OneCycleLR")
"""Schedules that a script may start again on purpose."""
NOT_REACHED = "the run was not interrupted and resumed (--cut K --resume ARGS)"


@dataclass(frozen=True, slots=True)
class Step:
    """The facts about a step of an optimizer that are compared between two runs.

    Attributes:
        window: The step and its backward passes.
        rates: Learning rates of the parameter groups.
        batches: Hashes of the inputs of all forwards whose gradients the step used.
        examples: Hashes of the rows of these inputs; empty if they are not known.
        losses: Values of the losses of all backward passes.
        scale: Loss scale of the last backward pass; 1 without a scaler.
        norm: 2-norm of the gradient.
        state: Number of parameters with a state in the optimizer before the step, and sums over the state.
        weights_before: Sums over the weights before the step; in a run without comparisons, over a few weights only.
        weights_after: Like `weights_before`, after the step.
    """

    window: Window
    rates: tuple[float, ...]
    batches: tuple[object, ...]
    examples: tuple[int, ...]
    losses: tuple[float, ...]
    scale: float
    norm: float | None
    state: tuple[int, tuple[float, ...]] | None
    weights_before: tuple[float, float] | None
    weights_after: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Continuation:
    """The steps of one optimizer in a process that continues from a save.

    Attributes:
        description: Where the run was interrupted and where it continues, as the beginning of a message.
        uncut: The steps of the uncut run; empty without an uncut run.
        repeats: Repetitions of the first steps of `uncut`: the second uncut run, and the run up to the interruption.
        earlier_steps: The steps of the process that saved.
        start: Number of steps before the save, in the whole run: `uncut[start]` is the first step after the save.
        saved_steps: Number of steps before the save, in the process that saved: an index of `earlier_steps`.
        steps: The steps of the continuation.
        process: The process that continues.
        earlier_process: The process that saved.
        save: The event of the save.
        is_last: Whether the run is not interrupted again.
        has_finished: Whether the command of the continuation ended with status 0.
        repeat_length: Number of steps of the second uncut run; None without such a run.
    """

    description: str
    uncut: list[Step]
    repeats: list[list[Step]]
    earlier_steps: list[Step]
    start: int
    saved_steps: int
    steps: list[Step]
    process: Process
    earlier_process: Process
    save: Event
    is_last: bool
    has_finished: bool
    repeat_length: int | None = None

    def first_difference(self, fact: Callable[[Step], object]) -> int | None:
        """Return the number of the first step in which a repetition of the uncut run has another fact, or None."""
        for repeat in self.repeats:
            for number, (one, two) in enumerate(zip(self.uncut, repeat, strict=False), 1):
                if not alike(fact(one), fact(two), 0.0):
                    return number
        return None

    def pairs(self) -> list[tuple[Step, Step]]:
        """Return pairs of a step of the uncut run and the corresponding step of the continuation."""
        return list(zip(self.uncut[self.start :], self.steps, strict=False))

    def line(self, *kinds: str) -> str:
        """Return the line for a finding about state of the given kinds.

        This is, if it exists, the line that restores such a state; else a line that loads weights; else a line that
        restores another state or reads a file; else the line of the save.
        """
        first = self.steps[0].window.n
        events = [e for e in self.process.of("restore", "load", "read_file") if e["n"] < first]
        restores = [e for e in events if e.get("kind") in kinds and e["event"] == "restore"]
        loads = [e for e in events if e["event"] == "load"]
        return str([*restores, *loads, *events, self.save][0]["at"])

    def restored(self) -> set[str]:
        """Return the kinds of state that the continuation has restored before its first step."""
        first = self.steps[0].window.n
        return {e["kind"] for e in self.process.of("restore") if e["n"] < first}


def alike(one: object, two: object, tolerance: float = ROUNDING) -> bool:
    """Return whether two facts agree up to a relative tolerance.

    Args:
        one: A number, a tuple of facts, or any object that is compared by `==`.
        two: The other fact. NaN agrees with NaN, since two runs may diverge in the same way.
        tolerance: Largest relative difference of floats that agree; 0 for exact equality.
    """
    if isinstance(one, tuple) and isinstance(two, tuple):
        return len(one) == len(two) and all(alike(a, b, tolerance) for a, b in zip(one, two, strict=True))
    if isinstance(one, float) and isinstance(two, float):
        return one == two or abs(one - two) <= tolerance * max(abs(one), abs(two)) or (one != one and two != two)
    return bool(one == two)


def same_sums(one: tuple[float, float] | None, two: tuple[float, float] | None) -> bool | None:
    """Return whether the sums over two sets of weights agree, as they do for equal weights; None without sums.

    Args:
        one: A sum over weights, and the sum of their absolute values, which gives the unit of the tolerance.
        two: The other sums.
    """
    if one is None or two is None:
        return None
    return abs(one[0] - two[0]) <= 1e-9 * (1e-30 + max(one[1], two[1]))


def steps_of(process: Process, optimizer: int) -> list[Step]:
    """Return the facts about every step of one optimizer."""
    steps = []
    for window in process.windows[optimizer]:
        event = window.event
        positions = sorted({n for backward in window.passes for n in backward.forwards if n in process.forwards})
        forwards = [process.forwards[n] for n in positions]
        state = event.get("state_before")
        steps.append(
            Step(
                window=window,
                rates=tuple(event["rates"]),
                batches=tuple(value for f in forwards for value in f["inputs"])
                or tuple(backward.input for backward in window.passes),
                examples=tuple(int(row) for f in forwards for rows in f.get("examples", []) for row in rows),
                losses=tuple(float(loss.value) for backward in window.passes for loss in backward.losses),
                scale=float(window.passes[-1].scale) if window.passes else 1.0,
                norm=event["norm"],
                state=None if state is None else (state["parameters"], tuple(state["sums"] or ())),
                weights_before=_sums(event, "weights_before", "digest_before"),
                weights_after=_sums(event, "weights", "digest"),
            )
        )
    return steps


def _sums(event: Event, sums: str, digest: str) -> tuple[float, float] | None:
    """Return the sums over all weights in the field `sums` of an event; without it, the sum over a few weights."""
    if event.get(sums) is not None:
        return float(event[sums][0]), float(event[sums][1])
    return _digest(event, digest)


def _digest(event: Event, field: str) -> tuple[float, float] | None:
    """Return the sum over a few weights in a field of a step, in the form of the sums of `same_sums`; None without."""
    return None if event.get(field) is None else (float(event[field]), abs(float(event[field])))


def by_rank(run: Run) -> dict[int, Process]:
    """Return, by rank, the process that took the most steps."""
    ranks: dict[int, Process] = {}
    for process in run.processes:
        if process.rank not in ranks or process.steps > ranks[process.rank].steps:
            ranks[process.rank] = process
    return ranks


def _saves(process: Process, optimizer: int) -> list[tuple[Event, int]]:
    """Return the saves of a process, from last to first, each with the number of steps of an optimizer before it."""
    # Other saves, such as of metrics, count only if the run saves nothing else.
    saves = [e for e in process.of("save") if set(e["parts"]) & {"model", "optimizer"}] or list(process.of("save"))
    return [(e, sum(w.n < e["n"] for w in process.windows[optimizer])) for e in reversed(saves)]


def _continuations(run: Run) -> Iterator[Continuation]:
    """Yield every continuation with an uncut run to compare it with, by rank and optimizer."""
    for comparison in run.comparisons:
        uncut = by_rank(comparison.uncut)
        repeats = by_rank(comparison.repeat) if comparison.repeat else {}
        for rank, process in uncut.items():
            for index, optimizer in enumerate(sorted(process.windows)):
                yield from _compare_parts(comparison, rank, index, steps_of(process, optimizer), repeats.get(rank))


def _compare_parts(
    comparison: Comparison, rank: int, index: int, uncut: list[Step], repeat: Process | None
) -> Iterator[Continuation]:
    """Yield the continuations of one optimizer on one rank: one for every part of the comparison but the first.

    Args:
        comparison: The uncut run, and the parts of the interrupted run.
        rank: The rank.
        index: The position of the optimizer among the optimizers of a process.
        uncut: The steps of the optimizer in the uncut run.
        repeat: The process of this rank in the second uncut run; None without one.
    """
    start = 0
    """Number of steps of the uncut run before the earlier part began."""
    repeats = [steps_of(repeat, sorted(repeat.windows)[index])] if repeat and len(repeat.windows) > index else []
    repeat_length = len(repeats[0]) if repeats else None
    for number, (one, two) in enumerate(pairwise(comparison.parts), 1):
        ranks, earlier, process = by_rank(one), by_rank(one).get(rank), by_rank(two).get(rank)
        if earlier is None or process is None:
            return
        saving = ranks[min(ranks)]  # usually only the first rank saves
        if min(len(part.windows) for part in (earlier, process, saving)) <= index:
            return
        earlier_steps, steps = (steps_of(part, sorted(part.windows)[index]) for part in (earlier, process))
        if number == 1:
            repeats.append(earlier_steps)
        saves = _saves(saving, sorted(saving.windows)[index])
        if not saves:
            return
        # A script may keep several files. It has resumed from the save whose weights the continuation starts with.
        begin = steps[0].weights_before
        save, saved = next((s for s in saves if same_sums(_weights_at(earlier_steps, s[1]), begin)), saves[0])
        end = start + len(earlier_steps)
        start += saved
        verb = {"cut": "was killed", "save": "was killed inside a save", "extended": "ended"}[comparison.kind]
        yield Continuation(
            description=f"the run {verb} after step {end} and was resumed from the save after step {start}",
            uncut=uncut,
            repeats=repeats,
            earlier_steps=earlier_steps,
            start=start,
            saved_steps=saved,
            steps=steps,
            process=process,
            earlier_process=earlier,
            save=save,
            is_last=number == len(comparison.parts) - 1,
            has_finished=comparison.status == 0,
            repeat_length=repeat_length,
        )


def _weights_at(steps: list[Step], saved: int) -> tuple[float, float] | None:
    """Return sums over the weights of a process after `saved` steps; None if they are not known.

    The weights before the next step are preferred to the weights after the last one: a script may change weights after
    a step, and then save them.
    """
    if saved < len(steps) and steps[saved].weights_before is not None:
        return steps[saved].weights_before
    return steps[saved - 1].weights_after if 0 < saved <= len(steps) else None


def _restarts(run: Run, *, weights_alone: bool = False) -> Iterator[Continuation]:
    """Yield every process that continues from a save of an earlier process, without an uncut run.

    The process begins with the weights that the earlier process had at the save, and restores an optimizer, a schedule,
    a scaler or random numbers.

    Args:
        run: The run, whose processes are compared with earlier processes of the same rank.
        weights_alone: Also yield a process that restores only weights, as fine-tuning does.
    """
    processes = sorted(run.processes, key=lambda process: float(process.start.get("time", 0)))
    for position, process in enumerate(processes):
        previous = [p for p in processes[:position] if p.rank == process.rank]
        for index, optimizer in enumerate(sorted(process.windows)):
            steps = steps_of(process, optimizer)
            for earlier in reversed(previous):
                if len(earlier.windows) <= index or steps[0].weights_before is None:
                    continue
                number = sorted(earlier.windows)[index]
                earlier_steps = steps_of(earlier, number)
                digests = [_digest(step.window.event, "digest") for step in earlier_steps]
                begin = _digest(steps[0].window.event, "digest_before")
                saves = [s for s in _saves(earlier, number) if s[1] and same_sums(digests[s[1] - 1], begin)]
                classes = [
                    {e["kind"] for e in p.of("optimizer") if e["optimizer"] == o}
                    for p, o in ((earlier, number), (process, optimizer))
                ]
                if not saves or classes[0] != classes[1]:
                    continue
                save, saved = saves[0]
                continuation = Continuation(
                    description=f"an earlier process saved after step {saved}, and this process continues from there",
                    uncut=[], repeats=[], earlier_steps=earlier_steps, start=saved, saved_steps=saved, steps=steps,
                    process=process, earlier_process=earlier, save=save, is_last=True, has_finished=True,
                )  # fmt: skip
                if weights_alone or continuation.restored():
                    yield continuation
                break


def _is_nondeterministic(record: Record, continuation: Continuation, name: str, fact: Callable[[Step], object]) -> bool:
    """Return whether two uncut runs differ in a fact. The claim is then not judged, and the record gets the reason.

    Args:
        record: The record of the claim.
        continuation: The continuation with its uncut runs.
        name: The plural of the fact in the reason.
        fact: Returns the fact of a step.
    """
    step = continuation.first_difference(fact)
    if step is not None:
        record.not_reached = (
            f"two uncut runs differ in their {name} from step {step} on: the script is not deterministic"
        )
    return step is not None


@claim("TR-RESUME-001", NOT_REACHED)
def continuation_starts_with_saved_weights(run: Run, record: Record) -> None:
    """The weights before the first step of a continuation differ from the weights that were saved.

    The saved weights are the weights of the saving process before its next step, so that the script need not be
    deterministic. If the saving process took no further step, the weights of the uncut run are compared.

    Without an uncut run, two cases falsify the claim:

    1. The weights are restored, but an average of them, such as an EMA, is not, although the file has the weights of
       another model of this size.
    2. The optimizer is restored, but the weights are the initial weights of an earlier process.
    """
    for c in _continuations(run):
        saved = c.earlier_steps[c.saved_steps].weights_before if c.saved_steps < len(c.earlier_steps) else None
        if saved is None and c.start < len(c.uncut):
            if _is_nondeterministic(record, c, "weights", lambda step: step.weights_before):
                continue
            saved = c.uncut[c.start].weights_before
        same = same_sums(saved, c.steps[0].weights_before)
        if same is None:
            continue
        record.tried += 1
        if not same:
            begin = c.steps[0].weights_before
            number = next((i for i, step in enumerate(c.uncut) if same_sums(step.weights_before, begin)), None)
            cause = (
                "these are the initial weights of a new run, so no weights are loaded"
                if number == 0
                else f"these are the weights after step {number} of the uncut run"
                if number
                else "some tensors are not in the file, are not loaded, or change after the load"
            )
            assert saved is not None and begin is not None
            record.falsify(
                c.line("model"),
                f"{c.description}, but continues with other weights than it saved: their sum is "
                f"{begin[0]:.7g} instead of {saved[0]:.7g}; {cause}",
                "call model.load_state_dict(state['model']) with strict=True, before the first step",
            )
    for c in _restarts(run):
        averages = {e["average"]: e for e in c.process.of("average") if e.get("restored") is not None}
        updated = [e for e in c.earlier_process.of("average") if e["n"] < c.save["n"]]
        record.tried += len(averages)
        lost = [event for event in averages.values() if not event["restored"]]
        if lost and len(updated) >= 2:
            record.falsify(
                c.line("model"),
                f"{c.description}: the weights of {lost[0]['kind']} are restored, but the average of these weights is "
                "not: it begins with weights that are not in the file, although the earlier process had updated the "
                "average, and the file has the weights of another model of this size",
                "also load the state of the average, after it is constructed",
            )
    # Without an uncut run: a process restores an optimizer, but begins with the initial weights of an earlier process.
    # If the earlier process had read these weights from a file, they may be pretrained, and both may read this file.
    for position, process in enumerate(run.processes):
        for earlier in run.processes[:position]:
            for optimizer, number in zip(sorted(process.windows), sorted(earlier.windows), strict=False):
                steps, previous = process.windows[optimizer], earlier.windows[number]
                restores = [e for e in process.of("restore") if e["n"] < steps[0].n and e["optimizer"] == optimizer]
                has_state = (steps[0].event.get("state_before") or {"parameters": 0})["parameters"]
                files = [e for e in earlier.of("load", "read_file", "restore") if e["n"] < previous[0].n]
                if earlier.rank != process.rank or len(previous) < 2 or not restores or files or not has_state:
                    continue
                record.tried += 1
                begin, initial = (_digest(w[0].event, "digest_before") for w in (steps, previous))
                if same_sums(begin, initial) and not same_sums(initial, _digest(previous[-1].event, "digest")):
                    record.falsify(
                        restores[0]["at"],
                        f"the optimizer is restored after {len(previous)} steps of an earlier process, but the weights "
                        "are the initial weights of that process",
                        "call model.load_state_dict(state['model']), before the first step",
                    )


@claim("TR-RESUME-002", NOT_REACHED, premises=("TR-RESUME-001", "TR-RESUME-003", "TR-RESUME-005"))
def continuation_has_the_rates(run: Run, record: Record) -> None:
    """The learning rates after a resume differ from the rates of the uncut run.

    A rate may depend on losses (ReduceLROnPlateau), and losses on random numbers. A difference after the first step is
    therefore a failure only if the weights still agree, or if the rates belong to another step.

    Without an uncut run, two cases falsify the claim if the optimizer is restored:

    1. A schedule starts again, although the file has its state, or its horizon is the length of both processes
       together. A periodic schedule may start again on purpose.
    2. Rates that the script computes repeat the rates of the first steps, although the file has the number of steps.
       The rates must have changed before the save, without a return to the first ones.
    """
    for c in _continuations(run):
        if _is_nondeterministic(record, c, "rates", lambda step: step.rates):
            continue
        pairs = c.pairs()
        record.tried += len(pairs)
        index = next((i for i, (one, two) in enumerate(pairs) if not alike(one.rates, two.rates)), None)
        if index is None:
            continue
        one, two = pairs[index]
        start = _actual_start(c, lambda step: step.rates)
        # A restored optimizer state contains the rate of the first step, so later rates decide about a new schedule.
        later = [alike(a.rates, b.rates) for a, b in zip(c.uncut[1:], c.steps[1:], strict=False)]
        start = 0 if len(later) >= REPEATED_STEPS and all(later) else start
        cause = (
            "the schedule starts from its beginning"
            if start == 0
            else f"these are the rates of the uncut run from step {start + 1} on: the schedule is "
            f"{abs(start - c.start)} steps {'behind' if start < c.start else 'ahead'}"
            if start is not None
            else "the state of the schedule, or a rate that the script changed, is not restored"
        )
        is_certain = not index or start is not None or same_sums(one.weights_before, two.weights_before)
        add = record.falsify if is_certain else record.hint
        add(
            c.line("scheduler"),
            f"{c.description}: step {c.start + index + 1} has the rate {max(two.rates, default=0):.4g} instead of "
            f"{max(one.rates, default=0):.4g}; {cause}",
            "save scheduler.state_dict(), and call scheduler.load_state_dict() after the scheduler is constructed",
        )
    for c in _restarts(run):
        _restarted_schedule(c, record)


def _restarted_schedule(c: Continuation, record: Record) -> None:
    """Judge the schedule of a continuation without an uncut run."""
    first = c.steps[0].window.n
    old, new = (
        [e for e in process.of("scheduler") if steps[0].window.optimizer in e["optimizers"]]
        for process, steps in ((c.earlier_process, c.earlier_steps), (c.process, c.steps))
    )
    if "optimizer" not in c.restored():
        return
    if not old and not new:  # the script itself computes the rates
        count = min(len(c.steps), c.saved_steps)
        rates = [step.rates for step in c.earlier_steps]
        if count < REPEATED_STEPS or len({max(row, default=0.0) for row in rates[:REPEATED_STEPS]}) < REPEATED_STEPS:
            return  # equal rates do not show the position in the schedule
        record.tried += 1
        # If the first rates recur earlier in the run, as in a cycle, they may recur now.
        recurs = any(rates[i : i + REPEATED_STEPS] == rates[:REPEATED_STEPS] for i in range(1, c.saved_steps))
        if not recurs and all(alike(s.rates, r) for s, r in zip(c.steps[1:count], rates[1:], strict=False)):
            is_counted = c.saved_steps in c.save.get("counts", ())
            add = record.falsify if is_counted else record.hint
            add(
                c.line(),
                f"{c.description}: its first {count} steps repeat the rates of the first steps of the run"
                + (f", although the file has the number of steps, {c.saved_steps}" if is_counted else ""),
                "restore the number of steps that the rate is computed from",
            )
        return
    if len(old) != 1 or len(new) != 1 or old[0]["kind"] != new[0]["kind"]:
        return
    advances, next_advances = (
        [e for e in process.of("schedule") if e["scheduler"] == scheduler["scheduler"]]
        for process, scheduler in ((c.earlier_process, old[0]), (c.process, new[0]))
    )
    advances = [e for e in advances if e["n"] < c.save["n"]]
    if not advances or not next_advances:
        return
    if any(e["explicit"] or e.get("epoch") is None for e in [*advances, *next_advances]):
        return
    record.tried += 1
    is_moved = any(e["n"] < first for e in next_advances)  # the script itself advances the schedule to its position
    if is_moved or "scheduler" in c.restored() or next_advances[0]["epoch"] != 1 or advances[-1]["epoch"] < 2:
        return
    horizon = next((value for value in new[0]["planned"].values() if value), 0)
    spans_both = new[0]["planned"] == old[0]["planned"] and horizon == len(advances) + len(next_advances)
    is_saved = any(e["n"] >= c.save["n"] and "scheduler" in e["parts"] for e in c.earlier_process.of("save"))
    fact = (
        "the file has its state"
        if is_saved
        else f"its state is not in the file, but its horizon of {horizon} advances is the sum for both processes"
        if spans_both
        else "its state is not in the file"
    )
    # An intentional new schedule has another horizon or another rate.
    same = (old[0]["planned"], old[0]["base_rates"]) == (new[0]["planned"], new[0]["base_rates"])
    add = record.falsify if (is_saved or spans_both) and same and new[0]["kind"] not in PERIODIC else record.hint
    add(
        c.line("scheduler"),
        f"{c.description}: the optimizer is restored, but {new[0]['kind']} is not ({fact}); the schedule had advanced "
        f"{advances[-1]['epoch']} times, and now starts again; the last rates were "
        f"{_rates(c.earlier_steps[: c.saved_steps][-2:])}, and the next rates are {_rates(c.steps[:3])}",
        "save scheduler.state_dict(), and call scheduler.load_state_dict() after the scheduler is constructed",
    )


def _rates(steps: Sequence[Step]) -> str:
    return ", ".join(f"{max(step.rates, default=0.0):.4g}" for step in steps)


def _actual_start(c: Continuation, fact: Callable[[Step], object], length: int | None = None) -> int | None:
    """Return where the continuation would start in the uncut run according to a fact; in a correct run, `c.start`.

    Args:
        c: The continuation.
        fact: Returns the fact of a step.
        length: Maximum number of steps that are compared; None for all.

    Returns:
        Number of steps of the uncut run before the steps with the same facts. None if there are no such steps, or if
        the facts are constant. At least three steps, or all steps of the continuation, must agree.
    """
    facts = [fact(step) for step in c.steps[:length]]
    if len(facts) < 2 or all(alike(facts[0], value) for value in facts):
        return None
    # Try likely positions first: the beginning of the run, and the steps around the save.
    starts: list[int] = [0, *range(max(0, c.start - 3), c.start + 4), *range(len(c.uncut))]
    for start in starts:
        uncut = [fact(step) for step in c.uncut[start : start + len(facts)]]
        if len(uncut) >= min(REPEATED_STEPS, len(facts)) and all(map(alike, uncut, facts)):
            return start
    return None


@claim("TR-RESUME-003", NOT_REACHED, premises=("TR-RESUME-001",))
def continuation_has_the_next_examples(run: Run, record: Record) -> None:
    """A resumed run does not read the batches after the save, or not in their order.

    Repeated or missing examples falsify the claim. Another order is a hint: without a restored random state, a script
    may still read every example once.

    Without an uncut run, four cases falsify the claim. The order of a pass shows nothing if another pass of the run has
    the same order.

    1. The save was inside a pass, and the continuation begins with the first batches of this pass. The continuation
       must also read the batches after the position of the save, since a short pass may be intended.
    2. The save was inside a pass, and the first pass of the continuation has neither the number of steps that were left
       nor the number of a whole pass.
    3. The save was after a pass, and the continuation repeats this pass.
    4. The save was after a pass, the continuation has the order of the first pass, and the file has a state of random
       numbers that is not restored.
    """
    for c in _continuations(run):
        if _is_nondeterministic(record, c, "batches", lambda step: step.batches):
            continue
        pairs = c.pairs()
        record.tried += len(pairs)
        index = next((i for i, (one, two) in enumerate(pairs) if one.batches != two.batches), None)
        if index is None:
            continue
        seen = f"{c.description}: step {c.start + index + 1} trains on other examples than in the uncut run"
        right = "restore the position in the epoch and the seed of its order, and skip the batches that were used"
        start = _actual_start(c, lambda step: step.batches, REPEATED_STEPS) if index == 0 else None
        epoch_start = _epoch_start(c.uncut, c.start)
        rest_of_epoch = _rest_of_epoch(c.uncut, c.start)
        used_rows = _examples(c.uncut[epoch_start : c.start])
        unused_rows = _examples(rest_of_epoch)
        epoch_rows = {*used_rows, *unused_rows}
        if start is not None and start < epoch_start and c.uncut[start].window.begins_pass:
            # The order of an earlier epoch, as with one seed for every process. This is no repetition of steps if the
            # epochs have the same rows: every example may still be read once per epoch.
            start = None if set(_examples(_rest_of_epoch(c.uncut, start))) == epoch_rows else start
        if start is not None and start != c.start:
            distance = abs(start - c.start)
            cause = (
                f", the beginning of the epoch: {distance} steps are repeated"
                if start == epoch_start
                else f": {distance} steps are repeated"
                if start < c.start
                else f": {distance} steps are left out"
            )
            record.falsify(c.line(), f"{seen}; the examples are those from step {start + 1} on{cause}", right)
            continue
        # The order differs. If the rows of an epoch are distinct, rows that were read before the save are read twice.
        rows = _examples(c.steps[: len(rest_of_epoch)])
        repeated = len(set(rows) & set(used_rows))
        are_distinct = unused_rows and len(epoch_rows) == len(used_rows) + len(unused_rows)
        if index == 0 and repeated and are_distinct and set(rows) <= epoch_rows:
            record.falsify(
                c.line(),
                f"{seen}; the order differs, and {repeated} of the {len(rows)} examples in the rest of the epoch were "
                "already used in this epoch",
                right,
            )
            continue
        record.hint(
            c.line(),
            f"{seen}; their order or their random augmentation differs",
            "restore the state of random numbers, or shuffle with a generator that is seeded with the epoch",
        )
    for c in _restarts(run):
        _restarted_examples(c, record)


def _restarted_examples(c: Continuation, record: Record) -> None:
    """Judge the examples of a continuation without an uncut run."""
    epoch_start = _epoch_start(c.earlier_steps, c.saved_steps)
    before_save = [step.batches for step in c.earlier_steps[epoch_start : c.saved_steps]]
    first_pass = [step.batches for step in _rest_of_epoch(c.steps, 0)]
    # Whether the process begins with a pass over a loader. If not, batches may be a function of the step number.
    by_loader = c.steps[0].window.begins_pass
    if not before_save or _epoch_has_ended(c, epoch_start):
        # The save is between two passes. If a script seeds the order with the number of the epoch, the order shows this
        # number.
        saved = c.earlier_steps[: c.saved_steps]
        starts = [i for i, step in enumerate(saved) if step.window.begins_pass]
        orders = [[step.batches for step in _rest_of_epoch(saved, start)] for start in starts]
        if len(orders) < 2 or not by_loader or not all(len(set(order)) == len(order) > 1 for order in orders):
            return
        record.tried += 1
        if orders.count(first_pass) == 1 and first_pass == orders[-1]:
            record.falsify(
                c.line(),
                f"{c.description}, after a whole epoch: its first {len(first_pass)} steps repeat the examples of the "
                f"last {len(first_pass)} steps before the save, in an order that no other epoch has: one epoch is "
                "trained on twice",
                "save the number of the next epoch, epoch + 1",
            )
        elif orders.count(first_pass) == 1 and first_pass == orders[0] and "random" not in c.restored():
            # Both processes have set the same seed at their beginning, and drawn their first order from this seed.
            is_saved = "random" in c.save["parts"]
            add = record.falsify if is_saved and c.restored() else record.hint
            add(
                c.line(),
                f"{c.description}, after {len(orders)} epochs: its first epoch has the order of the first epoch of the "
                "run, which no other epoch has: the state of random numbers is "
                + ("in the file, but not restored" if is_saved else "not restored"),
                "save torch.get_rng_state() and restore it last, before the first step",
            )
        return
    position = len(before_save)
    if position < 2 or len(set(before_save)) < position or not all(before_save):
        return
    record.tried += 1
    seen = f"{c.description}, in the middle of an epoch"
    right = "restore the position in the epoch, and skip the batches that were used"
    further = first_pass[position:]
    lengths = _whole_epochs(c, epoch_start)
    left = max(lengths) - position if lengths else 0
    if (
        first_pass[:position] == before_save
        and further
        and further[0] not in before_save
        and before_save[0] not in [s.batches for s in c.earlier_steps[:epoch_start]]
    ):
        add = record.falsify if by_loader else record.hint
        add(
            c.line(),
            f"{seen}: the epoch starts again, so {position} steps are repeated with the same examples in the same "
            f"order; {len(further)} more steps of the epoch follow",
            right,
        )
    elif by_loader and len(set(lengths)) == 1 and left > 0 and len(first_pass) not in (left, len(c.steps)):
        # A script that saves no position in the epoch resumes with a whole pass in another order: this is a hint.
        add = record.hint if len(first_pass) == lengths[0] or len(lengths) < 2 else record.falsify
        add(
            c.line(),
            f"{seen}, after {position} of {lengths[0]} steps: its first pass over the data has {len(first_pass)} steps "
            f"instead of {left}",
            right,
        )


def _epoch_has_ended(c: Continuation, epoch_start: int) -> bool:
    """Return whether the pass over the data that began after `epoch_start` steps had ended at the save."""
    first = c.earlier_steps[epoch_start].window.n if epoch_start < c.saved_steps else 0
    return any(first < e["n"] < c.save["n"] for e in c.earlier_process.of("pass_end"))


def _whole_epochs(c: Continuation, epoch_start: int) -> list[int]:
    """Return the number of steps of every pass over the data in both processes.

    Leave out the pass that contains the save, which begins after `epoch_start` steps, and the first pass of the
    continuation. The last pass of the continuation may be incomplete.
    """
    first = len(_rest_of_epoch(c.steps, 0))
    return [
        len(_rest_of_epoch(steps, i))
        for steps, positions in ((c.earlier_steps, range(epoch_start)), (c.steps, range(first, len(c.steps))))
        for i in positions
        if steps[i].window.begins_pass
    ]


def _steps_before_resumed_rest(c: Continuation) -> int:
    """Return the number of steps from the beginning of the epoch to the save.

    Return 0 unless the first pass of the continuation has exactly the remaining number of steps.
    """
    epoch_start = _epoch_start(c.earlier_steps, c.saved_steps)
    lengths = set(_whole_epochs(c, epoch_start))
    if _epoch_has_ended(c, epoch_start) or len(lengths) != 1 or not c.steps[0].window.begins_pass:
        return 0
    position = c.saved_steps - epoch_start
    return position if position + len(_rest_of_epoch(c.steps, 0)) in lengths else 0


def _examples(steps: Sequence[Step]) -> list[int]:
    return [row for step in steps for row in step.examples]


def _epoch_start(steps: Sequence[Step], position: int) -> int:
    """Return the number of steps before the pass over the data that contains a position.

    A position between two passes is the beginning of the second pass. The position after the last step belongs to the
    last pass.
    """
    start = position
    while start and (start == len(steps) or not steps[start].window.begins_pass):
        start -= 1
    return start


def _rest_of_epoch(steps: Sequence[Step], position: int) -> Sequence[Step]:
    """Return the steps from a position to the end of the pass over the data."""
    end = min(position + 1, len(steps))
    while end < len(steps) and not steps[end].window.begins_pass:
        end += 1
    return steps[position:end]


@claim("TR-RESUME-004", NOT_REACHED, premises=("TR-RESUME-001",))
def continuation_has_the_scale(run: Run, record: Record) -> None:
    """The loss scale after a resume differs from the loss scale of the uncut run.

    Infinite gradients change the scale. A difference after the first step is therefore a failure only if the weights
    still agree, or if the scales are the scales of a new run.

    Without an uncut run, the claim is falsified if a process restores other states but no scaler, and begins with the
    initial scale of the run, although the scale had changed before the save.
    """
    for c in _continuations(run):
        if all(step.scale == 1.0 for step in c.uncut) or _is_nondeterministic(
            record, c, "loss scales", lambda step: step.scale
        ):
            continue
        pairs = c.pairs()
        record.tried += len(pairs)
        index = next((i for i, (one, two) in enumerate(pairs) if one.scale != two.scale), None)
        if index is None:
            continue
        one, two = pairs[index]
        # The scaler counts steps up to the next growth of the scale. If all scales equal the scales of a new run, this
        # count starts at 0.
        is_new = [s.scale for s in c.steps] == [s.scale for s in c.uncut[: len(c.steps)]]
        cause = (
            "the scaler starts with its initial scale"
            if not index and two.scale == c.uncut[0].scale
            else "the scaler's count of steps since the last change of the scale is not restored"
        )
        is_certain = not index or is_new or same_sums(one.weights_before, two.weights_before)
        add = record.falsify if is_certain else record.hint
        add(
            c.line("scaler"),
            f"{c.description}: step {c.start + index + 1} has the loss scale {two.scale:g} instead of {one.scale:g}; "
            f"{cause}",
            "save scaler.state_dict(), and call scaler.load_state_dict(state['scaler']) with the other states",
        )
    for c in _restarts(run):
        first, last = c.earlier_steps[0].scale, c.earlier_steps[c.saved_steps - 1].scale
        if max(step.scale for step in c.earlier_steps) == 1.0 or c.steps[0].scale == 1.0:
            continue
        record.tried += 1
        saves = [e for e in c.earlier_process.of("save") if e["n"] >= c.save["n"] and e.get("scale")]
        expected = saves[0]["scale"] if saves else last
        if "scaler" not in c.restored() and c.steps[0].scale == first and expected != first and last != first:
            fact = "the file has its state" if saves else "its state is not in the file"
            record.falsify(
                c.line("scaler"),
                f"{c.description}: the loss scale starts again at {first:g}, but was {expected:g} at the save; the "
                f"scaler is not restored ({fact})",
                "save scaler.state_dict(), and call scaler.load_state_dict(state['scaler']) with the other states",
            )


@claim("TR-RESUME-005", NOT_REACHED, premises=("TR-RESUME-001",))
def continuation_has_the_state_of_the_optimizer(run: Run, record: Record) -> None:
    """The moments before the first step of a continuation differ from the moments at the save.

    Or the first step has another result, although weights, gradient and rate are the same.

    Without an uncut run, the claim is falsified if the optimizer of a process has no state for any parameter, although
    the file contains one. The process must also restore a schedule, a scaler or random numbers, or take exactly the
    remaining steps of an epoch. A script that starts with a new optimizer on purpose does neither.
    """
    for c in _continuations(run):
        saved = c.earlier_steps[c.saved_steps].state if c.saved_steps < len(c.earlier_steps) else None
        if saved is None and c.start < len(c.uncut) and c.first_difference(lambda step: step.state) is None:
            saved = c.uncut[c.start].state
        state = c.steps[0].state
        # Three checks, the clearest first: the number of parameters with a state, sums over the state, and the update
        # from equal weights, gradients and rates.
        pairs = c.pairs()
        record.tried += saved is not None and state is not None
        seen = ""
        if saved is not None and state is not None and saved[0] and state[0] < saved[0]:
            seen = f"before its first step, the optimizer has a state for {state[0]} parameters instead of {saved[0]}"
        elif saved is not None and state is not None and not alike(saved[1], state[1], 1e-3):
            seen = (
                f"before its first step, the sum over the state of the optimizer is {_first_sum(state[1])} instead "
                f"of {_first_sum(saved[1])}"
            )
        elif pairs and c.first_difference(lambda step: (step.norm, step.weights_after)) is None:
            one, two = pairs[0]
            same = same_sums(one.weights_before, two.weights_before) and alike(one.rates, two.rates)
            if same and one.norm and alike(one.norm, two.norm) and not _same_result(one, two):
                seen = "in its first step, the same gradient changes the same weights by another amount"
        if seen:
            record.falsify(
                c.line("optimizer"),
                f"{c.description}; {seen}: moments or momentum are not restored",
                "save optimizer.state_dict(), and call optimizer.load_state_dict() before the first step",
            )
    for c in _restarts(run, weights_alone=True):
        state = c.steps[0].state
        if state is None or "optimizer" not in c.save["parts"] or len(c.earlier_steps) < 2:
            continue
        record.tried += 1
        if not state[0] and c.save["stateful"] and "optimizer" not in c.restored():
            position = _steps_before_resumed_rest(c)
            fact = (
                f"other states are restored ({', '.join(sorted(c.restored()))})"
                if c.restored()
                else f"the process continues in the middle of an epoch, after {position} steps"
                if position
                else "only weights are loaded"
            )
            add = record.falsify if c.restored() or position else record.hint
            add(
                c.line("optimizer"),
                f"{c.description} with a new optimizer, which has no state for any parameter, although the file has "
                f"the state of the optimizer; {fact}",
                "call optimizer.load_state_dict(state['optimizer']) with the other states",
            )


def _same_result(one: Step, two: Step) -> bool:
    """Return whether the weights after two steps agree, as far as they are known."""
    return same_sums(one.weights_after, two.weights_after) is not False


def _first_sum(sums: tuple[float, ...]) -> str:
    return f"{sums[0]:.5g}" if sums else "0"


@claim("TR-RESUME-006", NOT_REACHED, premises=("TR-RESUME-001",))
def continuation_has_the_losses(run: Run, record: Record) -> None:
    """The losses of a continuation differ from the losses of the uncut run, with the same weights and batches.

    Always a hint: many scripts do not restore random states, which changes only dropout and augmentation.
    """
    for c in _continuations(run):
        if _is_nondeterministic(record, c, "losses", lambda step: step.losses):
            continue
        for number, (one, two) in enumerate(c.pairs(), c.start + 1):
            if not same_sums(one.weights_before, two.weights_before) or one.batches != two.batches or not one.losses:
                break
            record.tried += 1
            if not alike(one.losses, two.losses):
                record.hint(
                    c.line(),
                    f"{c.description}: step {number} has the loss {two.losses[0]:.6g} instead of {one.losses[0]:.6g}, "
                    "with the same weights and inputs: the state of random numbers (dropout), or another state outside "
                    "of the model, is not restored",
                    "save torch.get_rng_state() and restore it last, before the first step",
                )
                break


@claim("TR-RESUME-007", NOT_REACHED, premises=("TR-RESUME-001", "TR-RESUME-003"))
def continuation_takes_the_steps_that_were_left(run: Run, record: Record) -> None:
    """The interrupted and the resumed run together take more or fewer steps than the uncut run.

    Losses depend on random numbers, and a run may stop early because of its losses. Another number of steps is
    therefore a failure only if the weights agree in all common steps, or if the number of excess steps equals the
    number of steps before the save: in the whole run, or in the epoch of the save.
    """
    for c in _continuations(run):
        if not (c.is_last and c.has_finished):
            continue
        if c.repeat_length is not None and c.repeat_length != len(c.uncut):
            record.not_reached = f"two uncut runs take {len(c.uncut)} and {c.repeat_length} steps"
            continue
        record.tried += 1
        excess = c.start + len(c.steps) - len(c.uncut)
        if not excess:
            continue
        position = c.start - _epoch_start(c.uncut, c.start) if c.start < len(c.uncut) else 0
        cause = (
            "the continuation is as long as a new run, so a counter starts from 0, or an epoch is not counted"
            if excess == c.start
            else "the interrupted epoch starts again"
            if excess == position
            else "the counter of steps or epochs is not restored"
        )
        agree = all(same_sums(one.weights_after, two.weights_after) for one, two in c.pairs())
        add = record.falsify if agree or excess in (c.start, position) else record.hint
        add(
            c.line(),
            f"{c.description}: it takes {c.start + len(c.steps)} steps in all, {abs(excess)} "
            f"{'more' if excess > 0 else 'fewer'} than the {len(c.uncut)} of the uncut run; {cause}",
            "save and restore the numbers of finished steps and epochs, and continue with the next ones",
        )


@claim("TR-RESUME-008", NOT_REACHED, premises=tuple(f"TR-RESUME-00{number}" for number in (1, 2, 3, 4, 5, 7)))
def continuation_ends_with_the_weights(run: Run, record: Record) -> None:
    """The final weights differ from the weights of the uncut run, although all batches and losses are the same.

    If the weights agree after the last step and differ at the end of the script, the script has replaced the weights
    after the last step, by a best checkpoint or an average.
    """
    for c in _continuations(run):
        if not (c.is_last and c.has_finished) or c.start + len(c.steps) != len(c.uncut):
            continue
        if _is_nondeterministic(record, c, "weights", lambda step: (step.weights_after, step.losses, step.batches)):
            continue
        pairs = c.pairs()
        if any(one.batches != two.batches or not alike(one.losses, two.losses) for one, two in pairs):
            continue
        record.tried += 1
        index = next((i for i, (one, two) in enumerate(pairs) if not _same_result(one, two)), None)
        if index is not None:
            one, two = pairs[index]
            # Without losses, it is not known whether random numbers are the same.
            add = record.falsify if one.losses and alike(one.norm, two.norm) else record.hint
            add(
                c.line(),
                f"{c.description}: step {c.start + index + 1} gives other weights than in the uncut run, with the same "
                "examples, losses and rates",
                "save and restore every state that the update of the weights depends on",
            )
            continue
        optimizer = c.steps[0].window.optimizer
        ends = [
            next((float(e["sum"]) for e in process.of("end") if e["optimizer"] == number), None)
            for process, number in ((c.process, optimizer), (_uncut_process(run, c), c.uncut[0].window.optimizer))
        ]
        if None not in ends and not alike(ends[0], ends[1], 1e-9):
            record.falsify(
                c.line(),
                f"{c.description}: it has the weights of the uncut run after the last step, but not at the end of the "
                f"script (sum {ends[0]:.7g} instead of {ends[1]:.7g}); the script replaces the weights by a best "
                "checkpoint or an average, and has not restored the best score or the average",
                "save the best score, or the average, with the other states, and restore both",
            )


def _uncut_process(run: Run, c: Continuation) -> Process:
    """Return the process of the uncut run that corresponds to a continuation."""
    return next(
        process
        for comparison in run.comparisons
        for process in comparison.uncut.processes
        if any(c.uncut[0].window is window for windows in process.windows.values() for window in windows)
    )


@claim("TR-RESUME-009", "the run was not killed inside a save (--cut K --in-save)")
def interrupted_save_leaves_a_checkpoint(run: Run, record: Record) -> None:
    """A run that is killed inside a save cannot be resumed, neither from this save nor from the previous one.

    The claim is judged only if the same arguments have resumed a run that was killed after a step, which shows that the
    arguments are correct.
    """
    resumed = any(c.kind == "cut" and c.status == 0 for c in run.comparisons)
    for comparison in run.comparisons:
        if comparison.kind != "save" or not resumed:
            continue
        record.tried += 1
        if comparison.status:
            saves = [e for process in comparison.parts[0].processes for e in process.of("save")]
            record.falsify(
                str(saves[-1]["at"]) if saves else "",
                f"the run was killed inside a save after step {comparison.parts[0].steps} and cannot be resumed: the "
                f"continuation ends with status {comparison.status}; an incomplete file has replaced the last "
                "checkpoint",
                "save to a temporary file in the same folder, then call os.replace(temporary, path)",
            )
