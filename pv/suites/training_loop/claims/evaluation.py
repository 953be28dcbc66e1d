"""Claims about evaluations."""

import math
from collections import Counter
from dataclasses import replace
from itertools import chain
from unittest import SkipTest

from pv.equations.causes import difference
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.averages import averaged, decays
from pv.suites.training_loop.claims.cases import EVALUATED, evaluated_job
from pv.suites.training_loop.claims.checks import Cell, Cells, judge, refute, require, require_steps, unchanged
from pv.suites.training_loop.claims.data import consumed
from pv.suites.training_loop.claims.logs import mean_of_means, token_mean
from pv.suites.training_loop.job import Example
from pv.suites.training_loop.numbers import CLOSE, close, equal_to
from pv.suites.training_loop.oracle import START, Sums, sums
from pv.suites.training_loop.run import Run

TRAINING_MODE = "an evaluation in training mode, with dropout"
SEED = " (each pass over a DataLoader without a `generator` of its own draws a seed)"
TOLERANCE = 1e-5
"""Relative; trainers compute it in float32."""


def evaluation_cell(run: Run, k: int, found: float) -> Cell:
    """Return what is wrong with the loss of an evaluation after step k."""
    weights, size, evaluated = run.before(k), run.job.eval_batch, run.job.evaluated

    def parts(size: int) -> list[tuple[Sums, tuple[Example, ...]]]:
        rows = [evaluated[i : i + size] for i in range(0, len(evaluated), size)]
        return [(sums(weights, part), part) for part in rows]

    rows, batches = parts(1), parts(size)
    wanted = token_mean([each for each, _ in rows])
    if close(found, wanted, TOLERANCE):
        return Cell(run)
    by_rows = sum(token_mean([each]) * len(part) for each, part in batches) / len(evaluated)
    known = {
        "the mean of the batches' means": mean_of_means([each for each, _ in batches]),
        "the mean of the batches' means, weighted by their rows": by_rows,
        "the mean of the examples' means": mean_of_means([each for each, _ in rows]),
        "the sum over the tokens / the number of examples": sum(each.nats for each, _ in rows) / len(rows),
        "the sum over the tokens / the number of batches": sum(each.nats for each, _ in rows) / len(batches),
        "in bits, not in nats": wanted / math.log(2),
        "that of the last batch": token_mean([batches[-1][0]]),
        "that of the weights before the last step": token_mean([sums(run.before(k - 1), evaluated)]),
        "that of the weights at the start": token_mean([sums(START, evaluated)]),
    }
    if run.average and k == len(run.steps):
        name = "that of the running average, which the adapter is to turn off where `job.average` is None"
        known[name] = token_mean([sums(run.average, evaluated)])
    fault = f"{found:.6g} is reported, the token mean is {wanted:.6g}"
    causes = equal_to(found, known, TOLERANCE)
    return Cell(run, fault, causes or ((TRAINING_MODE,) if _evaluates_in_training_mode(run) else ()))


def _evaluates_in_training_mode(run: Run) -> bool:
    """Return whether evaluated examples have forwards in training mode, which drop a part of the hidden states."""
    seen = {*chain(*run.untrained, *run.leftover)}
    return run.job.dropout > 0 and bool(seen.intersection(each.name for each in run.job.evaluated))


def _off(run: Run, k: int, found: float) -> bool:
    """Return whether a loss is another than that of the weights before the step at index k."""
    rows = [sums(run.before(k), (each,)) for each in run.job.evaluated]
    return not close(found, token_mean(rows), TOLERANCE)


def evaluation_cells(bench: Bench, size: int) -> Cells:
    """Return what is wrong with each evaluation in batches of a size."""
    run = bench.run(evaluated_job(eval_batch=size))
    made = [(k, loss) for k, loss in run.evaluations if k <= len(run.steps)]
    later = [(k + 1, loss) for k, loss in made if (k + 1) % run.job.eval_every == 0 and k < len(run.steps)]
    if later and len(later) == len(made) and not any(_off(run, k, loss) for k, loss in later):
        made = later  # steps are counted from 0, which TL-EVAL-007 is about
    if not made:
        require(not run.evaluated, "`evaluations`", "and forwards in eval mode are seen")
        refute(f"no evaluation of {len(run.steps)} steps is reported, and three are due", run)
    return {f"batches of {size}, step {k}": evaluation_cell(run, k, loss) for k, loss in made}


def falsify_evaluation_is_the_token_mean(bench: Bench) -> None:
    judge(evaluation_cells(bench, len(EVALUATED)))


def falsify_evaluated_at_the_cadence(bench: Bench) -> None:
    run = bench.run(evaluated_job(eval_batch=len(EVALUATED)))
    require(run.evaluations or not run.evaluated, "`evaluations`", "and forwards in eval mode are seen")
    wanted = [*range(2, len(run.steps) + 1, 2)]
    if not wanted:
        raise SkipTest(f"in {len(run.steps)} steps, no evaluation is due")
    at = [k for k, _ in run.evaluations]
    if [k for k in at if k] != wanted:  # one before the first step is allowed
        known = {
            "one evaluation every 3 steps, where 2 are asked for": [3, 6],
            "one step late": [3, 5],
            "one step early: steps are counted from 0": [1, 3, 5],
            "an evaluation after every step": [1, 2, 3, 4, 5, 6],
            "steps counted from 0, and the first one evaluated": [0, 2, 4],
        }
        causes = tuple(name for name, steps in known.items() if at == steps)
        refute(f"evaluations after the steps {at}, not after {', '.join(map(str, wanted))}", run, causes)


