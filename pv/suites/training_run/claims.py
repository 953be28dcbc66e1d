"""The claims of the suite: pure functions of a run, which never see the script and import no torch.

Each function gets a `Run` and a `Record`, in which it counts what it has tried and notes what it finds. What is sure is
falsified: no intended reading of the facts is known, and the comment of the claim says which fact rules out the nearest
one. What is likely is a hint, which never decides an exit status. A claim that was never tried is not reached, with the
reason.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from pv.suites.training_run.run import Event, Loss, Process, Run, Window, largest_ratio, run_of

__all__ = ["CLAIMS", "Finding", "Record", "claim", "judge", "run_of"]

UNEXPLAINED_RATIO = 1.02
"""Ratio of weights that are called unequal over ranks, whose losses may be computed in half precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a claim has found.

    Attributes:
        at: "path:line" of the user's code, "" if no line is known.
        seen: The numbers seen, and the known mistake that gives them.
        right: What would be right, as a change to make.
        hint: Whether another reading is possible, so that it is no failure.
    """

    at: str
    seen: str
    right: str
    hint: bool = False


@dataclass(slots=True)
class Record:
    """What a claim has tried, and its findings."""

    tried: int = 0
    findings: list[Finding] = field(default_factory=list)
    not_reached: str = ""
    """Why the claim was not tried."""

    def falsify(self, at: str, seen: str, right: str) -> None:
        self.findings.append(Finding(at=at, seen=seen, right=right))

    def hint(self, at: str, seen: str, right: str) -> None:
        self.findings.append(Finding(at=at, seen=seen, right=right, hint=True))


Claim = Callable[[Run, Record], None]

CLAIMS: dict[str, Claim] = {}
NEEDS: dict[str, str] = {}
"""Why a claim was not reached if it tried nothing, by its id."""
PREMISES: dict[str, tuple[str, ...]] = {
    "TR-NAN-001": ("TR-SCALE-001",),
    "TR-GRAD-004": ("TR-GRAD-001", "TR-GRAD-003"),
    "TR-WEIGHT-003": ("TR-WEIGHT-006",),
    "TR-WEIGHT-004": ("TR-WEIGHT-002", "TR-GRAD-004"),
    "TR-WEIGHT-005": ("TR-WEIGHT-001",),
    "TR-PARAM-004": ("TR-PARAM-001", "TR-NAN-001"),
    "TR-PARAM-006": ("TR-GRAD-003", "TR-PARAM-001"),
    "TR-RATE-003": ("TR-RATE-004",),
    "TR-CLIP-001": ("TR-GRAD-001", "TR-GRAD-003"),
}
"""By id: the claims whose falsification explains that of this one, which is then not shown."""


def claim(identifier: str, needs: str) -> Callable[[Claim], Claim]:
    """Register a claim.

    Args:
        identifier: Its id in the contract.
        needs: Why it was not reached if it has tried nothing, such as "no gradient was clipped".
    """

    def register(function: Claim) -> Claim:
        CLAIMS[identifier], NEEDS[identifier] = function, needs
        return function

    return register


def judge(run: Run) -> dict[str, Record]:
    """Return the record of every claim, by id, in the order of the contract."""
    records = {}
    for identifier, function in CLAIMS.items():
        record = records[identifier] = Record()
        function(run, record)
        record.findings = _one_of_a_kind(record.findings)
        if not record.tried and not record.findings:
            record.not_reached = record.not_reached or (
                NEEDS[identifier] if run.steps else "no optimizer step was observed"
            )
    falsified = {name for name, record in records.items() if any(not finding.hint for finding in record.findings)}
    for name, premises in PREMISES.items():
        causes = [premise for premise in premises if premise in falsified]
        if causes and records[name].findings:
            records[name] = Record(not_reached=f"it depends on {causes[0]}, which is falsified")
    return records


def _one_of_a_kind(findings: list[Finding]) -> list[Finding]:
    """Return the first finding of each line, since ranks and optimizers repeat each other; proofs before hints."""
    kept: dict[str, Finding] = {}
    for finding in sorted(findings, key=lambda finding: finding.hint):
        kept.setdefault(finding.at, finding)
    return list(kept.values())


def _windows(run: Run) -> Iterator[tuple[Process, int, list[Window]]]:
    for process in run.processes:
        for optimizer, windows in process.windows.items():
            yield process, optimizer, windows


def _numbers(values: list[float]) -> str:
    return "[" + ", ".join(f"{value:.4g}" for value in values) + "]"


# Gradients of a step.


@claim("TR-GRAD-001", "no optimizer took two steps with backward passes")
def cleared_between_steps(run: Run, record: Record) -> None:
    """A window that reaches back over the step before.

    A script that keeps a part of its gradients on purpose changes them by itself, which is seen.
    """
    for _process, _optimizer, windows in _windows(run):
        pairs = [window for _, window in pairwise(windows) if window.passes and not window.modified]
        record.tried += len(pairs)
        wrong = [window for window in pairs if window.carried]
        if wrong:
            window = wrong[0]
            record.falsify(
                window.at,
                f"the gradient of step {window.step} contains {len(window.carried)} backward passes that step "
                f"{window.step - 1} or an earlier one has used: gradients are not cleared between these steps "
                f"({len(wrong)} of {len(pairs)} steps)",
                "call optimizer.zero_grad() once before the first backward pass of every step",
            )


@claim("TR-GRAD-002", "no optimizer took two steps with backward passes")
def own_backward_pass(run: Run, record: Record) -> None:
    """A step without a new backward pass, and with the very norm of the step before: the same gradient.

    A gradient that is computed in another way (autograd.grad, NumPy, a CUDA graph) has another norm.
    """
    for _process, _optimizer, windows in _windows(run):
        if not any(window.passes for window in windows):
            continue
        rest = [window for window in windows if window.event["gradients"] and not window.modified]
        record.tried += len(rest)
        same = {id(w) for before, w in pairwise(windows) if w.event["norm"] == before.event["norm"] and w.event["norm"]}
        wrong = [window for window in rest if not window.passes and id(window) in same]
        if wrong:
            record.falsify(
                wrong[0].at,
                f"step {wrong[0].step} applies the gradient of the step before again: no backward pass came "
                "between them "
                f"({len(wrong)} of {len(rest)} steps)",
                "take one optimizer step for each gradient",
            )


@claim("TR-GRAD-003", "no optimizer step followed a backward pass")
def gradients_arrive(run: Run, record: Record) -> None:
    """All gradients of a step are gone.

    A loss of 0 has a gradient of 0, too, so gradients must have been cleared between backward pass and step.
    """
    for process, optimizer, windows in _windows(run):
        last, arrived, lost = -1, 0, []
        for window in windows:
            reached = [e for e in process.of("backward") if last < e["n"] < window.n and str(optimizer) in e["reached"]]
            last = window.n
            if not reached:
                continue
            arrived += 1
            if window.cleared and not window.event["norm"] and not window.modified:
                lost.append((window, reached[-1]["at"]))
        record.tried += arrived
        # A single step may be left out on purpose, after a probe of the gradient.
        if lost and 2 * len(lost) >= arrived:
            window, place = lost[0]
            record.falsify(
                window.at,
                f"step {window.step} has no gradient: gradients were cleared after the backward pass at "
                f"{place}, and before the step ({len(lost)} of {arrived} steps)",
                "call optimizer.zero_grad() before the backward pass, not between it and the step",
            )


@claim("TR-GRAD-004", "no optimizer step followed a backward pass")
def none_thrown_away(run: Run, record: Record) -> None:
    """Backward passes whose gradients are cleared before a step uses them.

    Probes of a gradient do this on purpose. A generator's pass leaves gradients in its discriminator, too.
    """
    for process, optimizer, windows in _windows(run):
        used = {p.n for each in process.windows.values() for window in each for p in window.passes}
        reaching = [e for e in process.of("backward") if str(optimizer) in e["reached"] and e["n"] < windows[-1].n]
        record.tried += len(reaching)
        lost = [
            event
            for event, following in pairwise(reaching)
            if event["n"] not in used
            and following["reached"][str(optimizer)]["written"] == event["reached"][str(optimizer)]["written"]
        ]
        if len(lost) * 4 >= len(reaching) and len(lost) >= 2:
            record.hint(
                lost[0]["at"],
                f"the gradients of {len(lost)} of {len(reaching)} backward passes are cleared before a step uses them",
                "clear gradients once for each step, not for each micro-batch",
            )


@claim("TR-NAN-001", "no gradient was applied")
def finite_gradients(run: Run, record: Record) -> None:
    """A gradient that is not finite was applied. The weights show that the optimizer did not leave the step out."""
    for _process, _optimizer, windows in _windows(run):
        for window in windows:
            norm, digest = window.event["norm"], window.event["digest"]
            if norm is None or window.event["by_scaler"]:
                continue
            record.tried += 1
            if not _finite(norm) and digest is not None and not _finite(digest):
                values = [loss.value for p in window.passes for loss in p.losses]
                record.falsify(
                    window.at,
                    f"step {window.step} applies a gradient of norm {norm}; the losses of the step are "
                    f"{_numbers(values)}, "
                    "and the weights are not finite after the step",
                    "raise, or leave the step out, if the loss or the norm of the gradient is not finite",
                )
                break


def _finite(value: float) -> bool:
    return value - value == 0


# Weights of scored elements.


def _micro_batches(windows: list[Window], key: str) -> list[tuple[Window, list[Loss]]]:
    """Return the steps in which all losses of a key are known and weigh their elements alike."""
    rows = [(window, window.losses(key)) for window in windows]
    return [(w, losses) for w, losses in rows if losses and all(loss.uniform and loss.elements > 0 for loss in losses)]


@claim("TR-WEIGHT-001", "no step had several micro-batches with a known loss")
def equal_weights(run: Run, record: Record) -> None:
    """Mean of means. Mixtures of data sets and mixup weigh rows on purpose, but not by exactly 1/n of a micro-batch.

    The means of tasks or resolutions count alike on purpose: micro-batches of one step from several loaders, or whose
    sizes are in one order in all steps, give a hint. So do micro-batches whose rows may all have one number of
    elements: their rows then count alike, which may be meant.
    """
    for process, optimizer, windows in _windows(run):
        for key in process.keys(optimizer):
            steps = [(w, losses) for w, losses in _micro_batches(windows, key) if len(losses) > 1 and _distinct(w)]
            record.tried += len(steps)
            unequal = [
                (w, losses)
                for w, losses in steps
                if largest_ratio(x.weight for x in losses) > max(x.precision for x in losses)
            ]
            if not unequal:
                continue
            window, losses = max(unequal, key=lambda row: largest_ratio(loss.weight for loss in row[1]))
            weights = [loss.weight for loss in losses]
            exactly = all(
                largest_ratio(loss.elements * loss.weight for loss in row) < max(loss.precision for loss in row)
                for _, row in unequal
            )
            # With class weights the divisor is often the number of labels: nearly, and in many steps, one over n.
            nearly = len(unequal) >= 8 and all(
                largest_ratio(loss.elements * loss.weight for loss in row) ** 4
                < largest_ratio(loss.weight for loss in row)
                for _, row in unequal
                if largest_ratio(loss.weight for loss in row) > 1.5
            )
            means = exactly or (nearly and largest_ratio(weights) > 1.5)
            seen = (
                f"in {len(unequal)} of {len(steps)} steps of several micro-batches, elements weigh unequally, by "
                "up to a factor "
                f"{largest_ratio(weights):.3g}; step {window.step} has n = "
                f"{[int(loss.elements) for loss in losses]} scored "
                f"elements of weights {_numbers(weights)}"
            )
            # One row a micro-batch: its mean may be meant, since each example then counts once.
            tokens = any(loss.labels > loss.rows > 1 for loss in losses)
            even = all(loss.rows and loss.labels % loss.rows == 0 for _, row in unequal for loss in row)
            tasks = any(len({p.loader for p in w.passes}) > 1 for w, _ in unequal) or _ordered(unequal)
            often = len(unequal) >= 2 and 2 * len(unequal) >= len(steps)
            if means and often and tokens and not tasks and not even:
                record.falsify(
                    losses[0].at,
                    f"{seen}: each micro-batch is divided by its own number of scored elements, a mean of means",
                    "divide the sum of the losses of all micro-batches by the scored elements of the whole step",
                )
            else:
                record.hint(losses[0].at, seen, "weigh every scored element of a step alike")


def _ordered(steps: list[tuple[Window, list[Loss]]]) -> bool:
    """Return whether the first micro-batch is the larger one in all steps, or in none."""
    return len({losses[0].elements > losses[1].elements for _, losses in steps}) == 1


def _distinct(window: Window) -> bool:
    """Return whether the backward passes of a step have different inputs. Losses of one batch are no micro-batches."""
    inputs = [p.input for p in window.passes]
    return all(inputs) and len(set(inputs)) == len(inputs)


@claim("TR-WEIGHT-002", "no optimizer took steps of different numbers of micro-batches")
def short_windows(run: Run, record: Record) -> None:
    """The last window of an epoch is divided by the planned number: nothing else gives exactly its share of weight.

    Sums over chunks of a sequence or over tasks weigh like this on purpose, so the windows must be those at the ends of
    passes over a loader. Gradients that are added and divided by nothing are a sum, which may be meant: a hint.
    """
    for process, optimizer, windows in _windows(run):
        for key in process.keys(optimizer):
            steps = [
                (w, ls) for w, ls in _micro_batches(windows, key) if not w.modified and not w.carried and _distinct(w)
            ]
            full = max((len(losses) for _, losses in steps), default=0)
            totals = [(len(losses), sum(x.elements * x.weight for x in losses), w, losses) for w, losses in steps]
            whole = [total for count, total, *_ in totals if count == full]
            short = [row for row in totals if row[0] < full]
            if full < 2 or not short or len(whole) < 2 or largest_ratio(whole) > 1.02:
                continue
            record.tried += len(short)
            level = sorted(whole)[len(whole) // 2]
            if level and all(abs(total / level - count / full) <= 2e-3 * count / full for count, total, *_ in short):
                count, total, window, losses = short[0]
                added = abs(level - full) <= 2e-3 * full
                cause = (
                    "gradients of micro-batches are added, and divided by nothing"
                    if added
                    else f"it is divided by the planned {full} micro-batches"
                )
                sure = not added and _ends_of_epochs(process, windows, [w for _, _, w, _ in short])
                note = record.falsify if sure else record.hint
                note(
                    losses[0].at,
                    f"steps of {full} micro-batches have the total weight {level:.4g}, and step {window.step} of "
                    f"{count} has "
                    f"{total:.4g}: {cause}",
                    "divide by the micro-batches, or better by the scored elements, that the step really has",
                )


def _ends_of_epochs(process: Process, windows: list[Window], short: list[Window]) -> bool:
    """Return whether these windows end passes over a loader whose every batch has one backward pass."""
    loaders = {p.loader for window in windows for p in window.passes} - {None}
    # A loader may be made anew for every epoch.
    kinds = {(e["at"], e["examples"]) for e in process.of("loader") if e["loader"] in loaders}
    if len(kinds) != 1:
        return False
    ends = [event for event in process.of("pass_end") if event["loader"] in loaders]
    begun = sum(event["loader"] in loaders for event in process.of("pass"))
    fetched = max((event["batches"] for event in ends), default=0) * begun
    if sum(len(window.passes) for window in windows) > fetched:  # chunks or views of a batch are no micro-batches
        return False
    # Batches may be fetched ahead, and a step may come after the end, so a pass ends somewhere between the window
    # before and the window after.
    before = {window.n: previous.n for previous, window in pairwise(windows)}
    after = {window.n: following.passes[0].n for window, following in pairwise(windows) if following.passes}
    return all(any(before.get(w.n, -1) < e["n"] < after.get(w.n, e["n"] + 1) for e in ends) for w in short)


@claim("TR-WEIGHT-003", "no step had several micro-batches with a known loss")
def averaged_once(run: Run, record: Record) -> None:
    """Total weights of M or 1/M. A hint: the sum of tasks has the weight M on purpose."""
    for process, optimizer, windows in _windows(run):
        for key in process.keys(optimizer):
            steps = [
                (w, ls) for w, ls in _micro_batches(windows, key) if not w.modified and not w.carried and _distinct(w)
            ]
            steps = [(w, losses) for w, losses in steps if len(losses) > 1]
            record.tried += len(steps)
            counts = {len(losses) for _, losses in steps}
            totals = [sum(loss.elements * loss.weight for loss in losses) for _, losses in steps]
            if len(steps) < 2 or len(counts) != 1 or largest_ratio(totals) > 1.02:
                continue
            (full,), level, at = counts, totals[0], steps[0][1][0].at
            if abs(level - full) <= 2e-3 * full:
                record.hint(
                    at,
                    f"every step has {full} micro-batches and the total weight {level:.4g}: their means are added",
                    f"divide every loss by {full}",
                )
            elif abs(level * full - 1) <= 2e-3:
                record.hint(
                    at,
                    f"every step has {full} micro-batches and the total weight {level:.4g}: they are divided by "
                    f"{full} twice",
                    "divide once",
                )


@claim("TR-WEIGHT-004", "no loss had different numbers of elements in three steps")
def constant_total(run: Run, record: Record) -> None:
    """The gradient grows with the number of elements. A hint: sums and fixed normalizers are meant in some losses."""
    for process, optimizer, windows in _windows(run):
        for key in process.keys(optimizer):
            steps = _micro_batches(windows, key)
            most = max((len(losses) for _, losses in steps), default=0)
            rows = [losses for _, losses in steps if len(losses) == most]
            counts = [sum(loss.elements for loss in losses) for losses in rows]
            if len(rows) < 3 or largest_ratio(counts) < 1.01:
                continue
            record.tried += len(rows)
            totals = [sum(loss.elements * loss.weight for loss in losses) for losses in rows]
            if (
                largest_ratio(totals) > 1.01
                and largest_ratio(t / c for t, c in zip(totals, counts, strict=True)) < 1.001
            ):
                record.hint(
                    rows[0][0].at,
                    f"an element has the weight {totals[0] / counts[0]:.3g} in every step, and steps have "
                    f"{int(min(counts))} to "
                    f"{int(max(counts))} elements: a sum, or a mean by a fixed number",
                    "divide by the scored elements of the step",
                )


def _over_ranks(run: Run) -> Iterator[tuple[str, list[tuple[Window, ...]]]]:
    """Yield each key of a loss, with the steps that every rank took, where gradients are averaged over ranks."""
    ranks = run.ranks
    if len(ranks) < 2 or not all(process.has_ddp for process in ranks):
        return
    for optimizer in ranks[0].windows:
        steps = list(zip(*(process.windows.get(optimizer, []) for process in ranks), strict=False))
        for key in ranks[0].keys(optimizer):
            yield key, [windows for windows in steps if all(window.losses(key) for window in windows)]


@claim("TR-WEIGHT-005", "no run of several ranks under DistributedDataParallel with a known loss")
def equal_weights_over_ranks(run: Run, record: Record) -> None:
    """A hint: the mean of the ranks' means is in most public code, and some of it means it."""
    for key, steps in _over_ranks(run):
        unequal = []
        for windows in steps:
            losses = [loss for window in windows for loss in window.losses(key)]
            if any(window.modified for window in windows) or not all(loss.uniform for loss in losses):
                continue
            record.tried += 1
            if largest_ratio(loss.weight for loss in losses) > UNEXPLAINED_RATIO:
                unequal.append((windows, losses))
        if len(unequal) >= 2 and 2 * len(unequal) >= len(steps):
            windows, losses = unequal[0]
            record.hint(
                losses[0].at,
                f"in {len(unequal)} of {len(steps)} steps, elements weigh unequally over ranks; step "
                f"{windows[0].step} has n = "
                f"{[int(loss.elements) for loss in losses]} of weights "
                f"{_numbers([loss.weight for loss in losses])}: each rank "
                "divides by its own elements, and gradients are averaged over ranks",
                "divide by the elements of all ranks, and multiply by the number of ranks",
            )


