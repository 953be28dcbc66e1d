"""Claims about runs of several ranks: the same weights, different examples, reduced gradients."""

import math
from itertools import pairwise
from typing import Any

from pv.suites.training_run.claim import Record, claim, numbers, windows_of
from pv.suites.training_run.run import Event, Process, Run, Window


@claim("TR-RANK-001", "the run has no ranks whose weights can be compared")
def ranks_have_the_same_weights(run: Run, record: Record) -> None:
    """Ranks that average their gradients have different weights after a step.

    Ranks count as replicas if DistributedDataParallel covers all ranks or, without it, if the norms of the gradients
    are equal for different inputs. Not a fault: shards, heads that only one rank has, hooks that replace the reduction,
    and local SGD, where weights agree again after a later step.

    Ranks that start with equal weights and never exchange gradients or weights may be members of an ensemble or of a
    search, not replicas. This is ruled out if the ranks share one evaluation or one checkpoint, or if samplers divide
    the examples among the ranks and the ranks exchange tensors that are about as large as the model.

    Ranks that exchange activations inside a model hold parts of the model (tensor parallelism), which differ. A
    normalization layer that has the same input and the same weight on all ranks before the first step is a replica, and
    must stay equal.
    """
    ranks, replicas = run.ranks, run.replicas
    parallel = len(ranks) > 1 and not any(process.has_ddp for process in ranks)
    if parallel and all(any(e["inside"] for e in process.of("exchange")) for process in ranks):
        _compare_normalizations(ranks, record)
    if ranks and not replicas:
        record.not_reached = "no optimizer holds parameters that can be recognized on every rank by names and shapes"
    for optimizers in replicas:
        held = [process.held[number] for process, number in zip(ranks, optimizers, strict=True)]
        if any(event.get("shards") for event in held):
            record.not_reached = "parameters are sharded, so the ranks hold different parts of them"
            continue
        columns = (process.windows[number] for process, number in zip(ranks, optimizers, strict=True))
        steps = list(zip(*columns, strict=False))
        inputs = [[p.input for p in window.passes] for window in steps[0]] if steps else []
        # Without DistributedDataParallel: equal norms for different inputs show a reduced gradient.
        averaged = (
            len(steps) >= 3
            and len({window.event["norm"] for window in steps[0]}) == 1
            and bool(steps[0][0].event["norm"])
            and all(a != b for a, b in pairwise(inputs))
        )
        reason = "" if averaged else _useless_exchange(ranks, steps)
        if reason:
            record.tried += len(steps)
            record.falsify(
                steps[0][0].at,
                f"{len(ranks)} ranks start with the same weights and train on different inputs, but {reason} in "
                f"{len(steps)} steps: in step 1, their gradients have the norms "
                f"{numbers([window.event['norm'] for window in steps[0]])}, and their weights differ afterwards",
                "wrap the model in DistributedDataParallel (Accelerator.prepare, Fabric.setup), or reduce the "
                "gradients of all ranks, in place, before every step",
            )
        if not (averaged or all(process.has_ddp for process in ranks)) or not _replicated(ranks, held, averaged):
            continue
        for position, windows in enumerate(steps):
            digests = [window.event["digest"] for window in windows]
            if None in digests:
                continue
            record.tried += 1
            if _differ(digests):
                if any(_are_averaged(ranks, before, after) for before, after in pairwise(steps[position:])):
                    break
                cause, change = _cause(ranks, windows, averaged)
                record.falsify(
                    windows[0].at,
                    f"after step {windows[0].step} the ranks have different weights (sums over a few of them: "
                    f"{', '.join(f'{digest:.8g}' for digest in digests)}); {cause}",
                    change,
                )
                break


def _compare_normalizations(ranks: list[Process], record: Record) -> None:
    """Compare the normalization layers that have one input and one weight on all ranks, before the first step."""
    columns = [
        {row["name"]: row for event in process.of("normalizations") for row in event["layers"]} for process in ranks
    ]
    rows = [[column[name] for column in columns] for name in columns[0] if all(name in column for column in columns)]
    rows = [row for row in rows if not any(_differ([part[key] for part in row]) for key in ("input", "first"))]
    record.tried += len(rows)
    wrong = [row for row in rows if _differ([part["last"] for part in row])]
    if wrong:
        sums = ", ".join(f"{part['last']:.8g}" for part in wrong[0])
        record.falsify(
            next((windows[0].at for windows in ranks[0].windows.values() if windows), ""),
            f"{len(wrong)} of {len(rows)} normalization layers have the same weights and the same input on all "
            f"{len(ranks)} ranks before the first step, and different weights at the end: "
            f"{', '.join(row[0]['name'] for row in wrong[:4])} (sums {sums}); the ranks share a model, so these "
            "replicas have drifted apart",
            "clip replicated parameters by the same factor on all ranks, and reduce their gradients over the ranks "
            "that share the model",
        )


