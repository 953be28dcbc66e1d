"""Claims about gradients: what they are a mean of, masks, padding, frozen parameters, losses that are not finite."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise, product
from typing import Any, Unpack, cast
from unittest import SkipTest

import torch
from hypothesis import assume, given
from hypothesis import example as first
from torch import Tensor

from pv.equations.causes import difference
from pv.equations.causes import ratio as ratio_of
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.cases import EVALUATED, EVALUATING, Shape, equal, example, shapes, unequal
from pv.suites.training_loop.claims.checks import (
    Case,
    Cases,
    gradient_cases,
    judge,
    require,
    require_rate,
)
from pv.suites.training_loop.claims.data import consumed
from pv.suites.training_loop.claims.losses import TOLERANCE, evaluation_case
from pv.suites.training_loop.diagnosis import different
from pv.suites.training_loop.job import Example, Job
from pv.suites.training_loop.oracle import CLOSE, START, equal_arrays, equal_to, norm, sums, token_mean
from pv.suites.training_loop.probe import NAMES, PAD, TEXT, VOCABULARY, Masked, Step, recorder
from pv.suites.training_loop.run import Run

HOLDS_FROZEN = (
    "a frozen parameter in the optimizer ({}); if the loop freezes none, its adapter names `freeze` as missing"
)

OTHER_LOSS = (
    "; if the loss of the loop is not the mean cross-entropy of its examples, as with label smoothing or a "
    "contrastive loss, the adapter names TL-GRAD-001, TL-LOG-001 and TL-EVAL-001 in `not_claimed`"
)


def falsify_equal_full_windows(bench: Bench) -> None:
    cases: Cases = {}
    # Equal examples in full windows: even a loop that averages the means of micro-batches is right here.
    for batch, accumulate in product((1, 2), (1, 2, 3)):
        run = bench.run(Job(train=equal(2 * batch * accumulate), batch=batch, accumulate=accumulate, epochs=2))
        cases |= gradient_cases(bench, run)
    judge(cases, OTHER_LOSS)


DISTINGUISHING = {"train": unequal(10), "batch": 2, "accumulate": 3, "epochs": 2}
"""A job in which no two known mistakes give the same gradient; it is tried before the drawn jobs."""


def unequal_cases(bench: Bench, shape: Shape, which: Callable[[int, int], bool]) -> Cases:
    """Return a case of the gradients of a job, and one of the masks if the model is given some."""
    run = bench.run(Job(**shape))
    cases = gradient_cases(bench, run, which)
    if cases or wrong_mask(run)[0]:
        cases[f"the masks of {len(run.job.train)} examples"] = Case(run, *wrong_mask(run))
    return cases


def _micro_batches(shape: Shape) -> int:
    """Return the number of micro-batches of an epoch."""
    return -(-len(shape["train"]) // shape["batch"])


@first(**DISTINGUISHING)
@given(**shapes(2))
def falsify_unequal_full_windows(bench: Bench, **shape: Unpack[Shape]) -> None:
    # At least one full window; the short ones are another claim.
    assume(_micro_batches(shape) >= shape["accumulate"])
    judge(unequal_cases(bench, shape, lambda taken, planned: taken == planned))


def falsify_equal_partial_windows(bench: Bench) -> None:
    cases: Cases = {}
    for batch, n, accumulate in ((1, 3, 2), (1, 4, 3), (1, 5, 3), (2, 6, 2), (2, 2, 2), (1, 2, 4)):
        run = bench.run(Job(train=equal(n), batch=batch, accumulate=accumulate, epochs=2))
        cases |= gradient_cases(bench, run, lambda taken, planned: taken < planned)
    judge(cases)


@first(**DISTINGUISHING)
@given(**shapes(2))
def falsify_unequal_partial_windows(bench: Bench, **shape: Unpack[Shape]) -> None:
    # At least one short window, else there is nothing to judge.
    assume(_micro_batches(shape) % shape["accumulate"])
    judge(unequal_cases(bench, shape, lambda taken, planned: taken < planned))


def falsify_first_label_is_not_counted(bench: Bench) -> None:
    train = tuple(example(name, 4, 0b111, first=True) for name in (1, 2, 3, 4))
    cases: Cases = {}
    for batch, accumulate in ((1, 1), (2, 1), (2, 2)):
        cases |= gradient_cases(bench, bench.run(Job(train=train, batch=batch, accumulate=accumulate)))
    # Rows of different length in one batch: with padding on the left, a set first label would be predicted.
    padded = tuple(example(name, 2 + name, (1 << name + 1) - 1, first=True) for name in (1, 2, 3, 4))
    cases |= gradient_cases(bench, bench.run(Job(train=padded, batch=4)))
    judge(cases)


def falsify_padding_changes_nothing(bench: Bench) -> None:
    cases: Cases = {}
    for accumulate in (1, 2):
        cases |= gradient_cases(bench, bench.run(Job(train=equal(4), accumulate=accumulate, pad_multiple=16)))
        plain, padded = (bench.run(Job(train=unequal(4), accumulate=accumulate, pad_multiple=m)) for m in (None, 16))
        name, counts = f"unequal examples, accumulation {accumulate}", [len(run.steps) for run in (plain, padded)]
        if counts[0] != counts[1]:
            cases[name] = Case(padded, f"padded to 16, {counts[1]} steps are taken, not {counts[0]}")
        elif padded.width <= plain.width:
            hint = "pad to `job.pad_multiple`, or name `padding` as missing in `features`"
            untried = f"with `job.pad_multiple` 16, no row is longer than the {plain.width} tokens without it: {hint}"
            cases[name] = Case(padded, untried=untried)
        for k, (a, b) in enumerate(zip(plain.steps, padded.steps, strict=False), 1):
            off = difference(b.gradient, {name: tensor for name, tensor in a.gradient.items() if tensor is not None})
            why = f"padded to 16, the gradient differs by {off:.2g}" if off > max(bench.trainer.tolerance, 1e-7) else ""
            cases[f"{name}, step {k}"] = Case(padded, why)
    judge(cases)


def falsify_empty_micro_batch_changes_nothing(bench: Bench) -> None:
    cases: Cases = {}
    for seed in (1, 2):
        run = bench.run(Job(train=(*unequal(3), example(4, 5, 0)), batch=1, accumulate=4, seed=seed))
        cases |= gradient_cases(bench, run)
    judge(cases)
    if 4 not in consumed(run):
        raise SkipTest("the example without scored tokens is never used")


def falsify_empty_step_has_no_gradient(bench: Bench) -> None:
    run, cases = bench.run(Job(train=(*unequal(2), example(3, 5, 0)), batch=1, epochs=2)), Cases()
    for k, step in enumerate(run.steps, 1):
        longest = norm(step.gradient) if step.names == (3,) else 0.0
        why = f"nothing is scored, and the gradient has norm {longest:.6g}" if longest else ""
        if not all(bool(weight.isfinite().all()) for weight in step.weights.values()):
            why = f"after {step.names} weights are not finite"
        cases[f"step {k}"] = Case(run, why, _of_empty_step(run, k - 1) if why else ())
    judge(cases)
    if 3 not in consumed(run):
        raise SkipTest("the example without scored tokens is never used")


def _of_empty_step(run: Run, k: int) -> tuple[str, ...]:
    """Return the known mistakes that give the gradient of a step without scored tokens, at index k."""
    step = run.steps[k]
    before = {n: torch.zeros_like(START[n]) if g is None else g for n, g in run.steps[k - 1].gradient.items()}
    mistakes = {
        "the gradient of the step before": k > 0 and difference(step.gradient, before) < CLOSE,
        "0/0: a mean over no tokens": any(g is not None and bool(g.isnan().any()) for g in step.gradient.values()),
    }
    return tuple(name for name, holds in mistakes.items() if holds)


def falsify_frozen_parameters_stay(bench: Bench) -> None:
    cases: Cases = {}
    for optimizer in ("sgd", "adamw"):
        run = bench.run(Job(train=unequal(4), frozen=True, optimizer=optimizer, accumulate=2))
        # AdamW decays a parameter even without a gradient, so both optimizers are tried.
        moved = different({"embed.weight": run.weights["embed.weight"]}, {"embed.weight": START["embed.weight"]})
        gradient = [step.gradient["embed.weight"] for step in run.steps]
        causes = (
            "trained like the others: it has a gradient"
            if any(map(_has_gradient, gradient))
            else "changed without a gradient, as by a weight decay",
        )
        still = not different(run.weights, START)
        untried = "no parameter changes, so it is not seen whether a frozen one would" if still else ""
        cases[optimizer] = Case(
            run, f"a frozen parameter has changed: {moved}" if moved else "", causes, untried=untried
        )
    judge(cases)


def falsify_first_update_changes_every_parameter(bench: Bench) -> None:
    cases: Cases = {}
    for optimizer in ("sgd", "adamw"):
        run = bench.run(Job(train=unequal(4), optimizer=optimizer, accumulate=2))
        require_rate(bench, run)
        after = run.steps[0].weights if run.steps else START
        same = [name for name, tensor in START.items() if torch.equal(after[name], tensor)]
        fault = f"the first update does not change {', '.join(same)}" if same else ""
        cases[optimizer] = Case(run, fault, _of_unchanged(run, same))
    judge(cases)


def _of_unchanged(run: Run, names: Sequence[str]) -> tuple[str, ...]:
    """Return why the first update changes none of the parameters with these names."""
    step = run.steps[0] if run.steps else None
    if step is None:
        return ("a run without a step",)
    mistakes = {
        "not in the optimizer": not any(name in step.rates for name in names),
        "without a gradient, as if detached": not any(_has_gradient(step.gradient[name]) for name in names),
        "of a step with the rate 0": not any(step.rates.get(name, 1.0) for name in names),
    }
    return tuple(name for name, holds in mistakes.items() if holds)


def _has_gradient(gradient: Tensor | None) -> bool:
    return gradient is not None and bool(gradient.any())


def falsify_optimizer_holds_the_trained_parameters(bench: Bench) -> None:
    cases: Cases = {}
    for frozen in (False, True) if "freeze" not in bench.lacks else (False,):
        run = bench.run(Job(train=unequal(4), frozen=frozen, optimizer="adamw", accumulate=2))
        if not run.steps:
            raise SkipTest("the run takes no step")
        held, expected = set(run.steps[0].rates), {name for name in START if not frozen or name != "embed.weight"}
        fault = (
            f"the optimizer holds {sorted(held)}, and {sorted(expected)} are to be trained" if held != expected else ""
        )
        mistakes = {HOLDS_FROZEN: held - expected, "left out of the optimizer ({})": expected - held}
        causes = tuple(cause.format(", ".join(sorted(names))) for cause, names in mistakes.items() if names)
        cases["embedding frozen" if frozen else "nothing frozen"] = Case(run, fault, causes)
    judge(cases)


CROP = 4


def ending(name: int, length: int, end: int) -> Example:
    """Return an example whose tokens are all scored, with an end token as the last one."""
    row = example(name, length, (1 << length - 1) - 1)
    return Example((*row.tokens[:-1], end), (*row.labels[:-1], end))


def falsify_end_token_is_scored(bench: Bench) -> None:
    end = int(cast("Any", bench.trainer).end)
    if not 0 <= end < VOCABULARY:
        raise SkipTest(f"the end token {end} is not below {VOCABULARY}, the number of tokens of the suite's model")
    # The first token names the example, so the end token must not be a name.
    names = [name for name in range(*NAMES) if name != end]
    train = tuple(ending(name, length, end) for name, length in zip(names, (5, 3, 5, 4, 5, 2, 5, 5), strict=False))
    cases: Cases = {}
    for batch, accumulate in product((1, 2), (1, 2)):
        cases |= gradient_cases(bench, bench.run(Job(train=train, batch=batch, accumulate=accumulate)))
    judge(cases)


def falsify_long_rows_are_cropped(bench: Bench) -> None:
    train, cases = (*unequal(8), example(9, 8, 0b1110000)), Cases()
    for accumulate in (1, 3):
        cases |= gradient_cases(bench, bench.run(Job(train=train, batch=3, accumulate=accumulate, crop=CROP)))
    judge(cases)


SPOILT_CASES = ((1, 1, math.nan), (1, 0, math.inf), (2, 2, math.nan), (2, 5, math.inf))
"""Micro-batches of a window, and the one, from 0, whose loss is NaN or infinite."""
WINDOWS = 4
SPOILT = "a step with a loss that is not finite"


def falsify_loss_that_is_not_finite(bench: Bench) -> None:
    cases: Cases = {}
    for size, at, loss in SPOILT_CASES:
        if size == 1 or "accumulate" not in bench.lacks:
            plain = Job(train=equal(WINDOWS * size), batch=1, accumulate=size)
            name = f"accumulation {size}, loss {loss} in micro-batch {at + 1}"
            cases[name] = _spoilt_case(bench, bench.run(plain), replace(plain, not_finite=((at, loss),)), at)
    judge(cases)


def _spoilt_case(bench: Bench, plain: Run, spoiled: Job, at: int) -> Case:
    """Return the fault of a run with a loss that is not finite, compared with a run whose losses are finite.

    It may end with an error, if no micro-batch follows a step with such a loss.
    """
    try:
        run = bench.run(spoiled)
    except SkipTest:
        raise
    # Raising is right, if it comes before the next step.
    except (Exception, SystemExit):  # whatever a trainer raises for such a loss; scripts call `sys.exit`
        steps, pending = recorder().steps, recorder().pending
        k, broken = next(_spoiled(steps), (len(steps), []))
        late = k < len(steps) - (not pending)
        return Case(plain, f"{_after(k, broken)}, and the error is raised later", (SPOILT,)) if late else Case(plain)
    batches = [batch for step in run.steps for batch in step.batches] + [*run.leftover]
    # The loop stopped before the bad micro-batch, so nothing was tried.
    if at >= len(batches):
        raise SkipTest(f"micro-batch {at + 1}, whose loss is not finite, was not seen in training mode")
    for k, broken in _spoiled(run.steps):
        return Case(run, _after(k, broken), (SPOILT,))
    # Find the step whose window contains the micro-batch; it may have been left out.
    ends = [sum(len(step.batches) for step in run.steps[: k + 1]) for k in range(len(run.steps))]
    if not ends or at >= ends[-1]:  # no step after it
        return Case(run)
    index = next(k for k, end in enumerate(ends) if end > at)
    first = ends[index] - len(run.steps[index].batches)
    finite_batches = [batch for i, batch in enumerate(run.steps[index].batches, first) if i != at]
    return _kept_step_case(bench, run, index, finite_batches)


def _spoiled(steps: Sequence[Step]) -> Iterator[tuple[int, list[str]]]:
    """Yield the index of each step after which weights are not finite, and their names."""
    for k, step in enumerate(steps):
        if broken := [name for name, weight in step.weights.items() if not weight.isfinite().all()]:
            yield k, broken


def _after(k: int, names: Sequence[str]) -> str:
    return f"after step {k + 1}, {', '.join(names)} {'is' if len(names) == 1 else 'are'} not finite"


def _kept_step_case(bench: Bench, run: Run, k: int, finite_batches: Sequence[tuple[int, ...]]) -> Case:
    """Return whether the step at index k has the gradient of the last ones of the micro-batches with a finite loss.

    If the step of the window was left out, those after it alone are of this step.
    """
    step = run.steps[k]
    # A loop may drop the window up to the bad micro-batch, or the bad micro-batch alone: both are right.
    for start in range(len(finite_batches)):
        if difference(step.gradient, run.sums(k, chain(*finite_batches[start:])).mean) < bench.trainer.tolerance:
            return Case(run)
    fault = (
        f"step {k + 1} has a gradient of norm {norm(step.gradient):.6g}, which is not that of the token mean over its "
        "micro-batches with a finite loss"
    )
    return Case(run, fault, _causes_of_kept_step(bench, run, k, finite_batches))


def _causes_of_kept_step(bench: Bench, run: Run, k: int, finite_batches: Sequence[tuple[int, ...]]) -> tuple[str, ...]:
    if not finite_batches:
        return ("a step for a window without a finite loss, which is counted",)
    means = (run.sums(k, chain(*finite_batches[start:])).mean for start in range(len(finite_batches)))
    ratios = [ratio_of(run.steps[k].gradient, mean, bench.trainer.tolerance) for mean in means]
    part = any(ratio is not None and 0 < ratio < 1 for ratio in ratios)
    return ("divided by the tokens of all micro-batches, also of the one that is left out",) if part else ()


SMOOTHING = 0.2


def falsify_training_with_smoothing(bench: Bench) -> None:
    cases: Cases = {}
    for accumulate in (1, 2):
        run = bench.run(Job(train=equal(8), accumulate=accumulate, smoothing=SMOOTHING))
        for k in range(len(run.steps)):
            cases[f"accumulation {accumulate}, step {k + 1}"] = _smoothing_case(bench, run, k)
    judge(cases)


def _smoothing_case(bench: Bench, run: Run, k: int) -> Case:
    actual = run.steps[k].gradient
    off = difference(actual, run.sums(k, smoothing=SMOOTHING).mean)
    if off < bench.trainer.tolerance:
        return Case(run)
    smoothings = {"that without smoothing": 0.0, "that with twice the smoothing": 2 * SMOOTHING}
    mistakes = {name: run.sums(k, smoothing=smoothing).mean for name, smoothing in smoothings.items()}
    causes = equal_arrays(actual, mistakes, bench.trainer.tolerance)
    fault = f"the gradient is off by {off:.2g} of the largest element from that of the mean with smoothed labels"
    return Case(run, fault, causes)


def falsify_evaluation_without_smoothing(bench: Bench) -> None:
    run, cases = bench.run(replace(EVALUATING, eval_batch=len(EVALUATED), smoothing=SMOOTHING)), Cases()
    require(run.evaluations, "`evaluations`", "and `job.evaluated` is set")
    for k, loss in run.evaluations:
        case = evaluation_case(run, k, loss)
        smoothed = token_mean([sums(run.before(k), run.job.evaluated, SMOOTHING)])
        causes = equal_to(loss, {"that with label smoothing, as in training": smoothed}, TOLERANCE)
        cases[f"step {k}"] = Case(run, case.fault, (*causes, *case.causes)) if case.fault else case
    judge(cases)


Right = Sequence[float | None]
"""What a mask has at each position of a row; None where it may have either."""


def wrong_mask(run: Run) -> tuple[str, tuple[str, ...]]:
    """Return the fault of the first wrong mask of a run and the known mistakes that give it; "" and () for none.

    Masks of bools that are True only for padding are not judged: PyTorch's `key_padding_mask` is such a mask. Nor are
    those of a run in which a row has several examples: they may be the numbers of these.
    """
    if any(_packs(run, row.ids) for row in run.masked):
        return "", ()
    added = all(row.ids[:1] == [PAD] for row in run.masked)
    judged = [(row, right) for row in run.masked if set(right := _right_mask(run, row.ids, added)) != {None}]
    wrong = [(row, right) for row, right in judged if any(_differences(row, right))]
    if not wrong or all(row.of_bools and all(_differences(row, right)) for row, right in judged):
        return "", ()
    mistakes = {
        "a mask of ones": all(all(row.mask) for row, _ in wrong),
        "the inverse of the mask": all(all(_differences(row, right)) for row, right in wrong),
    }
    row, right = wrong[0]
    shown = ["".join("?" if value is None else str(int(value)) for value in mask) for mask in (row.mask, right)]
    fault = f"for the tokens {row.ids}, the model is given the mask {shown[0]}, not {shown[1]} (? is either)"
    return fault, tuple(name for name, is_it in mistakes.items() if is_it)


def _packs(run: Run, ids: list[int]) -> bool:
    """Return whether a row has several examples: names that text follows."""
    names = {example.name for example in run.job.train}
    return sum(a in names and b >= TEXT[0] for a, b in pairwise(ids)) > 1


def _right_mask(run: Run, ids: list[int], added: bool) -> Right:
    """Return the right mask of a row; all None if the row is no example of the run.

    Positions from the last token on are None, too: no causal model lets an earlier token see them. So is the position
    before the first token, if the loop may have added one of its own there: no row begins with its first token.
    """
    start = next((i for i, token in enumerate(ids) if token != PAD), len(ids))
    tokens = next((example.tokens for example in run.job.train if [example.name] == ids[start : start + 1]), ())
    last = start + len(tokens) - 1
    if not tokens or tuple(ids[start:last]) != tokens[:-1]:
        return [None] * len(ids)
    return [None if (added and i == start - 1) or i >= last else float(i >= start) for i in range(len(ids))]


def _differences(row: Masked, right: Right) -> list[bool]:
    """Return whether the mask is wrong, for each position that has a right one."""
    return [a != b for a, b in zip(row.mask, right, strict=True) if b is not None]