@claim("TR-WEIGHT-006", "no run of several ranks under DistributedDataParallel with a known loss")
def world_size_once(run: Run, record: Record) -> None:
    """The weights of all ranks sum to 1 where their mean should. A hint: a communication hook may sum."""
    world = len(run.ranks)
    for key, steps in _over_ranks(run):
        totals = [sum(x.elements * x.weight for w in windows for x in w.losses(key)) for windows in steps]
        record.tried += len(totals)
        if len(totals) > 1 and largest_ratio(totals) < 1.001 and abs(totals[0] - 1) < 2e-3:
            record.hint(
                steps[0][0].losses(key)[0].at,
                f"the weights of all {world} ranks sum to 1 before their mean is taken: the loss is divided by "
                "the number of "
                "ranks, and DistributedDataParallel divides again",
                "divide by the number of ranks once",
            )


# Clipping and loss scaling.


@claim("TR-CLIP-001", "no gradient was clipped")
def clipped_last(run: Run, record: Record) -> None:
    """A clipped gradient to which a later backward pass adds. A limit above the norm only measures the norm."""
    for _process, _optimizer, windows in _windows(run):
        wrong: list[tuple[Window, Event]] = []
        tried = 0
        for window in windows:
            clips = [c for c in window.clips if c["parameters"] and c["limit"] < float("inf")]
            tried += bool(clips)
            added = [p.n for p in window.passes if p.onto_clipped]
            if added and clips and not window.carried:
                early = [c for c in clips if window.passes[0].n < c["n"] < added[-1] and _shortened(c)]
                late = [c for c in clips if c["n"] > window.passes[-1].n]
                if (early and not late) or len(early) >= len(window.passes) - 1 > 0:
                    wrong.append((window, early[0]))
        record.tried += tried
        if len(wrong) >= 2:
            window, event = wrong[0]
            record.falsify(
                event["at"],
                f"step {window.step} has {len(window.passes)} backward passes, and the gradient is clipped before "
                "the last of "
                f"them adds to it ({len(wrong)} of {tried} steps with clipping)",
                "clip once, after the last backward pass of the step",
            )
        useless = [
            (window, event)
            for before, window in pairwise(windows)
            for event in window.clips
            if event["parameters"]
            and event["limit"] < float("inf")
            and _shortened(event)
            and window.passes
            and event["n"] < window.passes[0].n
            and not window.carried
            and event["n"] > before.n
        ]
        clipped = {w.n for w in windows if w.passes and any(c["n"] > w.passes[-1].n for c in w.clips)}
        if len(useless) >= 2 and not clipped:
            window, event = useless[0]
            record.falsify(
                event["at"],
                f"the gradient is clipped after step {window.step - 1} has used it, and cleared before the next step "
                f"({len(useless)} times): no step has a clipped gradient",
                "clip between the backward pass and optimizer.step()",
            )


