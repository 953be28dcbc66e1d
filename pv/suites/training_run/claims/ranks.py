"""Claims about runs of several ranks: the same weights, different examples."""

from itertools import pairwise

from pv.suites.training_run.record import Record, claim, numbers
from pv.suites.training_run.run import Event, Process, Run


@claim("TR-RANK-001", "no run of several ranks whose weights could be compared")
def ranks_have_the_same_weights(run: Run, record: Record) -> None:
    """Weights differ over ranks. Without DDP, equal norms for different inputs show that gradients are averaged."""
    ranks, replicas = run.ranks, run.replicas
    if ranks and not replicas:
        record.not_reached = "no optimizer holds parameters that can be recognized on every rank by names and shapes"
    for optimizers in replicas:
        held = [process.held[number] for process, number in zip(ranks, optimizers, strict=True)]
        if any(event.get("shards") for event in held):
            record.not_reached = "parameters are sharded: what the ranks hold differs on purpose"
            continue
        columns = (process.windows[number] for process, number in zip(ranks, optimizers, strict=True))
        steps = list(zip(*columns, strict=False))
        inputs = [[p.input for p in window.passes] for window in steps[0]] if steps else []
        averaged = (
            len(steps) >= 3
            and len({window.event["norm"] for window in steps[0]}) == 1
            and bool(steps[0][0].event["norm"])
            and all(one != other for one, other in pairwise(inputs))
        )
        if not (averaged or all(process.has_ddp for process in ranks)) or not _replicated(ranks, held, averaged):
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
                    f"{numbers(digests)}; {cause}",
                    "broadcast the initial weights from one rank, and reduce the gradients of every step",
                )
                break


def _differ(digests: list[float]) -> bool:
    return max(digests) - min(digests) > 1e-9 * (1 + max(map(abs, digests)))


def _replicated(ranks: list[Process], held: list[Event], averaged: bool) -> bool:
    """Return whether optimizers of the same parameters are meant to keep them equal over ranks.

    Shards of an optimizer's state, heads of a rank of its own, replicas over a part of the ranks, and hooks that
    replace the reduction (as local SGD does) are none.
    """
    if any(True for process in ranks for _ in process.of("communication_hook")):
        return False
    if any(e["group"] != process.start["world_size"] for process in ranks for e in process.of("ddp")):
        return False
    return averaged or all(event["in_ddp"] == event["parameters"] for event in held)


@claim("TR-RANK-002", "no run of several ranks whose gradients are averaged")
def ranks_have_different_examples(run: Run, record: Record) -> None:
    """Every rank trains on the same inputs, in each of at least four forwards with different inputs.

    Ranks that share one model (tensor parallelism) have the same inputs on purpose. They have no replica of their own:
    gradients must be averaged by DistributedDataParallel, or all elements reduced over all ranks before each step.
    """
    ranks = run.ranks
    if len(ranks) < 2 or not all(process.has_ddp or process.averages for process in ranks):
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
