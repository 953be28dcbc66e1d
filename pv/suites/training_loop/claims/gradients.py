"""Claims about the gradient that the optimizer gets: that of the mean over the scored tokens of its window."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any
from unittest import SkipTest

import torch
from hypothesis import assume, given
from hypothesis import example as first
from torch import Tensor

from pv.equations.causes import difference
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import equal, example, job, shapes, unequal
from pv.suites.training_loop.claims.checks import (
    Cell,
    Cells,
    gradient_cells,
    judge,
    require_rate,
)
from pv.suites.training_loop.claims.data import consumed
from pv.suites.training_loop.diagnosis import different
from pv.suites.training_loop.masks import wrong_mask
from pv.suites.training_loop.numbers import CLOSE
from pv.suites.training_loop.oracle import START, norm
from pv.suites.training_loop.run import Run

HOLDS_FROZEN = (
    "a frozen parameter in the optimizer ({}); if the loop freezes none, its adapter names `freeze` as missing"
)

OTHER_LOSS = (
    "; if the loss of the loop is not the mean cross-entropy of its examples, as with label smoothing or a "
    "contrastive loss, the adapter names TL-GRAD-001, TL-LOG-001 and TL-EVAL-001 in `not_claimed`"
)


def falsify_equal_full_windows(bench: Bench) -> None:
    cells: Cells = {}
    for batch, accumulate in product((1, 2), (1, 2, 3)):
        run = bench.run(job(equal(2 * batch * accumulate), batch=batch, accumulate=accumulate, epochs=2))
        cells |= gradient_cells(bench, run)
    judge(cells, OTHER_LOSS)


TELLING: dict[str, Any] = {"train": unequal(10), "batch": 2, "accumulate": 3, "epochs": 2}
"""A job in which no two known mistakes give the same gradient; it is tried before those that are drawn."""


def unequal_cells(bench: Bench, shape: Mapping[str, Any], which: Callable[[int, int], bool]) -> Cells:
    """Return a cell of the gradients of a job, and one of the masks if the model is given some."""
    run = bench.run(job(**shape))
    cells = gradient_cells(bench, run, which)
    if cells or wrong_mask(run)[0]:
        cells[f"the masks of {len(run.job.train)} examples"] = Cell(run, *wrong_mask(run))
    return cells


def _micro_batches(shape: Mapping[str, Any]) -> int:
    """Return the number of micro-batches of an epoch."""
    return -(-len(shape["train"]) // int(shape["batch"]))


@first(**TELLING)
@given(**shapes(2))
def falsify_unequal_full_windows(bench: Bench, **shape: Any) -> None:
    assume(_micro_batches(shape) >= shape["accumulate"])
    judge(unequal_cells(bench, shape, lambda taken, planned: taken == planned))


def falsify_equal_partial_windows(bench: Bench) -> None:
    cells: Cells = {}
    for batch, n, accumulate in ((1, 3, 2), (1, 4, 3), (1, 5, 3), (2, 6, 2), (2, 2, 2), (1, 2, 4)):
        run = bench.run(job(equal(n), batch=batch, accumulate=accumulate, epochs=2))
        cells |= gradient_cells(bench, run, lambda taken, planned: taken < planned)
    judge(cells)


@first(**TELLING)
@given(**shapes(2))
def falsify_unequal_partial_windows(bench: Bench, **shape: Any) -> None:
    assume(_micro_batches(shape) % shape["accumulate"])
    judge(unequal_cells(bench, shape, lambda taken, planned: taken < planned))


def falsify_first_label_is_not_counted(bench: Bench) -> None:
    train = tuple(example(name, 4, 0b111, first=True) for name in (1, 2, 3, 4))
    cells: Cells = {}
    for batch, accumulate in ((1, 1), (2, 1), (2, 2)):
        cells |= gradient_cells(bench, bench.run(job(train, batch=batch, accumulate=accumulate)))
    padded = tuple(example(name, 2 + name, (1 << name + 1) - 1, first=True) for name in (1, 2, 3, 4))
    cells |= gradient_cells(bench, bench.run(job(padded, batch=4)))
    judge(cells)


def falsify_padding_changes_nothing(bench: Bench) -> None:
    cells: Cells = {}
    for accumulate in (1, 2):
        cells |= gradient_cells(bench, bench.run(job(equal(4), accumulate=accumulate, pad_multiple=16)))
        plain, padded = (bench.run(job(unequal(4), accumulate=accumulate, pad_multiple=m)) for m in (None, 16))
        name, counts = f"unequal examples, accumulation {accumulate}", [len(run.steps) for run in (plain, padded)]
        if counts[0] != counts[1]:
            cells[name] = Cell(padded, f"padded to 16, {counts[1]} steps are taken, not {counts[0]}")
        elif padded.width <= plain.width:
            hint = "pad to `job.pad_multiple`, or name `padding` as missing in `features`"
            untried = f"with `job.pad_multiple` 16, no row is longer than the {plain.width} tokens without it: {hint}"
            cells[name] = Cell(padded, untried=untried)
        for k, (a, b) in enumerate(zip(plain.steps, padded.steps, strict=False), 1):
            off = difference(b.gradient, {name: each for name, each in a.gradient.items() if each is not None})
            why = f"padded to 16, the gradient differs by {off:.2g}" if off > max(bench.trainer.tolerance, 1e-7) else ""
            cells[f"{name}, step {k}"] = Cell(padded, why)
    judge(cells)


def falsify_empty_micro_batch_changes_nothing(bench: Bench) -> None:
    cells: Cells = {}
    for seed in (1, 2):
        run = bench.run(job((*unequal(3), example(4, 5, 0)), batch=1, accumulate=4, seed=seed))
        cells |= gradient_cells(bench, run)
    judge(cells)
    if 4 not in consumed(run):
        raise SkipTest("the example without scored tokens is never used")


def falsify_empty_step_has_no_gradient(bench: Bench) -> None:
    run, cells = bench.run(job((*unequal(2), example(3, 5, 0)), batch=1, epochs=2)), Cells()
    for k, step in enumerate(run.steps, 1):
        longest = norm(step.gradient) if step.names == (3,) else 0.0
        why = f"nothing is scored, and the gradient has norm {longest:.6g}" if longest else ""
        if not all(bool(each.isfinite().all()) for each in step.weights.values()):
            why = f"after {step.names} weights are not finite"
        cells[f"step {k}"] = Cell(run, why, _of_empty_step(run, k - 1) if why else ())
    judge(cells)
    if 3 not in consumed(run):
        raise SkipTest("the example without scored tokens is never used")


def _of_empty_step(run: Run, k: int) -> tuple[str, ...]:
    """Return the known mistakes that give the gradient of a step without scored tokens, at index k."""
    step = run.steps[k]
    before = {n: torch.zeros_like(START[n]) if g is None else g for n, g in run.steps[k - 1].gradient.items()}
    known = {
        "the gradient of the step before": k > 0 and difference(step.gradient, before) < CLOSE,
        "0/0: a mean over no tokens": any(g is not None and bool(g.isnan().any()) for g in step.gradient.values()),
    }
    return tuple(name for name, holds in known.items() if holds)


def falsify_frozen_parameters_stay(bench: Bench) -> None:
    cells: Cells = {}
    for optimizer in ("sgd", "adamw"):
        run = bench.run(job(unequal(4), frozen=True, optimizer=optimizer, accumulate=2))
        moved = different({"embed.weight": run.weights["embed.weight"]}, {"embed.weight": START["embed.weight"]})
        gradient = [step.gradient["embed.weight"] for step in run.steps]
        causes = (
            "trained like the others: it has a gradient"
            if any(map(_has_gradient, gradient))
            else "changed without a gradient, as by a weight decay",
        )
        still = not different(run.weights, START)
        untried = "no parameter changes, so it is not seen whether a frozen one would" if still else ""
        cells[optimizer] = Cell(
            run, f"a frozen parameter has changed: {moved}" if moved else "", causes, untried=untried
        )
    judge(cells)


def falsify_first_update_changes_every_parameter(bench: Bench) -> None:
    cells: Cells = {}
    for optimizer in ("sgd", "adamw"):
        run = bench.run(job(unequal(4), optimizer=optimizer, accumulate=2))
        require_rate(bench, run)
        after = run.steps[0].weights if run.steps else START
        same = [name for name, each in START.items() if torch.equal(after[name], each)]
        fault = f"the first update does not change {', '.join(same)}" if same else ""
        cells[optimizer] = Cell(run, fault, _of_unchanged(run, same))
    judge(cells)


def _of_unchanged(run: Run, names: Sequence[str]) -> tuple[str, ...]:
    """Return why the first update changes none of the parameters with these names."""
    step = run.steps[0] if run.steps else None
    if step is None:
        return ("a run without a step",)
    known = {
        "not in the optimizer": not any(name in step.rates for name in names),
        "without a gradient, as if detached": not any(_has_gradient(step.gradient[name]) for name in names),
        "of a step with the rate 0": not any(step.rates.get(name, 1.0) for name in names),
    }
    return tuple(name for name, holds in known.items() if holds)


def _has_gradient(gradient: Tensor | None) -> bool:
    return gradient is not None and bool(gradient.any())


def falsify_optimizer_holds_the_trained_parameters(bench: Bench) -> None:
    cells: Cells = {}
    for frozen in (False, True) if not bench.missing("", ("freeze",)) else (False,):
        run = bench.run(job(unequal(4), frozen=frozen, optimizer="adamw", accumulate=2))
        if not run.steps:
            raise SkipTest("the run takes no step")
        held, wanted = set(run.steps[0].rates), {name for name in START if not frozen or name != "embed.weight"}
        fault = f"the optimizer holds {sorted(held)}, and {sorted(wanted)} are to be trained" if held != wanted else ""
        known = {HOLDS_FROZEN: held - wanted, "left out of the optimizer ({})": wanted - held}
        causes = tuple(what.format(", ".join(sorted(names))) for what, names in known.items() if names)
        cells["embedding frozen" if frozen else "nothing frozen"] = Cell(run, fault, causes)
    judge(cells)