def _shortened(clip: Event) -> bool:
    """Return whether a clipping has changed the gradient, as far as is known."""
    return clip["norm"] is None or not clip["norm"] <= clip["limit"]


@claim("TR-CLIP-002", "no gradient was clipped under an enabled GradScaler")
def clipped_unscaled(run: Run, record: Record) -> None:
    """The gradient is still multiplied by the loss scale. A limit that is multiplied as well is meant."""
    for process in run.processes:
        for event in process.of("clip"):
            if not any(w.passes and w.passes[-1].scale > 1 for ws in process.windows.values() for w in ws):
                continue
            if event["limit"] == float("inf"):
                continue
            record.tried += 1
            scaled = event["scale"] is not None and 1 < event["scale"]
            if scaled and event["limit"] < event["scale"] and _shortened(event):
                norm = "" if event["norm"] is None else f" of norm {event['norm']:.4g}"
                record.falsify(
                    event["at"],
                    f"a gradient{norm} that is still multiplied by the loss scale {event['scale']:g} is clipped at "
                    f"{event['limit']:g}: unscaled, that is a limit of {event['limit'] / event['scale']:.3g}",
                    "call scaler.unscale_(optimizer) before clipping",
                )
                break


@claim("TR-CLIP-003", "no gradient was clipped")
def clip_covers_parameters(run: Run, record: Record) -> None:
    """Clipping of no parameter at all, at every call of a line, where no other call clips.

    An empty list may be meant (all parameters of a part are frozen); a generator that has ended before is not.
    """
    for process in run.processes:
        by_line: dict[str, list[Event]] = defaultdict(list)
        for event in process.of("clip"):
            if event["limit"] < float("inf"):
                by_line[event["at"]].append(event)
        record.tried += sum(map(len, by_line.values()))
        effective = any(event["parameters"] for events in by_line.values() for event in events)
        for at, events in by_line.items():
            if not effective and len(events) >= 2:
                note = record.falsify if any(event["used_up"] for event in events) else record.hint
                note(
                    at,
                    f"all {len(events)} calls clip the gradients of 0 parameters: a generator, such as "
                    "model.parameters(), was "
                    "used up before",
                    "hand over model.parameters() anew in every call, or a list",
                )