def _useless_exchange(ranks: list[Process], steps: list[tuple[Window, ...]]) -> str:
    """Return the reason why ranks do not train one model together although this is intended; "" without a reason.

    The ranks exchange neither gradients nor weights; or they reduce at least half as many elements as the model has,
    but to one rank only, or without an effect on the gradients. The returned text continues a sentence whose subject is
    the ranks.

    The ranks start with equal weights, and have equal rates and different inputs. An ensemble or a search is ruled out:
    every member would save its weights, or evaluate the same data. Here only rank 0 saves, or the ranks evaluate
    different parts of the data and exchange results, or samplers divide the examples among the ranks and the ranks
    exchange at least half as many elements as the model has. The stages of a pipeline, which send activations, are
    ruled out too.
    """
    if len(steps) < 4 or any(process.has_ddp or any(process.of("communication_hook")) for process in ranks):
        return ""
    starts = [start for window in steps[0] if (start := window.event.get("digest_before")) is not None]
    ends = [end for window in steps[-1] if (end := window.event["digest"]) is not None]
    if min(len(starts), len(ends)) < len(ranks) or _differ(starts) or not _differ(ends):
        return ""
    for windows in steps:
        inputs = [[p.input for p in window.passes] for window in windows]
        rates = [window.event["rates"] for window in windows]
        if any(a == b or "" in a for a, b in pairwise(inputs)) or any(rate != rates[0] for rate in rates):
            return ""
    exchanges = [event for process in ranks for event in process.of("exchange")]
    size = min(window.event.get("elements", 0) for windows in steps for window in windows)
    results = ("all_reduce", "reduce", "broadcast", "gather", "all_gather", "all_gather_into_tensor")
    # Results of an evaluation are much smaller than the model.
    large = {e["name"] for e in exchanges if 2 * e["elements"] >= size}
    last = max(window.n for window in steps[-1])
    if any(2 * event["elements"] >= size and event["n"] > last for event in exchanges):
        return ""  # models that were trained apart are averaged once, at the end
    if any(e["name"] not in results for e in exchanges):
        return ""
    if any(e["n"] > steps[0][0].n for process in ranks for e in process.of("read_file")):
        return ""
    saving = [any(process.of("save")) for process in ranks]
    if any(saving[1:]):
        return ""
    parts = [next((e["inputs"] for e, _ in process.evaluations if e["loader"] is not None), None) for process in ranks]
    shared = bool(exchanges) and None not in parts and all(a != b for a, b in pairwise(parts))
    # Every rank has a loader whose sampler divides the examples among the ranks.
    divided = all(any((e["replicas"] or 1) == len(ranks) for e in process.of("loader")) for process in ranks)
    if not (saving[0] or shared or (large and divided)):
        return ""
    if not large:
        return "exchange neither gradients nor weights"
    agree = any(not _differ(digests) for windows in steps[1:] if None not in (digests := _digests(windows)))
    if agree or not large <= {"all_reduce", "reduce"}:
        return ""
    if large == {"reduce"}:
        return "reduce gradients to one rank only, by dist.reduce,"
    # In the first steps, compare a few elements of the gradient of a rank with the applied gradient (after clipping).
    sides = [
        _are_multiples(window.event["local_gradient"], window.event["gradient"])
        for windows in steps
        for window in windows
        if any(window.event.get("local_gradient", ()))
    ]
    is_local = len(sides) >= 4 * len(ranks) and all(sides)  # ranks apply their local gradients
    return "reduce tensors other than the gradients" if is_local and all(p.averages_gradients for p in ranks) else ""


def _are_multiples(local: list[float], applied: list[float]) -> bool:
    """Return whether a local gradient, which is not 0, times a positive factor is the applied gradient."""
    size = math.hypot(*applied)
    factor = size / math.hypot(*local)
    return factor > 0 and all(abs(b - factor * a) <= 1e-5 * size for a, b in zip(local, applied, strict=True))


def _digests(windows: tuple[Window, ...]) -> list[Any]:
    """Return the sums over a few weights after a step, one per rank."""
    return [window.event["digest"] for window in windows]


def _are_averaged(ranks: list[Process], before: tuple[Window, ...], after: tuple[Window, ...]) -> bool:
    """Return whether the weights of all ranks differ after a step and agree before the next one, as in local SGD.

    Loading a checkpoint on every rank also makes them agree, but is not averaging.
    """
    ends = _digests(before)
    starts: list[Any] = [window.event.get("digest_before") for window in after]
    if None in [*ends, *starts] or not _differ(ends) or _differ(starts):
        return False
    spans = zip(ranks, before, after, strict=True)
    return not all(any(a.n < e["n"] < b.n for e in process.of("read_file")) for process, a, b in spans)


