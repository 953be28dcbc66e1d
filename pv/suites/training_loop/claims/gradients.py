"""Claims about the gradient that the optimizer gets: that of the mean over the scored tokens of its window."""

import math
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import torch
from hypothesis import given
from torch import Tensor

from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import equal, example, job, shapes, unequal
from pv.suites.training_loop.claims.checks import Cell, Cells, gradient_cells, judge, refute
from pv.suites.training_loop.diagnosis import different
from pv.suites.training_loop.mistakes import difference
from pv.suites.training_loop.oracle import START, norm, sums


def falsify_equal_full_windows(bench: Bench) -> None:
    cells: Cells = {}
    for batch, accumulate in product((1, 2), (1, 2, 3)):
        run = bench.run(job(equal(2 * batch * accumulate), batch=batch, accumulate=accumulate, epochs=2))
        cells |= gradient_cells(bench, run)
    judge(cells)


def unequal_cells(bench: Bench, shape: Mapping[str, Any], which: Callable[[int, int], bool]) -> Cells:
    """Return the cells of a drawn job, and of one in which no two known mistakes give the same gradient."""
    telling = bench.run(job(unequal(10), batch=2, accumulate=3, epochs=2))
    return gradient_cells(bench, bench.run(job(**shape)), which) | gradient_cells(bench, telling, which)


@given(**shapes(2))
def falsify_unequal_full_windows(bench: Bench, **shape: Any) -> None:
    judge(unequal_cells(bench, shape, lambda taken, planned: taken == planned))


def falsify_equal_partial_windows(bench: Bench) -> None:
    cells: Cells = {}
    for batch, n, accumulate in ((1, 3, 2), (1, 4, 3), (1, 5, 3), (2, 6, 2), (2, 2, 2), (1, 2, 4)):
        run = bench.run(job(equal(n), batch=batch, accumulate=accumulate, epochs=2))
        cells |= gradient_cells(bench, run, lambda taken, planned: taken < planned)
    judge(cells)


@given(**shapes(2))
def falsify_unequal_partial_windows(bench: Bench, **shape: Any) -> None:
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
        for k, (a, b) in enumerate(zip(plain.steps, padded.steps, strict=True), 1):
            off = difference(b.gradient, {name: each for name, each in a.gradient.items() if each is not None})
            why = f"padded to 16, the gradient differs by {off:.2g}" if off > max(bench.trainer.tolerance, 1e-7) else ""
            cells[f"unequal examples, accumulation {accumulate}, step {k}"] = Cell(padded, why)
    judge(cells)


def falsify_empty_micro_batch_changes_nothing(bench: Bench) -> None:
    cells: Cells = {}
    for seed in (1, 2):
        run = bench.run(job((*unequal(3), example(4, 5, 0)), batch=1, accumulate=4, seed=seed))
        cells |= gradient_cells(bench, run)
    judge(cells)


def falsify_empty_step_has_no_gradient(bench: Bench) -> None:
    run, cells = bench.run(job((*unequal(2), example(3, 5, 0)), batch=1, epochs=2)), Cells()
    for k, step in enumerate(run.steps, 1):
        longest = norm(step.gradient) if step.names == (3,) else 0.0
        why = f"nothing is scored, and the gradient has norm {longest:.6g}" if longest else ""
        if not all(bool(each.isfinite().all()) for each in step.weights.values()):
            why = f"after {step.names} weights are not finite"
        cells[f"step {k}"] = Cell(run, why)
    judge(cells)


def falsify_frozen_parameters_stay(bench: Bench) -> None:
    cells: Cells = {}
    for optimizer in ("sgd", "adamw"):
        run = bench.run(job(unequal(4), frozen=True, optimizer=optimizer, accumulate=2))
        moved = different({"embed.weight": run.weights["embed.weight"]}, {"embed.weight": START["embed.weight"]})
        cells[optimizer] = Cell(run, f"a frozen parameter has changed: {moved}" if moved else "")
    judge(cells)


def falsify_first_update_changes_every_parameter(bench: Bench) -> None:
    cells: Cells = {}
    for optimizer in ("sgd", "adamw"):
        run = bench.run(job(unequal(4), optimizer=optimizer, accumulate=2))
        after = run.steps[0].weights if run.steps else START
        same = [name for name, each in START.items() if torch.equal(after[name], each)]
        cells[optimizer] = Cell(run, f"the first update does not change {', '.join(same)}" if same else "")
    judge(cells)