@claim("TR-SCALE-001", "no loss was scaled by a GradScaler")
def scaled_gradient_not_applied(run: Run, record: Record) -> None:
    """The optimizer steps with a gradient that is still scaled. A division by hand shows as a modified gradient."""
    for _process, _optimizer, windows in _windows(run):
        scaled = [w for w in windows if w.passes and w.passes[-1].scale > 1]
        record.tried += len(scaled)
        wrong = [w for w in scaled if not w.unscaled and not w.event["by_scaler"] and not w.modified]
        if wrong:
            window = wrong[0]
            record.falsify(
                window.at,
                f"step {window.step} applies a gradient that is multiplied by the loss scale "
                f"{window.passes[-1].scale:g}, and no "
                f"check for infinities is made ({len(wrong)} of {len(scaled)} steps)",
                "call scaler.step(optimizer) and scaler.update() in place of optimizer.step()",
            )


# Parameters.


@claim("TR-PARAM-001", "no optimizer held parameters of a model that ran")
def optimizer_holds_the_model(run: Run, record: Record) -> None:
    """Replaced parameters: held ones that no model has, and a model's of the same shapes that nobody holds."""
    for process in run.processes:
        last = {event["optimizer"]: event for event in process.of("held")}
        left_out = [event for event in {e["model"]: e for e in process.of("parameters")}.values() if event["left_out"]]
        for event in last.values():
            if event["steps"] < 2:
                continue
            record.tried += event["parameters"]
            if not event["in_no_model"]:
                continue
            shapes = Counter(map(tuple, event["in_no_model_shapes"]))
            at = next((e["at"] for e in process.of("optimizer") if e["optimizer"] == event["optimizer"]), "")
            kind = next(
                (e["kind"] for e in process.of("optimizer") if e["optimizer"] == event["optimizer"]), "an optimizer"
            )
            for model in left_out:
                twins = [
                    name
                    for name, shape in zip(model["left_out"], model["left_out_shapes"], strict=True)
                    if tuple(shape) in shapes
                ]
                # Of a part that is used later, only some shapes are those of parameters that nobody holds.
                if twins and shapes <= Counter(map(tuple, model["left_out_shapes"])):
                    record.falsify(
                        at,
                        f"{event['in_no_model']} of {event['parameters']} parameters of {kind} are in no model "
                        "that runs and never "
                        f"have a gradient; {', '.join(twins[:3])} of {process.kinds.get(model['model'])}, of the "
                        "same shape, get "
                        "gradients and are in no optimizer: the model was changed after the optimizer was made",
                        "make the optimizer after the last change of the model",
                    )
                    break
            else:
                record.hint(
                    at,
                    f"{event['in_no_model']} of {event['parameters']} parameters of {kind} are in no model that "
                    "runs and never have a gradient",
                    "leave them out",
                )