def _cause(ranks: list[Process], windows: tuple[Window, ...], averaged: bool) -> tuple[str, str]:
    """Return the reason why ranks have different weights after a step, and the correction.

    Args:
        ranks: The processes.
        windows: The windows of the first step with different weights, one per rank.
        averaged: Whether the ranks apply equal gradients in step 1, for different inputs.
    """
    rates = [window.event["rates"] for window in windows]
    before: list[Any] = [window.event.get("digest_before") for window in windows]
    first = windows[0].step == 1
    if first and averaged:
        return (
            "the ranks start with different weights",
            "broadcast the initial weights from one rank, and reduce the gradients of every step",
        )
    if not first and None not in before and _differ(before):
        return (
            "the weights were equal after the previous step and different before this step: in between, some ranks "
            "changed or loaded weights",
            "load checkpoints on every rank (map_location), or broadcast the weights afterwards",
        )
    if any(rate != rates[0] for rate in rates):
        return (
            f"the learning rates of the ranks differ: {', '.join(numbers(rate) for rate in rates)}",
            "advance the schedule on every rank",
        )
    wrapped = all(forward["wrapped"] for process in ranks for forward, _ in process.training_forwards)
    if any(process.has_ddp for process in ranks) and not wrapped:
        return (
            "the model is called without its DistributedDataParallel wrapper",
            "call the wrapper in the training, not wrapper.module",
        )
    return (
        "a gradient is not reduced, the result of a reduction is lost, or the optimizers have different states",
        "reduce the gradients of every step (no `no_sync` around its last backward pass), and restore optimizers on "
        "every rank",
    )


def _differ(digests: list[float]) -> bool:
    """Return whether sums over weights on several ranks differ by more than rounding errors."""
    # Equal operations in equal order give equal bits on every rank. The tolerance is for ranks on different devices.
    return max(digests) - min(digests) > 1e-9 * (1 + max(map(abs, digests)))


def _replicated(ranks: list[Process], held: list[Event], averaged: bool) -> bool:
    """Return whether optimizers of the same parameters should keep the parameters equal on all ranks.

    Return False if hooks replace the reduction, as in local SGD, if replicas cover only some ranks, or if `averaged` is
    False and an optimizer holds parameters outside of DistributedDataParallel, such as the head of one rank.
    """
    if any(any(process.of("communication_hook")) for process in ranks):
        return False
    if any(e["group"] != process.start["world_size"] for process in ranks for e in process.of("ddp")):
        return False
    return averaged or all(event["in_ddp"] == event["parameters"] for event in held)


@claim("TR-RANK-002", "the run has no ranks whose gradients are averaged")
def ranks_have_different_examples(run: Run, record: Record) -> None:
    """All ranks train on the same inputs, in each of at least four forwards. The inputs differ between the forwards.

    With tensor parallelism, ranks share one model and have the same inputs on purpose. The claim therefore requires
    replicas: gradients are averaged by DistributedDataParallel, or as many elements as the model has are reduced over
    all ranks before every step. If all losses of the ranks differ although no dropout is active, the model draws noise
    for its inputs, such as noise levels of a diffusion: several draws for one batch may be intended, and give a hint.
    """
    ranks = run.ranks
    if len(ranks) < 2 or not all(process.has_ddp or process.averages_gradients for process in ranks):
        return
    if any(e["group"] != process.start["world_size"] for process in ranks for e in process.of("ddp")):
        return
    columns = ([str((f["inputs"], f.get("others"))) for f, _ in process.training_forwards] for process in ranks)
    rows = list(zip(*columns, strict=False))
    record.tried += len(rows)
    if len(rows) >= 4 and all(len(set(row)) == 1 for row in rows) and len({row[0] for row in rows}) >= 4:
        at = next((event["at"] for event in ranks[0].of("loader")), ranks[0].training_forwards[0][0]["at"])
        values = [[loss["value"] for event in process.of("backward") for loss in event["losses"]] for process in ranks]
        noisy = bool(values[0]) and all(len(set(row)) == len(ranks) for row in zip(*values, strict=False))
        dropout = any(forward["dropouts"] for process in ranks for forward, _ in process.training_forwards)
        (record.hint if noisy and not dropout else record.falsify)(
            at,
            f"all {len(ranks)} ranks train on the same inputs in each of {len(rows)} forwards",
            "use a DistributedSampler, or a seed that depends on the rank",
        )


@claim("TR-RANK-003", "no optimizer of sharded parameters took a step", premises=("TR-PARAM-001",))
def gradients_are_reduced_before_the_step(run: Run, record: Record) -> None:
    """An optimizer takes a step while FSDP2 has gradients that are not reduced yet, and are not in the optimizer.

    These gradients are added to the next reduced gradient, or lost. No correct script leaves a part of a gradient to
    the next step. At least two steps, and half of all steps, must show the fault, since one may be the rest of an
    epoch.
    """
    for process, optimizer, windows in windows_of(run):
        if not process.held.get(optimizer, {}).get("shards"):
            continue
        record.tried += len(windows)
        early = [window for window in windows if window.event.get("waiting")]
        # Twice, and in half of the steps.
        if len(early) >= 2 and 2 * len(early) >= len(windows):
            record.falsify(
                early[0].at,
                f"step {early[0].step} is taken before the gradients of {early[0].event['waiting']} sharded parameters "
                f"are reduced ({len(early)} of {len(windows)} steps): the last backward pass before the step runs "
                "without gradient synchronization",
                "call set_requires_gradient_sync(True) before the last backward pass of every step",
            )
