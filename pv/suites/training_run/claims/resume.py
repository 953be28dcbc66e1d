"""Claims about a run that was interrupted and resumed.

There are two kinds of evidence:

1. `pv check --cut` runs a script three times: uncut, uncut again, and interrupted. The continuation is compared with
   the uncut run, in all facts that are equal in the two uncut runs.
2. Without `--cut`, two processes in one folder of traces may be a run with a restart: the later process begins with the
   weights that the earlier one had at a save, and restores more than weights. The two traces show which state is lost.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pv.suites.training_run.claim import Record, claim
from pv.suites.training_run.run import Comparison, Event, Process, Run, Window

ROUNDING = 1e-5
"""Relative difference of losses and norms that rounding explains."""
REPEATED_STEPS = 3
"""Number of steps that must repeat earlier steps, as evidence of a restart without an uncut run."""
PERIODIC = ("CosineAnnealingWarmRestarts", "CyclicLR", "OneCycleLR")
NEEDS = "the run was not interrupted and resumed (--cut K --resume ARGS)"


@dataclass(frozen=True, slots=True)
class Step:
    """The facts about a step of an optimizer in which two runs are compared.

    Attributes:
        batches: Hashes of the inputs of all forwards whose gradients the step used.
        examples: Hashes of the rows of these inputs; empty if they are not known.
        state: Number of parameters with a state in the optimizer before the step, and sums over the state.
        before: Sums over the weights before the step; over a few weights only in a run without comparisons.
        after: Like `before`, after the step.
    """

    window: Window
    rates: tuple[float, ...]
    batches: tuple[object, ...]
    examples: tuple[int, ...]
    losses: tuple[float, ...]
    scale: float
    norm: float | None
    state: tuple[int, tuple[float, ...]] | None
    before: tuple[float, float] | None
    after: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Continuation:
    """The steps of one optimizer in a process that continues from a save.

    Attributes:
        place: A text that describes where the run was interrupted and where it continues.
        uncut: The steps of the uncut run; empty without an uncut run.
        again: The steps of the second uncut run, and the steps before the interruption.
        before: The steps of the process that saved.
        start: Number of steps before the save, as an index of `uncut`.
        saved: Number of steps before the save, as an index of `before`.
        steps: The steps of the continuation.
    """

    place: str
    uncut: list[Step]
    again: list[list[Step]]
    before: list[Step]
    start: int
    saved: int
    steps: list[Step]
    process: Process
    earlier: Process
    save: Event
    last: bool
    ended: bool
    length: int | None = None
    """Number of steps of the second uncut run; None without such a run."""

    def differs(self, fact: Callable[[Step], object]) -> int | None:
        """Return the number of the first step in which the uncut runs differ in a fact; None if there is none."""
        for other in self.again:
            for number, (one, two) in enumerate(zip(self.uncut, other, strict=False), 1):
                if not alike(fact(one), fact(two), 0.0):
                    return number
        return None

    def pairs(self) -> list[tuple[Step, Step]]:
        """Return pairs of a step of the uncut run and the corresponding step of the continuation."""
        return list(zip(self.uncut[self.start :], self.steps, strict=False))

    def line(self, *kinds: str) -> str:
        """Return the line that restores one of these kinds of state; else a line that loads or reads; else the save."""
        first = self.steps[0].window.n
        events = [e for e in self.process.of("restore", "load", "read_file") if e["n"] < first]
        chosen = [e["at"] for e in events if e.get("kind") in kinds and e["event"] == "restore"]
        loads = [e["at"] for e in events if e["event"] == "load"] + [e["at"] for e in events]
        return str(next(iter([*chosen, *loads, self.save["at"]])))

    def restored(self) -> set[str]:
        """Return the kinds of state that the process has restored before its first step."""
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
    """Return whether sums over weights agree; None if one of them is not known. Equal weights have equal sums."""
    if one is None or two is None:
        return None
    return abs(one[0] - two[0]) <= 1e-9 * (1e-30 + max(one[1], two[1]))


def steps_of(process: Process, optimizer: int) -> list[Step]:
    """Return the facts about every step of one optimizer."""
    steps = []
    for window in process.windows[optimizer]:
        event = window.event
        places = sorted({n for backward in window.passes for n in backward.forwards if n in process.forwards})
        forwards = [process.forwards[n] for n in places]
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
                before=_sums(event, "weights_before", "digest_before"),
                after=_sums(event, "weights", "digest"),
            )
        )
    return steps


def _sums(event: Event, full: str, partial: str) -> tuple[float, float] | None:
    if event.get(full) is not None:
        return float(event[full][0]), float(event[full][1])
    return _partial(event, partial)


def by_rank(run: Run) -> dict[int, Process]:
    """Return, by rank, the process that took the most steps."""
    ranks: dict[int, Process] = {}
    for process in run.processes:
        if process.rank not in ranks or process.steps > ranks[process.rank].steps:
            ranks[process.rank] = process
    return ranks


def _saves(process: Process, optimizer: int) -> list[tuple[Event, int]]:
    """Return the saves of a training state, from last to first, with the number of earlier steps of an optimizer."""
    # Other saves, such as of metrics, count only if the run saves nothing else.
    saves = [e for e in process.of("save") if set(e["parts"]) & {"model", "optimizer"}] or list(process.of("save"))
    return [(e, sum(w.n < e["n"] for w in process.windows[optimizer])) for e in reversed(saves)]


def _continuations(run: Run) -> Iterator[Continuation]:
    """Yield every continuation with an uncut run to compare it with, by rank and optimizer."""
    for comparison in run.comparisons:
        uncut = by_rank(comparison.uncut)
        again = by_rank(comparison.again) if comparison.again else {}
        for rank, process in uncut.items():
            for index, optimizer in enumerate(sorted(process.windows)):
                yield from _parts(comparison, rank, index, steps_of(process, optimizer), again.get(rank))


def _parts(
    comparison: Comparison, rank: int, index: int, uncut: list[Step], again: Process | None
) -> Iterator[Continuation]:
    start = 0
    """Number of steps of the uncut run before the earlier part began."""
    uncut_runs = [steps_of(again, sorted(again.windows)[index])] if again and len(again.windows) > index else []
    length = len(uncut_runs[0]) if uncut_runs else None
    for number, (one, two) in enumerate(pairwise(comparison.parts), 1):
        ranks, earlier, process = by_rank(one), by_rank(one).get(rank), by_rank(two).get(rank)
        if earlier is None or process is None or min(len(earlier.windows), len(process.windows)) <= index:
            return
        before, steps = (steps_of(part, sorted(part.windows)[index]) for part in (earlier, process))
        if number == 1:
            uncut_runs.append(before)
        saving = ranks[min(ranks)]
        saves = _saves(saving, sorted(saving.windows)[index])
        if not saves:
            return
        # A script may keep several files. It has resumed from the save whose weights the continuation starts with.
        chosen = next((s for s in saves if same_sums(_weights_at(before, s[1]), steps[0].before)), saves[0])
        save, saved = chosen
        start += saved
        name = {"cut": "killed", "save": "killed inside a save", "extended": "ended"}[comparison.kind]
        yield Continuation(
            place=f"{name} after step {start - saved + len(before)} and resumed from the save after step {start}",
            uncut=uncut,
            again=uncut_runs,
            before=before,
            start=start,
            saved=saved,
            steps=steps,
            process=process,
            earlier=earlier,
            save=save,
            last=number == len(comparison.parts) - 1,
            ended=comparison.status == 0,
            length=length,
        )


def _weights_at(steps: list[Step], saved: int) -> tuple[float, float] | None:
    """Return sums over the weights of a process after `saved` steps; None if they are not known.

    The weights before the next step are preferred to the weights after the last one: a script may change weights after
    a step, and then save them.
    """
    if saved < len(steps) and steps[saved].before is not None:
        return steps[saved].before
    return steps[saved - 1].after if 0 < saved <= len(steps) else None


def _restarts(run: Run, *, weights_alone: bool = False) -> Iterator[Continuation]:
    """Yield every process that continues from a save of an earlier process, without an uncut run.

    The process begins with the weights that the earlier process had at the save, and restores an optimizer, a schedule,
    a scaler or random numbers. A process that restores only weights, such as in fine-tuning, is left out unless
    `weights_alone` is set.
    """
    processes = sorted(run.processes, key=lambda process: float(process.start.get("time", 0)))
    for position, process in enumerate(processes):
        earlier_ones = [p for p in processes[:position] if p.rank == process.rank]
        for index, optimizer in enumerate(sorted(process.windows)):
            steps = steps_of(process, optimizer)
            for earlier in reversed(earlier_ones):
                if len(earlier.windows) <= index or steps[0].before is None:
                    continue
                number = sorted(earlier.windows)[index]
                before = steps_of(earlier, number)
                partial = [_partial(step.window.event, "digest") for step in before]
                begins = _partial(steps[0].window.event, "digest_before")
                saves = [s for s in _saves(earlier, number) if s[1] and same_sums(partial[s[1] - 1], begins)]
                kinds = [
                    {e["kind"] for e in p.of("optimizer") if e["optimizer"] == o}
                    for p, o in ((earlier, number), (process, optimizer))
                ]
                if not saves or kinds[0] != kinds[1]:
                    continue
                continuation = Continuation(
                    place=f"an earlier process saved after step {saves[0][1]}, and this process continues from there",
                    uncut=[], again=[], before=before, start=saves[0][1], saved=saves[0][1], steps=steps,
                    process=process, earlier=earlier, save=saves[0][0], last=True, ended=True,
                )  # fmt: skip
                if weights_alone or continuation.restored():
                    yield continuation
                break


def _partial(event: Event, name: str) -> tuple[float, float] | None:
    """Return the sum over a few weights, which is recorded in every step, in the form of `Step.before`."""
    return None if event.get(name) is None else (float(event[name]), abs(float(event[name])))


def _is_nondeterministic(record: Record, continuation: Continuation, name: str, fact: Callable[[Step], object]) -> bool:
    """Return whether two uncut runs differ in a fact. The claim is then not judged, and the record gets the reason."""
    step = continuation.differs(fact)
    if step is not None:
        record.not_reached = (
            f"two uncut runs differ in their {name} from step {step} on: the script is not deterministic"
        )
    return step is not None


@claim("TR-RESUME-001", NEEDS)
def continuation_starts_with_saved_weights(run: Run, record: Record) -> None:
    """The weights before the first step of a continuation equal the weights that were saved.

    These are the weights of the saving process before its next step, so that the script need not be deterministic. If
    the saving process took no further step, the weights of the uncut run are compared.
    """
    for c in _continuations(run):
        saved = c.before[c.saved].before if c.saved < len(c.before) else None
        if saved is None and c.start < len(c.uncut):
            if _is_nondeterministic(record, c, "weights", lambda step: step.before):
                continue
            saved = c.uncut[c.start].before
        same = same_sums(saved, c.steps[0].before)
        if same is None:
            continue
        record.tried += 1
        if not same:
            elsewhere = next((i for i, step in enumerate(c.uncut) if same_sums(step.before, c.steps[0].before)), None)
            cause = (
                "they are the initial weights of a new run: nothing is loaded"
                if elsewhere == 0
                else f"they are the weights after step {elsewhere}"
                if elsewhere
                else "some tensors are not in the file, are not loaded, or change after the load"
            )
            assert saved is not None and c.steps[0].before is not None
            record.falsify(
                c.line("model"),
                f"{c.place}, the run continues with other weights than it saved: their sum is "
                f"{c.steps[0].before[0]:.7g} instead of {saved[0]:.7g}; {cause}",
                "model.load_state_dict(state['model']) with strict=True, before the first step",
            )
    for c in _restarts(run):
        averages = {e["average"]: e for e in c.process.of("average") if e.get("restored") is not None}
        updated = [e for e in c.earlier.of("average") if e["n"] < c.save["n"]]
        record.tried += len(averages)
        lost = [event for event in averages.values() if not event["restored"]]
        if lost and len(updated) >= 2:
            record.falsify(
                c.line("model"),
                f"{c.place}: the weights of {lost[0]['kind']} are restored, but its average, which the earlier process "
                "had updated, begins with other weights than any in the file, although the file has the weights of "
                "another model of this size",
                "also load the state of the average, after it is constructed",
            )
    # Without an uncut run: an optimizer is restored, but the weights are the initial ones of the run, from no file.
    for position, process in enumerate(run.processes):
        for earlier in run.processes[:position]:
            for optimizer, number in zip(sorted(process.windows), sorted(earlier.windows), strict=False):
                steps, before = process.windows[optimizer], earlier.windows[number]
                restores = [e for e in process.of("restore") if e["n"] < steps[0].n and e["optimizer"] == optimizer]
                state = steps[0].event.get("state_before") or {"parameters": 0}
                files = [e for e in earlier.of("load", "read_file", "restore") if e["n"] < before[0].n]
                if earlier.rank != process.rank or len(before) < 2 or not restores or files or not state["parameters"]:
                    continue
                record.tried += 1
                begins, began = (_partial(w[0].event, "digest_before") for w in (steps, before))
                if same_sums(begins, began) and not same_sums(began, _partial(before[-1].event, "digest")):
                    record.falsify(
                        restores[0]["at"],
                        f"the optimizer is restored after {len(before)} steps of an earlier process, but the weights "
                        "are the initial weights of that process",
                        "model.load_state_dict(state['model']), before the first step",
                    )


@claim("TR-RESUME-002", NEEDS, premises=("TR-RESUME-001", "TR-RESUME-003", "TR-RESUME-005"))
def continuation_has_the_rates(run: Run, record: Record) -> None:
    """The learning rates after a resume equal the rates of the uncut run.

    A rate may depend on losses (ReduceLROnPlateau), and losses on random numbers. A difference after the first step is
    therefore a failure only if the weights still agree, or if the rates belong to another step.

    Without an uncut run, the claim is falsified if the optimizer is restored, but the continuation has the rates of the
    first steps of the run. These rates must have changed before the save, without a return to the first ones. A
    schedule whose state is restored, or that is periodic, may do this on purpose.
    """
    for c in _continuations(run):
        if _is_nondeterministic(record, c, "rates", lambda step: step.rates):
            continue
        pairs = c.pairs()
        record.tried += len(pairs)
        wrong = next((i for i, (one, two) in enumerate(pairs) if not alike(one.rates, two.rates)), None)
        if wrong is None:
            continue
        one, two = pairs[wrong]
        shift = _shift(c, lambda step: step.rates)
        # A restored optimizer state contains the rate of the first step, so later rates decide about a new schedule.
        later = [alike(a.rates, b.rates) for a, b in zip(c.uncut[1:], c.steps[1:], strict=False)]
        shift = 0 if len(later) >= REPEATED_STEPS and all(later) else shift
        cause = (
            "the schedule starts from its beginning"
            if shift == 0
            else f"they are the rates from step {shift + 1} on: the schedule is off by {abs(shift - c.start)} steps"
            if shift is not None
            else "the state of the schedule, or a rate that the script changed, is not restored"
        )
        add = record.falsify if not wrong or shift is not None or same_sums(one.before, two.before) else record.hint
        add(
            c.line("scheduler"),
            f"{c.place}, step {c.start + wrong + 1} has the rate {max(two.rates, default=0):.4g} instead of "
            f"{max(one.rates, default=0):.4g}; {cause}",
            "save scheduler.state_dict(), and call scheduler.load_state_dict() after the scheduler is constructed",
        )
    for c in _restarts(run):
        _restarted_schedule(c, record)


def _restarted_schedule(c: Continuation, record: Record) -> None:
    """Judge the schedule of a continuation without an uncut run."""
    first = c.steps[0].window.n
    old, new = (
        [e for e in process.of("scheduler") if number in e["optimizers"]]
        for process, number in ((c.earlier, c.before[0].window.optimizer), (c.process, c.steps[0].window.optimizer))
    )
    if "optimizer" not in c.restored():
        return
    right = "save scheduler.state_dict(), and call scheduler.load_state_dict() after the scheduler is constructed"
    if not old and not new:
        count = min(len(c.steps), c.saved)
        rates = [step.rates for step in c.before]
        varied = len({max(row, default=0.0) for row in rates[:REPEATED_STEPS]}) == REPEATED_STEPS
        if count < REPEATED_STEPS or not varied:
            return
        record.tried += 1
        # If the first rates recur earlier in the run, as in a cycle, they may recur now.
        recurs = any(rates[i : i + REPEATED_STEPS] == rates[:REPEATED_STEPS] for i in range(1, c.saved))
        if not recurs and all(alike(s.rates, r) for s, r in zip(c.steps[1:count], rates[1:], strict=False)):
            counted = c.saved in c.save.get("counts", ())
            add = record.falsify if counted else record.hint
            add(
                c.line(),
                f"{c.place}: its first {count} steps repeat the rates of the first steps of the run"
                + (f", although the file has the number of steps, {c.saved}" if counted else ""),
                "restore the number of steps that the rate is computed from",
            )
        return
    if len(old) != 1 or len(new) != 1 or old[0]["kind"] != new[0]["kind"]:
        return
    calls = [
        [e for e in process.of("schedule") if e["scheduler"] == scheduler["scheduler"]]
        for process, scheduler in ((c.earlier, old[0]), (c.process, new[0]))
    ]
    done = [e for e in calls[0] if e["n"] < c.save["n"]]
    if not done or not calls[1] or any(e["explicit"] or e.get("epoch") is None for e in [*done, *calls[1]]):
        return
    record.tried += 1
    ahead = any(e["n"] < first for e in calls[1])  # the script advances the schedule to its position
    if ahead or "scheduler" in c.restored() or calls[1][0]["epoch"] != 1 or done[-1]["epoch"] < 2:
        return
    planned = next((value for value in new[0]["planned"].values() if value), 0)
    whole = new[0]["planned"] == old[0]["planned"] and planned == len(done) + len(calls[1])
    saved = next((e for e in c.earlier.of("save") if e["n"] >= c.save["n"] and "scheduler" in e["parts"]), None)
    fact = (
        "the file has its state"
        if saved
        else f"its state is not in the file, and its horizon of {planned} is the number of advances in both processes"
        if whole
        else "its state is not in the file"
    )
    # An intentional new schedule has another horizon or another rate.
    same = (old[0]["planned"], old[0]["base_rates"]) == (new[0]["planned"], new[0]["base_rates"])
    add = record.falsify if (saved or whole) and same and new[0]["kind"] not in PERIODIC else record.hint
    add(
        c.line("scheduler"),
        f"{c.place}: the optimizer is restored, but {new[0]['kind']} is not ({fact}); it had advanced "
        f"{done[-1]['epoch']} times, and now starts again; the last rates were {_rates(c.before[: c.saved][-2:])}, and "
        f"the next rates are {_rates(c.steps[:3])}",
        right,
    )


def _rates(steps: Sequence[Step]) -> str:
    return ", ".join(f"{max(step.rates, default=0.0):.4g}" for step in steps)


def _shift(c: Continuation, fact: Callable[[Step], object], length: int | None = None) -> int | None:
    """Return the step of the uncut run at which its facts begin to equal the facts of the continuation; else None.

    The facts must not be constant, and at least three steps, or all steps of the continuation, must agree. At most
    `length` steps are compared.
    """
    # Try likely shifts first: the beginning of the run, and the steps around the save.
    mine = [fact(step) for step in c.steps[:length]]
    if len(mine) < 2 or all(alike(mine[0], value) for value in mine):
        return None
    shifts: list[int] = [0, *range(max(0, c.start - 3), c.start + 4), *range(len(c.uncut))]
    for shift in shifts:
        theirs = [fact(step) for step in c.uncut[shift : shift + len(mine)]]
        if len(theirs) >= min(REPEATED_STEPS, len(mine)) and all(
            alike(a, b) for a, b in zip(theirs, mine, strict=False)
        ):
            return shift
    return None


@claim("TR-RESUME-003", NEEDS, premises=("TR-RESUME-001",))
def continuation_has_the_next_examples(run: Run, record: Record) -> None:
    """A resumed run reads the batches after the save, once and in their order.

    Repeated or missing examples falsify the claim. Another order is a hint: without a restored random state, a script
    may still read every example once.

    Without an uncut run, the claim is falsified if the continuation begins with the first batches of the unfinished
    pass, although the weights have been trained on them. Its pass must continue beyond the position of the save, or it
    may be short on purpose. If the file has a state of random numbers that is not restored, the order of the first
    epoch also falsifies the claim. No earlier pass of the run may have begun with these batches, or every pass has this
    order.
    """
    for c in _continuations(run):
        if _is_nondeterministic(record, c, "batches", lambda step: step.batches):
            continue
        pairs = c.pairs()
        record.tried += len(pairs)
        wrong = next((i for i, (one, two) in enumerate(pairs) if one.batches != two.batches), None)
        if wrong is None:
            continue
        seen = f"{c.place}, step {c.start + wrong + 1} trains on other examples than in the uncut run"
        right = "restore the position in the epoch and the seed of its order, and skip the batches that were used"
        shift = _shift(c, lambda step: step.batches, REPEATED_STEPS) if wrong == 0 else None
        begun = _begin_of_epoch(c.uncut, c.start)
        epoch = _rest_of_epoch(c.uncut, c.start)
        earlier = _examples(c.uncut[begun : c.start])
        rest = _examples(epoch)
        if shift is not None and shift < begun and c.uncut[shift].window.begins_pass:
            # The order of an earlier epoch, as after setting the seed: every example may still come once per epoch.
            same = _examples(_rest_of_epoch(c.uncut, shift))
            shift = None if set(same) == {*earlier, *rest} else shift
        if shift is not None and shift != c.start:
            far = abs(shift - c.start)
            cause = (
                f"they are the examples from step {shift + 1} on, where the epoch begins: {far} steps are repeated"
                if shift == begun
                else f"they are the examples from step {shift + 1} on: {far} steps are repeated"
                if shift < c.start
                else f"they are the examples from step {shift + 1} on: {far} steps are left out"
            )
            record.falsify(c.line(), f"{seen}: {cause}", right)
            continue
        mine = _examples(c.steps[: len(epoch)])
        twice = len(set(mine) & set(earlier))
        distinct = rest and len({*earlier, *rest}) == len(earlier) + len(rest)
        if wrong == 0 and twice and distinct and set(mine) <= {*earlier, *rest}:
            record.falsify(
                c.line(),
                f"{seen}: the order is another one, and {twice} of the {len(mine)} examples in the rest of the epoch "
                "were already used in this epoch",
                right,
            )
            continue
        record.hint(
            c.line(),
            f"{seen}: their order or their random augmentation is another one",
            "restore the state of random numbers, or shuffle with a generator that is seeded with the epoch",
        )
    for c in _restarts(run):
        _restarted_examples(c, record)


def _restarted_examples(c: Continuation, record: Record) -> None:
    """Judge the examples of a continuation without an uncut run."""
    begun = _begin_of_epoch(c.before, c.saved)
    head = [step.batches for step in c.before[begun : c.saved]]
    ended = _has_ended(c, begun)
    # Whether the process begins with a pass over a loader. If not, batches may be a function of the step number.
    by_loader = c.steps[0].window.begins_pass
    mine = [step.batches for step in _rest_of_epoch(c.steps, 0)]
    right = "restore the position in the epoch, and skip the batches that were used"
    if not head or ended:
        # The save is between two passes. If the order is seeded with the number of the epoch, it shows this number.
        passes = [
            list(_rest_of_epoch(c.before[: c.saved], i)) for i in range(c.saved) if c.before[i].window.begins_pass
        ]
        orders = [[step.batches for step in steps] for steps in passes]
        if len(orders) < 2 or not by_loader or not all(len(set(order)) == len(order) > 1 for order in orders):
            return
        record.tried += 1
        if orders.count(mine) == 1 and mine == orders[-1]:
            record.falsify(
                c.line(),
                f"{c.place}, after a whole epoch: its first {len(mine)} steps repeat the examples of the last "
                f"{len(mine)} steps before the save, in an order that no other epoch has: one epoch is trained on "
                "twice",
                "save the number of the next epoch, epoch + 1",
            )
        elif orders.count(mine) == 1 and mine == orders[0] and "random" not in c.restored():
            # The process has drawn the order from a seed that was set at its beginning, as the earlier process has.
            is_saved = "random" in c.save["parts"]
            add = record.falsify if is_saved and c.restored() else record.hint
            add(
                c.line(),
                f"{c.place}, after {len(orders)} epochs: its first epoch has the order of the first epoch of the run, "
                "which no other epoch has: the state of random numbers is "
                + ("in the file, but not restored" if is_saved else "not restored"),
                "save torch.get_rng_state() and restore it last, before the first step",
            )
        return
    if len(head) < 2 or len(set(head)) < len(head) or not all(head):
        return
    record.tried += 1
    tail = mine[len(head) :]
    seen = f"{c.place}, in the middle of an epoch"
    lengths = _whole_epochs(c, begun)
    whole = set(lengths)
    left = max(whole) - len(head) if whole else 0
    if (
        mine[: len(head)] == head
        and tail
        and tail[0] not in head
        and head[0] not in [s.batches for s in c.before[:begun]]
    ):
        add = record.falsify if by_loader else record.hint
        add(
            c.line(),
            f"{seen}: it starts the epoch again, so {len(head)} steps are repeated with the same examples in the same "
            f"order; {len(tail)} more steps of the epoch follow",
            right,
        )
    elif by_loader and len(whole) == 1 and left > 0 and len(mine) != left and len(mine) < len(c.steps):
        # A script that saves no position in the epoch resumes with a whole pass in another order: this is a hint.
        add = record.hint if {len(mine)} == whole or len(lengths) < 2 else record.falsify
        add(
            c.line(),
            f"{seen}, after {len(head)} of {max(whole)} steps: its first pass over the data has {len(mine)} steps "
            f"instead of {left}",
            right,
        )


def _has_ended(c: Continuation, begun: int) -> bool:
    """Return whether the pass over the data that began after `begun` steps had ended at the save."""
    first = c.before[begun].window.n if begun < c.saved else 0
    return any(first < e["n"] < c.save["n"] for e in c.earlier.of("pass_end"))


def _whole_epochs(c: Continuation, begun: int) -> list[int]:
    """Return the numbers of steps of the complete passes over the data in both processes."""
    first = len(_rest_of_epoch(c.steps, 0))
    return [
        len(_rest_of_epoch(steps, i))
        for steps, numbers in ((c.before, range(begun)), (c.steps, range(first, len(c.steps))))
        for i in numbers
        if steps[i].window.begins_pass
    ]


def _place_in_epoch(c: Continuation) -> tuple[int, int, int]:
    """Return the steps of the epoch before the save, the steps left, and the steps that are taken; zeros if unknown."""
    begun = _begin_of_epoch(c.before, c.saved)
    whole = set(_whole_epochs(c, begun))
    place = c.saved - begun
    if _has_ended(c, begun) or len(whole) != 1 or not c.steps[0].window.begins_pass:
        return 0, 0, 0
    return place, max(whole) - place, len(_rest_of_epoch(c.steps, 0))


def _examples(steps: Sequence[Step]) -> list[int]:
    return [row for step in steps for row in step.examples]


def _begin_of_epoch(steps: Sequence[Step], place: int) -> int:
    """Return the number of steps before the pass over the data that contains a position.

    A position between two passes is the beginning of the second pass.
    """
    begin = place
    while begin and (begin == len(steps) or not steps[begin].window.begins_pass):
        begin -= 1
    return begin


def _rest_of_epoch(steps: Sequence[Step], place: int) -> Sequence[Step]:
    """Return the steps from a position to the end of the pass over the data."""
    end = min(place + 1, len(steps))
    while end < len(steps) and not steps[end].window.begins_pass:
        end += 1
    return steps[place:end]


@claim("TR-RESUME-004", NEEDS, premises=("TR-RESUME-001",))
def continuation_has_the_scale(run: Run, record: Record) -> None:
    """The loss scale equals the loss scale of the uncut run.

    Infinite gradients change the scale. A difference after the first step is therefore a failure only if the weights
    still agree, or if the scales are the scales of a new run.

    Without an uncut run, the claim is falsified if a process restores an optimizer or a schedule but no scaler, and
    begins with the initial scale of the run, although the scale had changed before the save.
    """
    for c in _continuations(run):
        if all(step.scale == 1.0 for step in c.uncut) or _is_nondeterministic(
            record, c, "loss scales", lambda step: step.scale
        ):
            continue
        pairs = c.pairs()
        record.tried += len(pairs)
        wrong = next((i for i, (one, two) in enumerate(pairs) if one.scale != two.scale), None)
        if wrong is None:
            continue
        one, two = pairs[wrong]
        # If the whole sequence of scales is that of a new run, the scaler's counter of steps is lost as well.
        anew = [s.scale for s in c.steps] == [s.scale for s in c.uncut[: len(c.steps)]]
        cause = (
            "the scaler starts with its initial scale"
            if not wrong and two.scale == c.uncut[0].scale
            else "the count of steps since the scale grew is not restored"
        )
        add = record.falsify if not wrong or anew or same_sums(one.before, two.before) else record.hint
        add(
            c.line("scaler"),
            f"{c.place}, step {c.start + wrong + 1} has the loss scale {two.scale:g} instead of {one.scale:g}; {cause}",
            "save scaler.state_dict(), and call scaler.load_state_dict(state['scaler']) with the other states",
        )
    for c in _restarts(run):
        first, last = c.before[0].scale, c.before[c.saved - 1].scale
        if max(step.scale for step in c.before) == 1.0 or c.steps[0].scale == 1.0:
            continue
        record.tried += 1
        at_save = next((e["scale"] for e in c.earlier.of("save") if e["n"] >= c.save["n"] and e.get("scale")), None)
        expected = at_save or last
        if "scaler" not in c.restored() and c.steps[0].scale == first and expected != first and last != first:
            kept = "the file has its state" if at_save else "its state is not in the file"
            record.falsify(
                c.line("scaler"),
                f"{c.place}: the loss scale starts again at {first:g}, but was {expected:g} at the save; the scaler is "
                f"not restored ({kept})",
                "save scaler.state_dict(), and call scaler.load_state_dict(state['scaler']) with the other states",
            )


@claim("TR-RESUME-005", NEEDS, premises=("TR-RESUME-001",))
def continuation_has_the_state_of_the_optimizer(run: Run, record: Record) -> None:
    """The moments before the first step of a continuation equal the moments at the save.

    A step from the same weights, with the same gradient and rate, must also have the same result.

    Without an uncut run, the claim is falsified if the optimizer of a process has no state for any parameter, although
    the file contains one. The process must also restore a schedule, a scaler or random numbers, or continue inside an
    epoch. A script that starts with a new optimizer on purpose does neither.
    """
    for c in _continuations(run):
        saved = c.before[c.saved].state if c.saved < len(c.before) else None
        if saved is None and c.start < len(c.uncut) and c.differs(lambda step: step.state) is None:
            saved = c.uncut[c.start].state
        mine = c.steps[0].state
        # Three checks, the clearest first: the number of parameters with a state, sums over the state, and the update
        # from equal weights, gradients and rates.
        pairs = c.pairs()
        record.tried += saved is not None and mine is not None
        seen = ""
        if saved is not None and mine is not None and saved[0] and mine[0] < saved[0]:
            seen = f"the optimizer has a state for {mine[0]} parameters instead of {saved[0]}"
        elif saved is not None and mine is not None and not alike(saved[1], mine[1], 1e-3):
            sums = _first_sum(mine[1]), _first_sum(saved[1])
            seen = f"the first sum over the state of the optimizer is {sums[0]} instead of {sums[1]}"
        elif pairs and c.differs(lambda step: (step.norm, step.after)) is None:
            one, two = pairs[0]
            same = same_sums(one.before, two.before) and alike((one.rates, one.norm), (two.rates, two.norm))
            if same and one.norm and same_sums(one.after, two.after) is False:
                seen = "the same gradient changes the same weights by another amount"
        if seen:
            record.falsify(
                c.line("optimizer"),
                f"{c.place}, before its first step {seen}: moments or momentum are not restored",
                "save optimizer.state_dict(), and call optimizer.load_state_dict() before the first step",
            )
    for c in _restarts(run, weights_alone=True):
        state = c.steps[0].state
        if state is None or "optimizer" not in c.save["parts"] or len(c.before) < 2:
            continue
        record.tried += 1
        if not state[0] and c.save["stateful"] and "optimizer" not in c.restored():
            place, left, taken = _place_in_epoch(c)
            goes_on = bool(place) and left == taken
            fact = (
                f"other states are restored ({', '.join(sorted(c.restored()))})"
                if c.restored()
                else f"it continues in the middle of an epoch, after {place} steps"
                if goes_on
                else "only weights are loaded"
            )
            add = record.falsify if c.restored() or goes_on else record.hint
            add(
                c.line("optimizer"),
                f"{c.place} with a new optimizer: it has no state for any parameter, but the file has one; {fact}",
                "call optimizer.load_state_dict(state['optimizer']) with the other states",
            )


def _first_sum(sums: tuple[float, ...]) -> str:
    return f"{sums[0]:.5g}" if sums else "0"


@claim("TR-RESUME-006", NEEDS, premises=("TR-RESUME-001",))
def continuation_has_the_losses(run: Run, record: Record) -> None:
    """From the same weights and batches, the losses of a continuation equal the losses of the uncut run.

    Always a hint: many scripts do not restore random states. This changes dropout and augmentation only.
    """
    for c in _continuations(run):
        if _is_nondeterministic(record, c, "losses", lambda step: step.losses):
            continue
        for number, (one, two) in enumerate(c.pairs(), c.start + 1):
            if not same_sums(one.before, two.before) or one.batches != two.batches or not one.losses:
                break
            record.tried += 1
            if not alike(one.losses, two.losses):
                record.hint(
                    c.line(),
                    f"{c.place}, step {number} has the loss {two.losses[0]:.6g} instead of {one.losses[0]:.6g}, from "
                    "the same weights and inputs: random numbers (dropout), or a state outside of the model, are not "
                    "restored",
                    "save torch.get_rng_state() and restore it last, before the first step",
                )
                break


@claim("TR-RESUME-007", NEEDS, premises=("TR-RESUME-001", "TR-RESUME-003"))
def continuation_takes_the_steps_that_were_left(run: Run, record: Record) -> None:
    """The interrupted and the resumed run together take as many steps as the uncut run.

    A run may stop early depending on its losses, and losses depend on random numbers. Another number of steps is
    therefore a failure only if the weights agree in all common steps, or if it is the number of a new run or of an
    epoch that begins again.
    """
    for c in _continuations(run):
        if not (c.last and c.ended):
            continue
        if c.length is not None and c.length != len(c.uncut):
            record.not_reached = f"two uncut runs take {len(c.uncut)} and {c.length} steps"
            continue
        record.tried += 1
        excess = c.start + len(c.steps) - len(c.uncut)
        if not excess:
            continue
        inside = c.start - _begin_of_epoch(c.uncut, c.start) if c.start < len(c.uncut) else 0
        cause = (
            "as many as in a new run, so the counter starts from 0, or an epoch is not counted"
            if excess == c.start
            else "the interrupted epoch starts again"
            if excess == inside
            else "the counter of steps or epochs is not restored"
        )
        agree = all(same_sums(one.after, two.after) for one, two in c.pairs())
        add = record.falsify if agree or excess in (c.start, inside) else record.hint
        add(
            c.line(),
            f"{c.place}, the run takes {c.start + len(c.steps)} steps in all, {abs(excess)} "
            f"{'more' if excess > 0 else 'fewer'} than the {len(c.uncut)} of the uncut run: {cause}",
            "save the numbers of finished steps and epochs, and continue with the next",
        )


@claim("TR-RESUME-008", NEEDS, premises=tuple(f"TR-RESUME-00{number}" for number in (1, 2, 3, 4, 5, 7)))
def continuation_ends_with_the_weights(run: Run, record: Record) -> None:
    """The final weights equal the final weights of the uncut run, if all batches and losses are the same.

    If the weights agree after the last step and differ at the end, they come from a best checkpoint or an average.
    """
    for c in _continuations(run):
        if not (c.last and c.ended) or c.start + len(c.steps) != len(c.uncut):
            continue
        if _is_nondeterministic(record, c, "weights", lambda step: (step.after, step.losses, step.batches)):
            continue
        pairs = c.pairs()
        if any(one.batches != two.batches or not alike(one.losses, two.losses) for one, two in pairs):
            continue
        record.tried += 1
        wrong = next((i for i, (one, two) in enumerate(pairs) if same_sums(one.after, two.after) is False), None)
        if wrong is not None:
            one, two = pairs[wrong]
            # Without losses, it is not known whether random numbers are the same.
            add = record.falsify if one.losses and alike(one.norm, two.norm) else record.hint
            add(
                c.line(),
                f"{c.place}, step {c.start + wrong + 1} gives other weights than in the uncut run, with the same "
                "examples, losses and rates",
                "restore every state that the update depends on",
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
                f"{c.place}, the run has the weights of the uncut run after its last step but other weights at its end "
                f"(sum {ends[0]:.7g} instead of {ends[1]:.7g}): a best checkpoint or an average has lost its past",
                "save the best score, or the average, with the other states, and restore it",
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
    """A run that is killed inside a save can be resumed, from this save or from the previous one.

    The arguments of the resumed command are correct: they have also resumed a run that was killed after a step.
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
                f"killed inside a save after step {comparison.parts[0].steps}, the run cannot be resumed: the "
                f"continuation ends with status {comparison.status}; half a file has replaced the last checkpoint",
                "save to a temporary file in the same folder, then call os.replace(temporary, path)",
            )