@claim("TR-PARAM-002", "no model with trainable parameters ran")
def trainable_parameters_are_held(run: Run, record: Record) -> None:
    """Gradients that no optimizer applies. A hint: LoRA and perceptual losses leave a model unfrozen."""
    for process in run.processes:
        held = any(event["parameters"] for event in process.of("held"))
        for event in {e["model"]: e for e in process.of("parameters")}.values():
            record.tried += event["trainable"]
            if held and event["left_out"] and event["held"]:
                names = ", ".join(event["left_out"][:4])
                record.hint(
                    "",
                    f"{len(event['left_out'])} trainable parameters of {process.kinds.get(event['model'])} get "
                    f"gradients and are in no optimizer: {names}",
                    "hand them to the optimizer, or freeze them",
                )


@claim("TR-PARAM-003", "no model with trainable parameters ran")
def layers_belong_to_the_model(run: Run, record: Record) -> None:
    """Layers that run and are not registered, such as those in a list. A hint: helpers are hidden like this."""
    for process in run.processes:
        for event in {e["model"]: e for e in process.of("parameters")}.values():
            record.tried += event["trainable"]
            if event["outside"]:
                record.hint(
                    "",
                    f"{', '.join(event['outside'][:4])} run inside {process.kinds.get(event['model'])} with "
                    "gradients, and are among the parameters of no model and no optimizer",
                    "keep layers in an nn.ModuleList, or as attributes",
                )


@claim("TR-PARAM-004", "no parameter was compared before and after three steps")
def parameters_move(run: Run, record: Record) -> None:
    """A parameter that keeps its bits in every checked step, though its gradient is far above rounding.

    Three steps at a rate above 0; float32 alone, where a step of the rate times the gradient is visible; and others of
    the same optimizer move. An optimizer of the user may leave out a block of parameters on purpose, so there those
    that stay must be the ones that are not contiguous.
    """
    for process, optimizer, windows in _windows(run):
        checked = [w for w in windows if "moved" in w.event and max(w.event["rates"], default=0) > 0]
        if len(checked) < 3:
            continue
        record.tried += len(checked)
        stuck = set.intersection(*(set(w.event["moved"]["unmoved"]) for w in checked))
        if stuck and all(w.event["moved"]["moved"] for w in checked):
            names = sorted(stuck)
            builtin = any(e["builtin"] for e in process.of("optimizer") if e["optimizer"] == optimizer)
            strided = all(not w.event["moved"]["unmoved_contiguous"] for w in checked)
            note = record.falsify if builtin or strided else record.hint
            note(
                checked[0].at,
                f"{len(names)} parameters have a gradient and are, bit for bit, the same after each of "
                f"{len(checked)} steps: "
                f"{', '.join(names[:4])}",
                "look for an update that is written to a copy (a tensor that is not contiguous), or a parameter "
                "that a "
                "compiled or fused step leaves out",
            )


@claim("TR-PARAM-005", "no frozen parameter was in an optimizer")
def frozen_parameters_stay(run: Run, record: Record) -> None:
    """A parameter that requires no gradient and has none but 0, and is moved by a step all the same.

    A gradient that the script has assigned asks for the step, and so may an optimizer of the user, as one without
    gradients does.
    """
    for process, optimizer, windows in _windows(run):
        checked = [w for w in windows if "moved" in w.event and w.event["moved"]["frozen"]]
        record.tried += len(checked)
        wrong = [w for w in checked if w.event["moved"]["moved_frozen"]]
        if wrong:
            names = wrong[0].event["moved"]["moved_frozen"]
            builtin = any(e["builtin"] for e in process.of("optimizer") if e["optimizer"] == optimizer)
            note = record.falsify if builtin else record.hint
            note(
                wrong[0].at,
                f"step {wrong[0].step} moves {len(names)} parameters that are frozen (requires_grad is False): "
                f"{', '.join(names[:4])}; momentum or weight decay moves them",
                "set the gradient of a frozen parameter to None, or leave the parameter out of the optimizer",
            )


@claim("TR-PARAM-006", "no model with trainable parameters ran")
def layers_get_gradients(run: Run, record: Record) -> None:
    """Layers that run with gradients and never get one. A hint: stop-gradients and poolers are meant."""
    for process in run.processes:
        for event in {e["model"]: e for e in process.of("parameters")}.values():
            record.tried += event["trainable"]
            if event["without_gradient"]:
                names = event["without_gradient"]
                record.hint(
                    "",
                    f"{len(names)} of {event['trainable']} trainable parameters of "
                    f"{process.kinds.get(event['model'])} ran, are in the optimizer, and have no gradient: "
                    f"{', '.join(names[:4])}",
                    "detach nothing between them and the loss, or freeze them",
                )


# Schedules.


@dataclass(frozen=True, slots=True)
class _Schedule:
    """A schedule, its calls, and the windows of its optimizer."""

    event: Event
    calls: list[Event]
    windows: list[Window]


def _schedules(process: Process) -> Iterator[_Schedule]:
    nested = {event["scheduler"] for event in process.of("nested_scheduler")}
    for event in process.of("scheduler"):
        if event["scheduler"] not in nested and event["optimizers"]:
            calls = [call for call in process.of("schedule") if call["scheduler"] == event["scheduler"]]
            windows = next((process.windows[o] for o in event["optimizers"] if process.windows.get(o)), [])
            yield _Schedule(event, calls, windows)


@claim("TR-RATE-001", "no schedule was advanced")
def schedule_of_the_optimizer(run: Run, record: Record) -> None:
    """A schedule that advances, of an optimizer that takes no step, beside one of the same parameters that does.

    A schedule may serve as a function of the step: of another quantity, or of a rate that is then set by hand.
    """
    for process in run.processes:
        scheduled = {o for s in process.of("scheduler") for o in s["optimizers"]}
        unscheduled = [o for o, windows in process.windows.items() if len(windows) >= 2 and o not in scheduled]
        shares = {event["optimizer"]: event["shares_with"] for event in process.of("held")}
        for schedule in _schedules(process):
            record.tried += bool(schedule.calls)
            held = {other for optimizer in schedule.event["optimizers"] for other in shares.get(optimizer, [])}
            rates = {tuple(w.event["rates"]) for o in held & set(unscheduled) for w in process.windows[o]}
            if len(schedule.calls) >= 2 and not schedule.windows and len(rates) == 1:
                record.falsify(
                    schedule.event["at"],
                    f"{schedule.event['kind']} advances {len(schedule.calls)} times, and its optimizer takes no "
                    "step; the optimizer "
                    "that does has no schedule",
                    "make the schedule for the optimizer that is stepped, after the last change of the optimizer",
                )


