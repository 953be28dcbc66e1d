"""Claims about a run in two processes. They share one run, since starting processes takes long."""

from collections import Counter
from dataclasses import replace

from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import job, unequal
from pv.suites.training_loop.claims.checks import Cell, Cells, gradient_cell, judge, refute
from pv.suites.training_loop.diagnosis import different
from pv.suites.training_loop.mistakes import difference
from pv.suites.training_loop.oracle import sums
from pv.suites.training_loop.run import Run


def both_ranks(bench: Bench) -> tuple[Run, Run]:
    """Return the runs of the two ranks of a job, with checkpoints if the trainer has them."""
    saved = 0 if bench.missing("", ("save",)) else 1
    first, second = bench.ranks(job(unequal(8), batch=1, accumulate=2, save_every=saved), 2)
    if len(first.steps) != len(second.steps):
        refute(f"the ranks take {len(first.steps)} and {len(second.steps)} steps", first)
    return first, second


def falsify_examples_of_two_ranks(bench: Bench) -> None:
    first, second = both_ranks(bench)
    times = Counter(name for run in (first, second) for step in run.order for name in step)
    wanted = Counter(each.name for each in first.job.train)
    if times != wanted:
        refute(f"over both ranks, the examples are used so often in an epoch: {dict(sorted(times.items()))}", first)


def falsify_weights_of_two_ranks(bench: Bench) -> None:
    first, second = both_ranks(bench)
    for k, (a, b) in enumerate(zip(first.steps, second.steps, strict=True), 1):
        if differing := different(b.weights, a.weights):
            refute(f"after step {k} the weights of the ranks differ: {differing}", first)


def falsify_gradient_of_two_ranks(bench: Bench) -> None:
    first, second = both_ranks(bench)
    pairs = zip(first.steps, second.steps, strict=True)
    together = replace(first, steps=tuple(replace(a, batches=a.batches + b.batches) for a, b in pairs))
    cells: Cells = {}
    for k in range(len(together.steps)):
        cell = gradient_cell(bench, together, k)
        if cell.fault and _is_mean_of_ranks(bench, (first, second), k):
            cell = replace(cell, causes=("the mean of the ranks' means", *cell.causes))
        cells[f"step {k + 1}"] = Cell(first, cell.fault, cell.causes)
    judge(cells)


def falsify_resume_of_two_ranks(bench: Bench) -> None:
    straight = [*both_ranks(bench)]
    if 1 not in straight[0].checkpoints:
        refute("two processes leave no checkpoint of step 1", straight[0])
    for rank, (whole, again) in enumerate(zip(straight, bench.resume_ranks(straight, 1), strict=True)):
        if whole.order[1:] != again.order:
            refute(f"rank {rank} goes on with the examples {again.order}, not {whole.order[1:]}", again)
        if differing := different(again.weights, whole.weights):
            refute(f"rank {rank} ends with other weights: {differing}", again)


def _is_mean_of_ranks(bench: Bench, runs: tuple[Run, Run], k: int) -> bool:
    a, b = (sums(runs[0].before(k), run.named(run.steps[k].names)) for run in runs)
    mean = {n: (a.gradient[n] / max(a.tokens, 1) + b.gradient[n] / max(b.tokens, 1)) / 2 for n in a.gradient}
    return difference(runs[0].steps[k].gradient, mean) < max(bench.trainer.tolerance, 1e-6)
