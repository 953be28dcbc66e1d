"""Claims about the weight of a scored element in the gradient of a step."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from pv.suites.training_run.claim import Record, claim, is_finite, numbers, windows_of
from pv.suites.training_run.claims.data import ends_of_passes
from pv.suites.training_run.run import Loss, Pass, Process, Run, Window, largest_ratio

EXPLAINED_RATIO = 1.02
"""Largest ratio of weights on different ranks that rounding explains; losses may be computed in half precision."""

DIVISION = "divide by the number of micro-batches in the step or, better, by its scored elements"
LIBRARY_DIVISIONS = {
    "": DIVISION,
    "accelerate": "accelerator.backward(loss) divides by gradient_accumulation_steps = {full} in every step: before "
    f"this call, multiply the loss by {{full}} and {DIVISION}; or continue a short step in the next epoch, by "
    "GradientAccumulationPlugin(num_steps={full}, sync_with_dataloader=False)",
    "lightning": "the Trainer divides by accumulate_grad_batches = {full} in all steps: in training_step, multiply the "
    f"loss by {{full}} and {DIVISION}; or set limit_train_batches to a multiple of {{full}}",
}
"""By library that divides a loss by the planned number of micro-batches ("" for the script): the correction."""
AVERAGES = {"average", "averages", "averaged", "avg", "mean"}
"""Words in names of functions that return an average."""


def _micro_batches(windows: list[Window], key: str) -> list[tuple[Window, list[Loss]]]:
    """Return the steps whose losses of a key are all known and weight their elements equally, with these losses.

    Chunks of one backward pass with equal weights are combined into one loss.
    """
    rows = [(window, [_combined(backward, key) for backward in window.passes]) for window in windows]
    # A loss that is known only by its gradient, and has no value, may be unknown in some passes. Leave out the steps of
    # these passes, which would seem to have fewer micro-batches.
    fitted = {
        x.key for window in windows for backward in window.passes for x in backward.losses if not is_finite(x.value)
    }
    steps = [(w, [x for losses in passes for x in losses]) for w, passes in rows if key not in fitted or all(passes)]
    return [(w, losses) for w, losses in steps if losses and all(loss.uniform and loss.elements > 0 for loss in losses)]


def _plain_steps(windows: list[Window], key: str) -> list[tuple[Window, list[Loss]]]:
    """Return the steps of `_micro_batches` with different inputs whose gradients are not modified or used before."""
    steps = _micro_batches(windows, key)
    return [(w, losses) for w, losses in steps if not w.modified and not w.stale_passes and _distinct(w)]


@claim("TR-WEIGHT-001", "no step had several micro-batches with a known loss")
def elements_have_equal_weights(run: Run, record: Record) -> None:
    """A step is the mean of the means of micro-batches with different numbers of scored elements.

    Mixtures of data sets and mixup give rows different weights on purpose, but not exactly 1/n in a micro-batch of n
    elements. Losses over the features of several layers, computed in a loop, count equally on purpose, and are not
    judged. Three kinds of steps may be intended, and give a hint:

    1. Every task or resolution counts equally: the micro-batches of a step come from several loaders, or the
       micro-batches at the same positions are the larger ones in all steps.
    2. Every row counts equally: all rows of a micro-batch may have the same number of elements.
    3. Every document or client counts equally: most steps have micro-batches of different numbers of rows.

    The finding is also a hint if fewer than two steps, or fewer than half of them, show the fault, or if no micro-batch
    of several rows has more labels than rows.
    """
    for process, optimizer, windows in windows_of(run):
        for key in process.keys(optimizer):
            steps = [(w, losses) for w, losses in _micro_batches(windows, key) if len(losses) > 1 and _distinct(w)]
            record.tried += len(steps)
            unequal = [
                (w, losses)
                for w, losses in steps
                if largest_ratio(x.weight for x in losses) > max(x.precision for x in losses)
            ]
            if not unequal or _of_layers(unequal):
                continue
            window, losses = max(unequal, key=lambda row: largest_ratio(loss.weight for loss in row[1]))
            weights = [loss.weight for loss in losses]
            # In a mean over n elements, an element has the weight 1/n, so n times the weight is equal in all losses.
            exactly = all(
                largest_ratio(loss.elements * loss.weight for loss in row) < max(loss.precision for loss in row)
                for _, row in unequal
            )
            # With class weights the divisor is often the number of labels, so the weight is only nearly 1/n. Then many
            # steps must agree.
            nearly = len(unequal) >= 8 and all(
                largest_ratio(loss.elements * loss.weight for loss in row) ** 4
                < largest_ratio(loss.weight for loss in row)
                for _, row in unequal
                if largest_ratio(loss.weight for loss in row) > 1.5
            )
            are_means = exactly or (nearly and largest_ratio(weights) > 1.5)
            elements = [loss.elements for loss in losses]
            parts = "micro-batches" if any(len(w.passes) > 1 for w, _ in unequal) else "calls of a loss"
            by_class = " (counted by their class weights)" if any(n % 1 for n in elements) else ""
            seen = (
                f"in {len(unequal)} of {len(steps)} steps of several {parts}, scored elements have different "
                f"weights, by a factor of up to {largest_ratio(weights):.3g}; the {parts} of step {window.step} "
                f"have {[round(n, 2) if n % 1 else int(n) for n in elements]} scored elements{by_class} with weights "
                f"{numbers(weights)}"
            )
            # With one row per micro-batch, the mean of means may be intended: each example then counts once.
            has_tokens = any(loss.labels > loss.rows > 1 for loss in losses)
            # The three kinds of steps that may be intended; see the docstring.
            are_tasks = any(len({p.loader for p in w.passes}) > 1 for w, _ in unequal) or _ordered(unequal)
            are_rows = all(loss.rows and loss.labels % loss.rows == 0 for _, row in unequal for loss in row)
            are_documents = 2 * sum(len({loss.rows for loss in row}) > 1 for _, row in unequal) > len(unequal)
            often = len(unequal) >= 2 and 2 * len(unequal) >= len(steps)
            if are_means and often and has_tokens and not are_tasks and not are_rows and not are_documents:
                record.falsify(
                    losses[0].at,
                    f"{seen}: each micro-batch is divided by its own number of scored elements, so the step is a mean "
                    "of means",
                    "divide the sum of the losses of all micro-batches by the scored elements of the whole step",
                )
            else:
                record.hint(losses[0].at, seen, "give every scored element of a step the same weight")


def _combined(backward: Pass, key: str) -> list[Loss]:
    """Return the losses of a key in a backward pass; chunks with equal weights are combined into one loss."""
    losses = [loss for loss in backward.losses if loss.key == key]
    if len(losses) < 2 or not all(loss.uniform for loss in losses):
        return losses
    if largest_ratio(loss.weight for loss in losses) > max(loss.precision for loss in losses):
        return losses
    elements, labels = sum(loss.elements for loss in losses), sum(loss.labels for loss in losses)
    return [replace(losses[0], elements=elements, labels=labels)]


def _ordered(steps: list[tuple[Window, list[Loss]]]) -> bool:
    """Return whether the micro-batches at some positions of a step are always the larger ones.

    This is the case if tasks or views alternate. Random micro-batches rarely have such an order in all steps by chance.
    The positions may also be positions in groups of equal size into which the micro-batches of a step are divided.
    """
    rows = [[loss.elements for loss in losses] for _, losses in steps]
    most = max(map(len, rows))
    # Divide the steps into groups of every possible size. In all groups, the `count` largest must have the same places.
    for size in (divisor for divisor in range(2, most + 1) if most % divisor == 0):
        groups = [row[i : i + size] for row in rows for i in range(0, len(row) - size + 1, size)]
        same = any(len({_larger(group, count) for group in groups}) == 1 for count in range(1, size))
        if same and 2 * len(groups) >= len(rows):
            return True
    return False


def _of_layers(steps: list[tuple[Window, list[Loss]]]) -> bool:
    """Return whether each step computes losses of several sizes in one pass, in the same order, such as one per layer.

    Chunks of a sequence have the same size, except the last, which may be smaller.
    """
    chunks = all(len({loss.elements for loss in losses[:-1]}) == 1 for _, losses in steps)
    return not chunks and all(len(window.passes) == 1 for window, _ in steps) and _ordered(steps)


def _larger(sizes: list[float], count: int) -> frozenset[int]:
    """Return the positions of the `count` largest sizes."""
    return frozenset(sorted(range(len(sizes)), key=lambda position: -sizes[position])[:count])


def _distinct(window: Window) -> bool:
    """Return whether the backward passes of a step have different inputs: several losses of one batch do not count."""
    inputs = [p.input for p in window.passes]
    return all(inputs) and len(set(inputs)) == len(inputs)


@claim("TR-WEIGHT-002", "no optimizer took steps of different numbers of micro-batches")
def short_steps_have_the_same_weight(run: Run, record: Record) -> None:
    """The last step of an epoch has fewer micro-batches, but its gradient is divided by the planned number of them.

    The total weight of the step is then exactly (number of micro-batches) / (planned number). Sums over chunks of a
    sequence or over tasks have such weights on purpose, so the short steps must be at the ends of passes over a loader.
    Gradients that are added without a division are a hint, since a sum may be intended.

    Or the last micro-batches of an epoch do not fill a step, and the first step of the next epoch adds them to all of
    its own micro-batches, with a larger total weight. A script that continues the step in the next epoch takes the
    planned number in this step too.
    """
    for process, optimizer, windows in windows_of(run):
        for key in process.keys(optimizer):
            if _judge_carried_micro_batches(process, windows, key, record):
                continue
            steps = _plain_steps(windows, key)
            full = max((len(losses) for _, losses in steps), default=0)
            totals = [(len(losses), sum(x.elements * x.weight for x in losses), w, losses) for w, losses in steps]
            whole = [total for count, total, *_ in totals if count == full]
            short = [row for row in totals if row[0] < full]
            if full < 2 or not short or len(whole) < 2:
                continue
            if largest_ratio(whole) > 1.02:
                record.not_reached = (
                    "the total weight differs between steps with equal numbers of micro-batches, as with class weights"
                )
                continue
            record.tried += len(short)
            # The median of full steps. A short step divided by the planned number has count / full of this weight.
            median = sorted(whole)[len(whole) // 2]
            if median and all(abs(total / median - count / full) <= 2e-3 * count / full for count, total, *_ in short):
                count, total, window, losses = short[0]
                added = abs(median - full) <= 2e-3 * full
                positions = {p.n for w, _ in steps for p in w.passes}
                dividers = {e.get("divider", "") for e in process.of("backward") if e["n"] in positions}
                divider = max(dividers, default="")
                if added:
                    cause = "the gradients of micro-batches are added and not divided"
                else:
                    cause = f"{divider.title() or 'the script'} divides by the planned {full} micro-batches"
                sure = not added and _ends_of_epochs(process, windows, [w for _, _, w, _ in short])
                add = record.falsify if sure else record.hint
                add(
                    losses[0].at,
                    f"the weights of scored elements sum to {median:.4g} in steps of {full} micro-batches, and to "
                    f"{total:.4g} in step {window.step}, which has {count}: {cause}",
                    LIBRARY_DIVISIONS[divider].format(full=full),
                )


def _judge_carried_micro_batches(process: Process, windows: list[Window], key: str, record: Record) -> bool:
    """Judge first steps of epochs that also contain the rest of the previous epoch; return whether there is a finding.

    The rest are the last micro-batches of an epoch, which do not fill a step.
    """
    steps = [(w, ls) for w, ls in _micro_batches(windows, key) if not w.modified and not w.stale_passes]
    counts = Counter(len(window.passes) for window, _ in steps)
    loaders = {backward.loader for window in windows for backward in window.passes}
    if len(loaders) != 1 or None in loaders or not all(_distinct(window) for window, _ in steps):
        return False
    ends = [event["n"] for event in ends_of_passes(process) if event["loader"] in loaders]
    planned = counts.most_common(1)[0][0] if counts else 0
    long = [(window, losses) for window, losses in steps if len(window.passes) > planned]
    plain = [sum(x.elements * x.weight for x in losses) for window, losses in steps if len(window.passes) == planned]
    if planned < 2 or len(long) < 2 or len(long) + len(plain) < len(steps) or largest_ratio(plain) > 1.02:
        return False
    wrong = []
    for window, losses in long:
        # The epoch ends between its rest and the micro-batches of the next epoch. If batches are fetched ahead, its end
        # may be recorded one pass earlier.
        rest = len(window.passes) - planned
        first = window.passes[rest - 2].n if rest > 1 else windows[windows.index(window) - 1].n
        total = sum(loss.elements * loss.weight for loss in losses)
        if rest < planned and any(first < n < window.passes[rest].n for n in ends) and total > 1.02 * max(plain):
            wrong.append((window, losses, rest, total))
    if len(wrong) < len(long):
        return False
    window, losses, rest, total = wrong[0]
    record.tried += len(wrong)
    record.falsify(
        losses[0].at,
        f"the last {rest} micro-batches of an epoch are added to the {planned} of the first step of the next epoch "
        f"({len(wrong)} steps): the weights of scored elements sum to {total:.4g} in step {window.step}, and to "
        f"{plain[0]:.4g} in steps of {planned} micro-batches",
        "also take a step after the last batch of an epoch, or count micro-batches over epochs",
    )
    return True


def _ends_of_epochs(process: Process, windows: list[Window], short: list[Window]) -> bool:
    """Return whether the short windows end passes over a loader with one backward pass per batch."""
    # There must be loaders of one kind, and at most one backward pass per batch.
    loaders = {p.loader for window in windows for p in window.passes} - {None}
    # A loader may be created again for every epoch.
    kinds = {(e["at"], e["examples"]) for e in process.of("loader") if e["loader"] in loaders}
    if len(kinds) != 1:
        return False
    ends = [event for event in process.of("pass_end") if event["loader"] in loaders]
    begun = sum(event["loader"] in loaders for event in process.of("pass"))
    fetched = max((event["batches"] for event in ends), default=0) * begun
    if sum(len(window.passes) for window in windows) > fetched:  # chunks or views of a batch are no micro-batches
        return False
    # Batches may be fetched ahead, and a step may come after the end of a pass, so the pass ends somewhere between the
    # window before the short one and the window after it.
    before = {window.n: previous.n for previous, window in pairwise(windows)}
    after = {window.n: following.passes[0].n for window, following in pairwise(windows) if following.passes}
    return all(any(before.get(w.n, -1) < e["n"] < after.get(w.n, e["n"] + 1) for e in ends) for w in short)


@claim("TR-WEIGHT-003", "no step had several micro-batches with a known loss", premises=("TR-WEIGHT-006",))
def micro_batches_are_averaged_once(run: Run, record: Record) -> None:
    """The weights of a step with M micro-batches sum to M or 1/M instead of 1.

    This is a hint, since a sum of the losses of M tasks has the weight M on purpose. The claim is falsified if
    transformers.Trainer or accelerate is configured to accumulate over M micro-batches, which means an average, and
    every step adds the means of its micro-batches, or contains one micro-batch with the weight 1/M.
    """
    planned = {
        event["n"]: event["planned"]
        for process in run.processes
        for event in process.of("backward")
        if "planned" in event
    }
    for process, optimizer, windows in windows_of(run):
        for key in process.keys(optimizer):
            steps = _plain_steps(windows, key)
            # Only the passes of the first steps have a planned number.
            plans = [planned[backward.n] for w, _ in steps for backward in w.passes if backward.n in planned]
            single = bool(steps) and len(set(plans)) == 1 and all(len(w.passes) == len(ls) == 1 for w, ls in steps)
            if (
                single
                and len(plans) >= 8
                and all(abs(losses[0].elements * losses[0].weight * plans[0] - 1) <= 2e-3 for _, losses in steps)
            ):
                record.tried += len(steps)
                record.falsify(
                    steps[0][0].at,
                    f"the library is configured to accumulate gradients over {plans[0]} micro-batches, and each loss "
                    f"is divided by {plans[0]}, but each of {len(steps)} steps contains only one micro-batch",
                    "pass the optimizer to accelerator.prepare(): step() and zero_grad() of the returned optimizer "
                    "wait for the last micro-batch",
                )
                continue
            steps = [(w, losses) for w, losses in steps if len(losses) > 1]
            record.tried += len(steps)
            counts = {len(losses) for _, losses in steps}
            totals = [sum(loss.elements * loss.weight for loss in losses) for _, losses in steps]
            means = all(abs(total - len(ls)) <= 2e-3 * len(ls) for total, (_, ls) in zip(totals, steps, strict=True))
            plans = [planned[backward.n] for w, _ in steps for backward in w.passes if backward.n in planned]
            if means and len(plans) >= 8 and set(plans) == {max(counts)}:
                record.falsify(
                    steps[0][1][0].at,
                    f"the library is configured to average gradients over {max(counts)} micro-batches, but in "
                    f"{len(steps)} steps the weights of scored elements sum to the number of micro-batches instead of "
                    "1: the means of the micro-batches are added",
                    "call accelerator.backward(loss), which divides; in Trainer.compute_loss, divide the sum of the "
                    "losses by num_items_in_batch",
                )
                continue
            if len(steps) < 2 or len(counts) != 1 or largest_ratio(totals) > 1.02:
                continue
            (full,), total, at = counts, totals[0], steps[0][1][0].at
            if abs(total - full) <= 2e-3 * full:
                record.hint(
                    at,
                    f"every step has {full} micro-batches, and the weights of scored elements sum to {total:.4g}: the "
                    "means of the micro-batches are added",
                    f"divide every loss by {full}",
                )
            # If there are as many ranks, the second division may be by the number of ranks; see TR-WEIGHT-006.
            elif abs(total * full - 1) <= 2e-3 and len(run.ranks) != full:
                record.hint(
                    at,
                    f"every step has {full} micro-batches, and the weights of scored elements sum to {total:.4g}: the "
                    f"loss is divided by {full} twice",
                    f"divide by {full} once",
                )


@claim(
    "TR-WEIGHT-004",
    "no loss had different numbers of elements in three steps",
    premises=("TR-WEIGHT-002", "TR-GRAD-004"),
)
def total_weight_is_constant(run: Run, record: Record) -> None:
    """The gradient grows with the number of scored elements.

    Always a hint: a sum, or a division by a constant, may be intended.
    """
    for process, optimizer, windows in windows_of(run):
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
                    f"a scored element has the weight {totals[0] / counts[0]:.3g} in every step, although steps have "
                    f"{int(min(counts))} to {int(max(counts))} elements: the loss is a sum, or is divided by a "
                    "constant",
                    "divide the sum of the losses by the scored elements of the step",
                )


def _over_ranks(run: Run, *, by_hand: bool) -> Iterator[tuple[str, list[tuple[Window, ...]]]]:
    """Yield every key of a loss with the common steps of all ranks, if gradients are averaged over ranks.

    Args:
        run: The run.
        by_hand: Include runs whose script itself reduces the gradients.
    """
    ranks = run.ranks
    if len(ranks) < 2 or not all(
        process.has_ddp or (process.averages_gradients and (by_hand or _averages_shards(process))) for process in ranks
    ):
        return
    for optimizers in run.replicas:
        columns = (process.windows[number] for process, number in zip(ranks, optimizers, strict=True))
        steps = list(zip(*columns, strict=False))
        for key in ranks[0].keys(optimizers[0]):
            yield key, [windows for windows in steps if all(window.losses(key) for window in windows)]


def _averages_shards(process: Process) -> bool:
    """Return whether FSDP2 averages all gradients over ranks."""
    held = process.held.values()
    return all(event.get("shards") == event["parameters"] and not event["divides_otherwise"] for event in held)


@claim(
    "TR-WEIGHT-005",
    "the run has no ranks with averaged gradients and a known loss",
    premises=("TR-WEIGHT-001",),
)
def elements_have_equal_weights_over_ranks(run: Run, record: Record) -> None:
    """Every rank divides by its own number of elements, and gradients are averaged over ranks.

    Always a hint: most public code averages the means of ranks, sometimes on purpose.
    """
    for key, steps in _over_ranks(run, by_hand=True):
        unequal = []
        for windows in steps:
            losses = [loss for window in windows for loss in window.losses(key)]
            reduced = any(window.modified for window in windows) and reduction(windows) is None
            if reduced or not all(loss.uniform for loss in losses):
                continue
            record.tried += 1
            if largest_ratio(loss.weight for loss in losses) > EXPLAINED_RATIO:
                unequal.append((windows, losses))
        if len(unequal) >= 2 and 2 * len(unequal) >= len(steps):
            windows, losses = unequal[0]
            record.hint(
                losses[0].at,
                f"in {len(unequal)} of {len(steps)} steps, scored elements have different weights on different ranks; "
                f"in step {windows[0].step} the ranks have {[int(loss.elements) for loss in losses]} elements with "
                f"weights {numbers([loss.weight for loss in losses])}: each rank divides by its own number of "
                "elements, and gradients are averaged over ranks",
                "divide the loss by the number of elements on all ranks, and multiply it by the number of ranks",
            )


@claim("TR-WEIGHT-006", "the run has no ranks under DistributedDataParallel or fully_shard with a known loss")
def world_size_divides_once(run: Run, record: Record) -> None:
    """The weights of the scored elements on all ranks sum to 1 before the mean over ranks divides them again.

    Always a hint: a communication hook may compute a sum instead of the mean.
    """
    world = len(run.ranks)
    for key, steps in _over_ranks(run, by_hand=False):
        totals = [sum(x.elements * x.weight for w in windows for x in w.losses(key)) for windows in steps]
        record.tried += len(totals)
        if len(totals) > 1 and largest_ratio(totals) < 1.001 and abs(totals[0] - 1) < 2e-3:
            record.hint(
                steps[0][0].losses(key)[0].at,
                f"the weights of scored elements on all {world} ranks sum to 1 before the mean over ranks: the loss is "
                "divided by the number of ranks, and DistributedDataParallel or fully_shard divides again",
                "do not divide the loss by the number of ranks: the mean over ranks does so",
            )


def reduction(windows: Sequence[Window]) -> float | None:
    """Return c if all ranks of a step apply c times the sum of their gradients; else None.

    Return None also if the ranks have nearly the same gradient. The factors of a loss scaler, and of clipping by the
    norm of the sum, are not included in c.

    Args:
        windows: The windows of one step, one per rank.
    """
    local: list[list[float]] = [window.event.get("local_gradient", []) for window in windows]
    applied: list[list[float]] = [window.event.get("gradient", []) for window in windows]
    if not all(local) or not all(applied) or len({len(row) for row in [*local, *applied]}) > 1:
        return None
    total = [math.fsum(column) for column in zip(*local, strict=True)]
    size = max(map(abs, total))
    # With nearly equal gradients on all ranks, a sum cannot be distinguished from a multiple of one gradient.
    spread = max(max(column) - min(column) for column in zip(*local, strict=True))
    if not (0 < size < math.inf) or spread < 1e-2 * size:
        return None
    # Least squares: the factor c for which c * total is nearest to the applied gradient. It must fit every element.
    factor = math.fsum(a * b for a, b in zip(applied[0], total, strict=True)) / math.fsum(a * a for a in total)
    residual = max(abs(a - factor * b) for row in applied for a, b in zip(row, total, strict=True))
    if not residual <= 1e-3 * abs(factor) * size:
        return None
    # Remove the factors of clipping and of the loss scale.
    for clip in windows[0].clips:
        if windows[0].passes and clip["n"] < windows[0].passes[-1].n:
            continue
        if clip["kind"] != "clip_grad_norm_" or clip["norm"] is None:
            return None
        factor /= min(1.0, clip["limit"] / (clip["norm"] + 1e-6))
    return factor * (windows[0].passes[-1].scale if windows[0].passes else 1.0)


@claim(
    "TR-WEIGHT-007",
    "the run has no ranks with a known loss whose gradients the script itself reduces",
)
def reduced_gradients_are_averaged(run: Run, record: Record) -> None:
    """Gradients of means are added over ranks without a division, or are divided twice.

    Losses that are divided by the number of elements of all ranks are added on purpose: their weights sum to 1 over all
    ranks, not on every rank. A sum of means may be intended if it has little effect (Adam), or if the rate is scaled.
    Two cases falsify the claim:

    1. Every rank takes the mean of its micro-batches, so that the gradient does not grow with their number, and the
       size of the gradient matters, since it is clipped or the optimizer is plain SGD.
    2. The name of the function that reduces the gradients says that the function averages.

    A second division is a hint.
    """
    world = len(run.ranks)
    for optimizers in run.replicas if world > 1 else ():
        first = run.ranks[0]
        columns = (process.windows[number] for process, number in zip(run.ranks, optimizers, strict=True))
        rows = [(row, factor) for row in zip(*columns, strict=False) if (factor := reduction(row)) is not None]
        for key in first.keys(optimizers[0]):
            steps = [(row, factor) for row, factor in rows if all(window.losses(key) for window in row)]
            # By step and rank: the sum of the weights of a rank's loss; 1 if the loss is a mean.
            shares = [
                [sum(loss.elements * loss.weight for loss in window.losses(key)) for window in row] for row, _ in steps
            ]
            record.tried += len(steps)
            means = [all(abs(share - 1) < 2e-3 for share in row) for row in shares]
            totals = [factor * sum(row) for (_, factor), row in zip(steps, shares, strict=True)]
            if len(steps) < 3:
                continue
            windows = steps[0][0]
            at = windows[0].losses(key)[0].at
            if all(means) and all(abs(total - world) < 5e-3 * world for total in totals):
                several = all(len(window.passes) > 1 and _distinct(window) for row, _ in steps for window in row)
                kind = next((e["kind"] for e in first.of("optimizer") if e["optimizer"] == optimizers[0]), "")
                clips = [clip for row, _ in steps for clip in row[0].clips if clip["limit"] < (clip["norm"] or 0)]
                # Functions that reduce at least half as many elements as the model has, so no numbers to report.
                names = {
                    name
                    for row, _ in steps
                    for name, elements in row[0].event.get("reducers", {}).items()
                    if 2 * elements >= row[0].event["elements"]
                }
                named = sorted(name for name in names if AVERAGES & set(re.split("[^a-z]+", name.lower())))
                add = record.falsify if named or (several and (kind == "SGD" or clips)) else record.hint
                add(
                    windows[0].at,
                    f"the gradients of {world} ranks are summed and not divided: the loss at {at} is a mean on every "
                    f"rank (its weights sum to 1), but in the applied gradient the weights sum to {totals[0]:.4g} "
                    f"({len(steps)} steps)" + (f", although {named[0]}() should average them" if named else ""),
                    "divide by the number of ranks: dist.all_reduce(p.grad); p.grad /= world_size",
                )
            elif all(abs(total * world - 1) < 5e-3 for total in totals):
                record.hint(
                    windows[0].at,
                    f"in the applied gradient, the weights of the loss at {at} sum to {totals[0]:.4g} over all {world} "
                    "ranks: the gradient is divided by the number of ranks twice",
                    "divide by the number of ranks once",
                )