@claim("TR-RATE-002", "no schedule of an optimizer that took steps")
def schedule_advances(run: Run, record: Record) -> None:
    """Never advanced, in a run that ended by itself after several passes over its data.

    A short run may end before a schedule begins. It has begun where it already has set another rate than the base rate,
    as a warm-up does, and it was to begin where it is planned for as many steps or epochs as the run has.
    """
    for process in run.processes:
        for schedule in _schedules(process):
            if not schedule.windows or schedule.event["kind"] == "ReduceLROnPlateau":
                continue
            record.tried += 1
            ended = [e for e in process.of("pass_end") if e["n"] > schedule.windows[0].n]
            if not schedule.calls and run.complete and len(schedule.windows) >= 4:
                seen = f"{schedule.event['kind']} never advances in {len(schedule.windows)} steps"
                # A loader may be made anew for every epoch.
                data = {e["loader"]: (e["at"], e["examples"]) for e in process.of("loader")}
                passes = max(Counter(data[e["loader"]] for e in ended).values(), default=0)
                planned = {value for value in schedule.event["planned"].values() if value}
                begun = schedule.event["rates"] != schedule.event["base_rates"]
                instead = any(
                    other.calls and set(other.event["optimizers"]) & set(schedule.event["optimizers"])
                    for other in _schedules(process)
                )
                due = begun or planned & {passes, len(schedule.windows)}
                note = record.falsify if passes >= 2 and due and not instead else record.hint
                note(
                    schedule.event["at"],
                    f"{seen} and {passes} passes over the data",
                    "call scheduler.step() after optimizer.step(), or once an epoch",
                )


@claim("TR-RATE-003", "no schedule was advanced")
def schedule_after_the_step(run: Run, record: Record) -> None:
    """The first rate is never used. A resumed run or a warm-up advances a schedule before its loop, on another line.

    A first rate of 0 is left out on purpose; an explicit epoch sets the rate of that epoch; and where the first batch
    is left out, a backward pass comes before the first call, and the other calls come after steps.
    """
    for process in run.processes:
        skipped = [event["n"] for event in process.of("skipped_step")]
        for schedule in _schedules(process):
            if len(schedule.calls) < 3 or len(schedule.windows) < 3:
                continue
            record.tried += 1
            first, second = schedule.calls[:2]
            step = schedule.windows[0]
            early = first["n"] < step.n < second["n"] and first["at"] == second["at"]
            one_for_each = all(
                sum(a.n < call["n"] < b.n for call in schedule.calls) == 1 for a, b in pairwise(schedule.windows[:10])
            )
            begun = [e["n"] for e in process.of("backward") if set(e["reached"]) & {str(step.optimizer)}]
            before = not any(n < first["n"] for n in begun) or all(
                any(w.passes and w.passes[-1].n < call["n"] < w.n for call in schedule.calls)
                for w in schedule.windows[:10]
            )
            changed = max(schedule.event["rates"], default=0.0) > 0 and step.event["rates"] != schedule.event["rates"]
            explicit = any(call["explicit"] for call in schedule.calls)
            restored = any(n < first["n"] for n in skipped)
            if early and one_for_each and before and changed and not explicit and not restored:
                record.falsify(
                    first["at"],
                    f"{schedule.event['kind']} advances before each step, so the first rate of the schedule is "
                    f"never used: step 1 has the rate {max(step.event['rates'], default=0):.4g}, and the schedule "
                    f"began with {max(schedule.event['rates']):.4g}",
                    "call optimizer.step() before scheduler.step()",
                )


@claim("TR-RATE-004", "no schedule was advanced in a run with several micro-batches a step")
def schedule_once_a_step(run: Run, record: Record) -> None:
    """Advanced after every micro-batch, with a horizon that counts steps. One that counts micro-batches is right."""
    for process in run.processes:
        for schedule in _schedules(process):
            full = max((len(w.passes) for w in schedule.windows), default=0)
            if full < 2 or not schedule.calls:
                continue
            record.tried += 1
            steps, calls = len(schedule.windows), len(schedule.calls)
            several = sum(
                any(a.n < call["n"] < b.n for a, b in pairwise(window.passes) for call in schedule.calls)
                for window in schedule.windows
            )
            if 2 * several < steps:
                continue
            planned = next((value for value in schedule.event["planned"].values() if value), 0)
            seen = f"{schedule.event['kind']} advances after every micro-batch: {calls} times in {steps} steps"
            if planned and run.complete and calls > 1.02 * planned + 1 and abs(planned - steps) <= 0.05 * steps + 1:
                record.falsify(
                    schedule.calls[0]["at"],
                    f"{seen}, and is planned for {planned}",
                    "advance it once for each optimizer step",
                )
            elif not (planned and abs(planned - calls) <= 0.05 * planned):
                record.hint(
                    schedule.calls[0]["at"],
                    seen,
                    "advance it once for each optimizer step, or plan it in micro-batches",
                )


@claim("TR-RATE-005", "no schedule with a horizon was advanced in a run that ended by itself")
def schedule_ends_with_the_run(run: Run, record: Record) -> None:
    """A horizon in micro-batches, advanced in steps: exactly M times too long, in a run of whole passes.

    A run that was stopped early has whole passes, too: it must have no evaluation, on which early stopping rests, or a
    horizon that is no whole number of epochs.
    """
    for process in run.processes:
        for schedule in _schedules(process):
            planned = next((value for value in schedule.event["planned"].values() if value), 0)
            calls, full = len(schedule.calls), max((len(w.passes) for w in schedule.windows), default=1)
            if not planned or calls < 4 or not run.complete:
                continue
            record.tried += 1
            ended = [e for e in process.of("pass_end") if e["batches"] > 1]
            begun = list(process.of("pass"))
            seen = f"{schedule.event['kind']} is planned for {planned} and advances {calls} times"
            if full > 1 and abs(planned / calls - full) <= 0.02 * full:
                by_step = abs(calls - len(schedule.windows)) <= 0.05 * calls + 1
                epochs = max(1, sum(e["loader"] == ended[0]["loader"] for e in ended)) if ended else 1
                early = bool(process.evaluations) and planned % max(1, round(calls / epochs)) == 0
                whole = ended and len(ended) == len(begun) and by_step and not early
                note = record.falsify if whole else record.hint
                note(
                    schedule.event["at"],
                    f"{seen}, 1/{full} of that: it is planned in micro-batches and advanced in steps of {full}",
                    f"plan it for {calls}",
                )
            elif calls > 1.02 * planned + 1 and schedule.event["kind"] == "CosineAnnealingLR":
                record.hint(schedule.event["at"], f"{seen}: the rate rises again", f"plan it for {calls}")
            elif calls < 0.6 * planned:
                record.hint(schedule.event["at"], f"{seen}: the rate does not reach its end", f"plan it for {calls}")


# Modes.