def falsify_optimizer_holds_the_trained_parameters(bench: Bench) -> None:
    cells: Cells = {}
    for frozen in (False, True):
        run = bench.run(job(unequal(4), frozen=frozen, optimizer="adamw", accumulate=2))
        held, wanted = set(run.steps[0].rates), {name for name in START if not frozen or name != "embed.weight"}
        fault = f"the optimizer holds {sorted(held)}, and {sorted(wanted)} are to be trained" if held != wanted else ""
        cells["embedding frozen" if frozen else "nothing frozen"] = Cell(run, fault)
    judge(cells)


def falsify_clipping_scales_the_window(bench: Bench) -> None:
    cells: Cells = {}
    for accumulate, limit in product((1, 2), (0.3, 3.0)):
        run = bench.run(job(equal(8), accumulate=accumulate, clip=limit, epochs=2))
        for k, step in enumerate(run.steps):
            right = sums(run.before(k), run.named(step.names))
            length = norm(right.gradient) / right.tokens
            scale = min(1.0, limit / length) / right.tokens
            off = difference(step.gradient, {name: each * scale for name, each in right.gradient.items()})
            why = (
                f"a gradient of norm {length:.6g}, clipped at {limit:g}, arrives with norm {norm(step.gradient):.6g}, "
                f"and differs by {off:.2g} of its largest element"
            )
            plain = {name: each / right.tokens for name, each in right.gradient.items()}
            causes = _causes_of_clipping(step.gradient, plain)
            cells[f"clip {limit:g}, accumulation {accumulate}, step {k + 1}"] = (
                Cell(run, why, causes) if off > 1e-4 else Cell(run)
            )
    judge(cells)


def _causes_of_clipping(found: Mapping[str, Tensor | None], plain: Mapping[str, Tensor]) -> tuple[str, ...]:
    left = [name for name, each in plain.items() if difference(found, {name: each}) < 1e-4]
    if len(left) == len(plain):
        return ("the gradient before the clipping: it is clipped after the step, or not at all",)
    return (
        (f"clipped, but for {', '.join(left)}, as where only some are handed to it or each is clipped alone",)
        if left
        else ()
    )


def falsify_clipping_of_unscaled_gradients(bench: Bench) -> None:
    cells: Cells = {}
    for accumulate, limit in product((1, 2), (0.3, None)):
        run = bench.run(job(equal(8), accumulate=accumulate, clip=limit, scaler=True))
        for k, step in enumerate(run.steps):
            right = sums(run.before(k), run.named(step.names))
            length, found = norm(right.gradient) / right.tokens, norm(step.gradient)
            scale = min(1.0, (limit or math.inf) / length) / right.tokens
            off = difference(step.gradient, {name: each * scale for name, each in right.gradient.items()})
            fault = f"a gradient of norm {length:.6g}, clipped at {limit}, arrives with norm {found:.6g}"
            cells[f"clip {limit}, accumulation {accumulate}, step {k + 1}"] = (
                Cell(run, fault, _scaled(limit, length, found)) if off > 1e-4 else Cell(run)
            )
    judge(cells)


def _scaled(limit: float | None, length: float, found: float) -> tuple[str, ...]:
    """Return which mistake with the scale of a gradient scaler gives a norm."""
    small = limit is not None and 0 < found < min(limit, length) / 100
    large = found > 100 * length
    return (
        *(("clipped before it is divided by the scale (`unscale_` is called after the clipping)",) if small else ()),
        *(("not divided by the scale",) if large else ()),
    )


def falsify_logged_norm_is_before_clipping(bench: Bench) -> None:
    run = bench.run(job(equal(8), accumulate=2, clip=0.3))
    found, cells = {int(row["step"]): row["norm"] for row in run.logs if "norm" in row}, Cells()
    if len(found) != len(run.steps):
        refute(f"norms are logged for the steps {sorted(found)}, not for {len(run.steps)} steps", run)
    for k, step in enumerate(run.steps, 1):
        right = sums(run.before(k - 1), run.named(step.names))
        wanted = norm(right.gradient) / right.tokens
        after = "; it is the norm after clipping" if abs(found[k] - norm(step.gradient)) < 1e-5 else ""
        why = f"{found[k]:.6g} is logged, the norm is {wanted:.6g}{after}"
        cells[f"step {k}"] = Cell(run, why if abs(found[k] - wanted) > 1e-5 * max(1.0, wanted) else "")
    judge(cells)