def falsify_batch_size_of_an_evaluation(bench: Bench) -> None:
    cells = evaluation_cells(bench, 1) | evaluation_cells(bench, 2)
    judge(cells)
    sizes = {
        len({*names} & {each.name for each in EVALUATED}) for cell in cells.values() for names in cell.run.evaluated
    }
    if sizes and min(sizes) == len(EVALUATED):
        hint = "hand `job.eval_batch` to the loop, or name the claim in `not_claimed`"
        raise SkipTest(
            f"every evaluation has one batch of {len(EVALUATED)} examples where 1 and 2 are asked for: {hint}"
        )


def falsify_evaluation_changes_nothing(bench: Bench) -> None:
    plain = unchanged(bench, evaluated_job(eval_every=1), "eval_every", "evaluations", _ungraded)
    cells = {name: _of_mode(each) for name, each in plain.items()}
    if not bench.missing("", ("average",)):
        with_average = unchanged(
            bench,
            evaluated_job(eval_every=1, average=0.5, rate=40.0, dropout=0.0),
            "eval_every",
            "evaluations",
            _ungraded,
        )
        cells |= {f"with a running average, {name}": _of_average(bench, each) for name, each in with_average.items()}
    judge(cells)


def _ungraded(run: Run) -> int:
    """Return how many forwards train nothing: they are in eval mode, or without gradients."""
    return len(run.evaluated) + len(run.untrained)


def _require_evaluations(run: Run, *, between: bool = False) -> None:
    """Raise SkipTest if a run evaluates nothing. between: also if it does so after its last step alone."""
    if not _ungraded(run):
        raise SkipTest("no forward in eval mode or without gradients is seen: nothing is evaluated")
    if between and not any(0 < step < len(run.steps) for step, _ in run.evaluations):
        require(run.evaluations, "`evaluations`", "and forwards in eval mode are seen")
        raise SkipTest("no step is taken after an evaluation")


def _of_mode(cell: Cell) -> Cell:
    """Return the cell with its cause: evaluations in training mode if there were any, else what may draw numbers."""
    active = cell.fault and _evaluates_in_training_mode(cell.run)
    drawn = tuple(each if each.startswith("weights") else f"{each}{SEED}" for each in cell.causes)
    return replace(cell, causes=(TRAINING_MODE,) if active else drawn)


def _of_average(bench: Bench, cell: Cell) -> Cell:
    """Return the cell with its cause if the step after an evaluation begins with the running average of the weights."""
    run = cell.run
    k = next((step for step, _ in run.evaluations if step), 1)  # the first evaluation may be where an epoch ends
    if not cell.fault or len(run.steps) <= k:
        return cell
    mean = averaged(START, [step.weights for step in run.steps[:k]], decays(bench, run.job))
    found = sums(mean, run.named(run.steps[k].names))
    wanted = {name: each / max(found.tokens, 1) for name, each in found.gradient.items()}
    left = difference(run.steps[k].gradient, wanted) < max(bench.trainer.tolerance, CLOSE)
    return replace(cell, causes=("the running average left in the model after the evaluation",)) if left else cell


def falsify_training_mode_after_an_evaluation(bench: Bench) -> None:
    cells: Cells = {}
    for accumulate in (1, 2):
        run = bench.run(evaluated_job(accumulate=accumulate))
        _require_evaluations(run, between=True)
        used = Counter(consumed(run))  # one that is used in training mode may be in eval mode, too, to count operations
        trained = {each.name for each in run.job.train if used[each.name] < run.job.epochs}
        found = sorted(trained.intersection(chain(*run.graded)))  # an evaluation of the training data has none
        fault = f"the training examples {found} have forwards in eval mode, with gradients" if found else ""
        causes = ("a model that stays in eval mode after an evaluation",)
        cells[f"accumulation {accumulate}"] = Cell(run, fault, causes)
    judge(cells)


def falsify_evaluated_examples_are_not_trained_on(bench: Bench) -> None:
    run = bench.run(evaluated_job())
    names = {*chain(*run.order), *chain(*run.leftover)}
    found = sorted(names.intersection(each.name for each in EVALUATED))
    if found:
        together = any(set(step.names) & set(found) for step in run.steps)
        causes = (
            "an evaluation in training mode, with gradients"
            if not together
            else "a step on evaluated examples: they are in the training data",
        )
        refute(f"the evaluated examples {found} have forwards in training mode, with gradients", run, causes)
    _require_evaluations(run)
    require_steps(run)


def falsify_each_example_evaluated_once(bench: Bench) -> None:
    run = bench.run(evaluated_job())
    if not run.evaluations:
        _require_evaluations(run)
    names = _after_trial(run)
    times = {each.name: names.count(each.name) for each in EVALUATED}
    if len(set(times.values())) > 1 or times[EVALUATED[0].name] < len(run.evaluations):
        n, rest = len(EVALUATED), len(EVALUATED) % run.job.eval_batch
        few, own = max(times.values()) < len(run.evaluations), {each.name for each in run.job.train}
        known = {
            "an evaluation of training examples": few and {*chain(*run.evaluated)} >= own,
            TRAINING_MODE: not any(times.values()) and {*chain(*run.untrained)} >= set(times),
            "an evaluation without the last, incomplete batch": not few
            and [name for name, each in times.items() if not each] == [each.name for each in EVALUATED[n - rest :]],
        }
        causes = tuple(name for name, holds in known.items() if holds)
        refute(f"in {len(run.evaluations)} evaluations, forwards in eval mode by example: {times}", run, causes)


def _after_trial(run: Run) -> list[int]:
    """Return the evaluated examples in their order, without a trial of the first batches before the training."""
    own = {each.name for each in EVALUATED}
    names, early = ([n for n in chain(*rows) if n in own] for rows in (run.evaluated, run.evaluated[: run.early]))
    trial = len(names) % len(EVALUATED)
    return names[trial:] if trial == len(early) % len(EVALUATED) else names