@claim("TR-MODE-001", "no model with dropout or batch normalization was trained")
def trained_in_training_mode(run: Run, record: Record) -> None:
    """Trained in eval mode after an evaluation. Without the evaluation, eval mode may be meant (frozen statistics).

    Only forwards count whose gradient a step used: an attack or a calibration after the training takes none. The model
    must have been trained in training mode before.
    """
    for process in run.processes:
        by_model: dict[int, list[tuple[Event, int]]] = defaultdict(list)
        for forward, step in process.training_forwards:
            if forward["training_layers"] + forward["eval_layers"]:
                by_model[forward["model"]].append((forward, step))
        for model, forwards in by_model.items():
            record.tried += len(forwards)
            users = process.users
            before = set().union(*(users[f["n"]] for f, _ in forwards if f["training_layers"]))
            wrong = [(f, step) for f, step in forwards if not f["training_layers"] and not f["training"]]
            # An optimizer of another phase, such as a calibration, may want eval mode.
            wrong = [(f, step) for f, step in wrong if not before or users[f["n"]] & before]
            if not wrong:
                continue
            first, step = wrong[0]
            switches = [
                e for e in process.of("mode") if e["model"] == model and not e["training"] and e["n"] < first["n"]
            ]
            evaluated = switches and any(
                e["model"] == model and switches[-1]["n"] < e["n"] < first["n"] for e, _ in process.evaluations
            )
            seen = (
                f"{len(wrong)} of {len(forwards)} forwards that train {process.kinds.get(model)} are in eval "
                "mode, from step "
                f"{step + 1} on: {first['eval_layers']} layers of dropout or normalization are off"
            )
            right = "call model.train() after every evaluation"
            trained = switches and any(f["training_layers"] and f["n"] < switches[-1]["n"] for f, _ in forwards)
            if evaluated and trained and switches[-1]["before"]:
                record.falsify(switches[-1]["at"], f"{seen}; eval() was called here for an evaluation", right)
            else:
                record.hint(switches[-1]["at"] if switches else first["at"], seen, right)


@claim("TR-MODE-002", "no trained model with dropout or batch normalization was evaluated")
def evaluated_in_eval_mode(run: Run, record: Record) -> None:
    """A whole pass over data that is never trained on, with losses, in training mode.

    MC dropout switches layers of a model in eval mode, or calls the model several times for one input; new statistics
    of batch normalization need no loss. A call of train() since the last training shows intent, and a GAN is tested
    with the statistics of its batches.
    """
    for process in run.processes:
        trained = {forward["model"] for forward, _ in process.training_forwards}
        loaders = {forward["loader"] for forward, _ in process.training_forwards}
        data = {event["loader"]: (event["data"], event["examples"]) for event in process.of("loader")}
        loaders |= {loader for loader in data if data[loader] in {data.get(other) for other in loaders}}
        ended = {event["loader"] for event in process.of("pass_end")}
        for model in trained:
            forwards = [
                (f, loss)
                for f, loss in process.evaluations
                if f["model"] == model and f["training_layers"] + f["eval_layers"]
            ]
            record.tried += len(forwards)
            wrong = [(f, loss) for f, loss in forwards if f["training_layers"] and f["training"]]
            sure = [f for f, loss in wrong if loss and f["loader"] in ended - loaders - {None}]
            # Draws for one input follow each other; passes of several epochs do not.
            draws = any(f["times"] > 1 and len(set(map(str, f["inputs"]))) < len(f["inputs"]) for f, _ in wrong) or any(
                a["inputs"] == b["inputs"] for (a, _), (b, _) in pairwise(wrong)
            )
            intended = any(
                e["training"]
                and e["model"] == model
                and any(e["n"] < f["n"] for f in sure)
                and not any(
                    e["n"] < t["n"] < f["n"]
                    for t, _ in process.training_forwards
                    for f in [next(f for f in sure if e["n"] < f["n"])]
                )
                for e in process.of("mode")
            )
            if draws or intended or sum(bool(windows) for windows in process.windows.values()) > 1:
                sure = []
            if not wrong:
                continue
            count = sum(f["times"] for f, _ in wrong)
            seen = (
                f"{count} forwards without gradients evaluate {process.kinds.get(model)} with "
                f"{wrong[0][0]['training_layers']} layers "
                "of dropout or batch normalization in training mode"
            )
            right = "call model.eval() before an evaluation, and model.train() after it"
            if len(sure) >= 2:
                record.falsify(sure[0]["at"], f"{seen}, on data that is never trained on", right)
            elif any(loss for _, loss in wrong):
                record.hint(wrong[0][0]["at"], seen, right)


# Operands of losses.


def _operands(run: Run) -> Iterator[tuple[str, str, Event]]:
    """Yield line, function and the facts of the first call of every line."""
    for process in run.processes:
        for event in process.of("backward", "evaluation_loss"):
            for loss in event["losses"] if event["event"] == "backward" else [event]:
                if loss.get("operands"):
                    yield loss["at"], loss["function"], loss["operands"]


LINEAR = ("Addmm", "Mm", "Bmm", "Linear", "UnsafeView")
"""Operations whose result is no logarithm of a probability."""


@claim("TR-LOSS-001", "no cross-entropy of logits was seen")
def logits_are_logits(run: Run, record: Record) -> None:
    """A cross-entropy of the output of a softmax or sigmoid."""
    for at, function, facts in _operands(run):
        if function in ("cross_entropy", "binary_cross_entropy_with_logits"):
            record.tried += 1
            made = "Softmax" if function == "cross_entropy" else "Sigmoid"
            if facts["made_by"].startswith(made):
                name = made.lower()
                record.falsify(
                    at,
                    f"the input of {function} is the output of a {name}: {name} is applied twice",
                    f"hand over the logits, before the {name}",
                )


@claim("TR-LOSS-002", "no loss of log-probabilities was seen")
def log_probabilities_are(run: Run, record: Record) -> None:
    """`nll_loss` or `kl_div` of logits or probabilities. Unnormalized log-likelihoods may be meant, raw scores not.

    Scores are right where the normalizer is another term of the loss: the gradients of the classes then sum to 0.
    """
    for at, function, facts in _operands(run):
        if function in ("nll_loss", "kl_div") and "log_sum_exp" in facts:
            record.tried += 1
            made = facts["made_by"]
            off = facts["log_sum_exp"] > 1e-2
            alone = not facts.get("gradients_cancel", True)
            if off and alone and (made.startswith(LINEAR) or made.startswith("Softmax")):
                kind = "probabilities" if made.startswith("Softmax") else "scores of a linear layer"
                record.falsify(
                    at,
                    f"the input of {function} is {kind}: exp of a row sums to exp({facts['log_sum_exp']:.3g}), "
                    "not to 1",
                    "apply log_softmax to the scores",
                )
            elif off:
                record.hint(
                    at,
                    f"exp of a row of the input of {function} sums to exp({facts['log_sum_exp']:.3g}), not to 1",
                    "apply log_softmax to the scores",
                )
            if facts.get("lowest_target", 0) < 0:
                record.falsify(
                    at,
                    f"the target of kl_div has an element {facts['lowest_target']:.3g}: it is no probability",
                    "hand over probabilities, or log_target=True",
                )


@claim("TR-LOSS-003", "no regression loss was seen")
def operands_have_one_shape(run: Run, record: Record) -> None:
    """[N, 1] against [N]: N x N differences. Equal numbers of elements rule out a target that is meant for all.

    Pairs are meant where both have as many dimensions, the prediction was unsqueezed, or no mean is taken.
    """
    for at, function, facts in _operands(run):
        if function in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
            record.tried += 1
            one, two = facts["shapes"]
            if "broadcast" in facts and _size(one) == _size(two) < facts["broadcast"]:
                note = record.hint if facts["pairs"] else record.falsify
                note(
                    at,
                    f"{function} of shapes {one} and {two} compares each with each: {facts['broadcast']} differences",
                    "give both one shape, as by squeeze(-1)",
                )


def _size(shape: list[int]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


# Checkpoints.


@claim("TR-LOAD-001", "no weights were loaded into a model that had been trained")
def best_weights_are_a_copy(run: Run, record: Record) -> None:
    """What is loaded shares its storage with the model, and was taken before later steps changed it.

    The script may have changed it in place since the last step, as an average of weights does.
    """
    for process in run.processes:
        for event in process.of("load"):
            if not (event["trained"] and event["step"]):
                continue
            record.tried += 1
            taken = event["taken_at_step"]
            if (
                event["tensors"]
                and event["same_storage"] >= event["tensors"]
                and taken is not None
                and taken < event["step"]
                and not event["written"]
            ):
                record.falsify(
                    event["at"],
                    f"the state that {event['kind']} took after step {taken} and loads after step {event['step']} "
                    "is the model's own "
                    f"{event['tensors']} tensors, which the steps between have changed: nothing is restored",
                    "copy.deepcopy(model.state_dict()) where the state is taken",
                )


@claim("TR-LOAD-002", "no weights were loaded with strict=False")
def something_is_loaded(run: Run, record: Record) -> None:
    """Not one name fits. An adapter that is loaded alone fits somewhere, and leaves nothing over.

    A script may try the names as they are, and then rename them: no later load into such a model, before the next step,
    fits.
    """
    for process in run.processes:
        for event in process.of("load"):
            if event["strict"] or not event["tensors"]:
                continue
            record.tried += 1
            if event["missing_count"] == event["tensors"] and event["unexpected_count"]:
                repaired = any(
                    e["n"] > event["n"]
                    and (e["kind"], e["step"]) == (event["kind"], event["step"])
                    and e["missing_count"] < e["tensors"]
                    for e in process.of("load")
                )
                note = record.hint if repaired else record.falsify
                note(
                    event["at"],
                    f"none of the {event['tensors']} tensors of {event['kind']} is loaded: the file has names "
                    "such as "
                    f"{event['unexpected'][0]!r}, the model such as {event['missing'][0]!r}",
                    "rename the keys, and load with strict=True",
                )
            elif event["missing_count"] and event["unexpected_count"]:
                record.hint(
                    event["at"],
                    f"{event['missing_count']} of {event['tensors']} tensors are not loaded, and "
                    f"{event['unexpected_count']} fit nowhere",
                    "load with strict=True",
                )


# Ranks.


@claim("TR-RANK-001", "no run of several ranks whose weights could be compared")
def ranks_have_the_same_weights(run: Run, record: Record) -> None:
    """Weights differ over ranks. Without DDP, equal norms for different inputs show that gradients are averaged."""
    ranks = run.ranks
    for optimizer in ranks[0].windows if len(ranks) > 1 else {}:
        steps = list(zip(*(process.windows.get(optimizer, []) for process in ranks), strict=False))
        inputs = [[p.input for p in window.passes] for window in steps[0]] if steps else []
        averaged = (
            len(steps) >= 3
            and len({window.event["norm"] for window in steps[0]}) == 1
            and bool(steps[0][0].event["norm"])
            and all(one != other for one, other in pairwise(inputs))
        )
        if not (averaged or all(process.has_ddp for process in ranks)) or not _replicated(ranks, optimizer, averaged):
            continue
        for position, windows in enumerate(steps):
            digests = [window.event["digest"] for window in windows]
            if None in digests:
                continue
            record.tried += 1
            if _differ(digests):
                later = [[w.event.get("digest_before") for w in row] for row in steps[position + 1 :]]
                if any(None not in row and not _differ(row) for row in later):
                    break  # weights that are averaged after some steps, on purpose
                wrapped = all(f["wrapped"] for process in ranks for f, _ in process.training_forwards)
                cause = (
                    "the ranks start with different weights"
                    if averaged and windows[0].step == 1
                    else "the model is called without its DistributedDataParallel wrapper"
                    if any(process.has_ddp for process in ranks) and not wrapped
                    else "a reduction was left out, or its result was lost"
                )
                record.falsify(
                    windows[0].at,
                    f"after step {windows[0].step} the ranks have different weights: sums over some of them are "
                    f"{_numbers(digests)}; {cause}",
                    "broadcast the initial weights from one rank, and reduce the gradients of every step",
                )
                break


def _differ(digests: list[float]) -> bool:
    return max(digests) - min(digests) > 1e-9 * (1 + max(map(abs, digests)))


def _replicated(ranks: list[Process], optimizer: int, averaged: bool) -> bool:
    """Return whether an optimizer holds the same parameters on every rank, and is meant to keep them equal.

    Shards of an optimizer's state, heads of a rank of its own, replicas over a part of the ranks, and hooks that
    replace the reduction (as local SGD does) are none.
    """
    held = [{e["optimizer"]: e for e in process.of("held")}.get(optimizer) for process in ranks]
    events = [event for event in held if event is not None]
    if len(events) < len(ranks) or len({event["names"] for event in events}) > 1:
        return False
    if any(True for process in ranks for _ in process.of("communication_hook")):
        return False
    if any(e["group"] != process.start["world_size"] for process in ranks for e in process.of("ddp")):
        return False
    return averaged or all(event["in_ddp"] == event["parameters"] for event in events)


@claim("TR-RANK-002", "no run of several ranks under DistributedDataParallel")
def ranks_have_different_examples(run: Run, record: Record) -> None:
    """Every rank trains on the same inputs, in each of at least four forwards with different inputs."""
    ranks = run.ranks
    if len(ranks) < 2 or not all(process.has_ddp for process in ranks):
        return
    if any(e["group"] != process.start["world_size"] for process in ranks for e in process.of("ddp")):
        return
    columns = ([str((f["inputs"], f.get("others"))) for f, _ in process.training_forwards] for process in ranks)
    rows = list(zip(*columns, strict=False))
    record.tried += len(rows)
    if len(rows) >= 4 and all(len(set(row)) == 1 for row in rows) and len({row[0] for row in rows}) >= 4:
        at = next((event["at"] for event in ranks[0].of("loader")), ranks[0].training_forwards[0][0]["at"])
        record.falsify(
            at,
            f"all {len(ranks)} ranks have the same inputs in each of {len(rows)} forwards",
            "use a DistributedSampler, or a seed that depends on the rank",
        )
