"""Claims about gradients: the token mean, masks, padding, frozen parameters, losses that are not finite."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise, product
from typing import Any, Unpack, cast
from unittest import SkipTest

import torch
from hypothesis import assume, given
from hypothesis import example as explicit_example
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
from pv.suites.training_loop.claims.losses import EVALUATION_TOLERANCE, evaluation_case
from pv.suites.training_loop.diagnosis import differing_tensors
from pv.suites.training_loop.job import Example, Job
from pv.suites.training_loop.oracle import CLOSE, START, matching_arrays, matching_numbers, norm, sums, token_mean
from pv.suites.training_loop.probe import NAMES, PAD, TEXT, VOCABULARY, MaskedRow, Step, recorder
from pv.suites.training_loop.run import Run

HOLDS_FROZEN = (
    "a frozen parameter in the optimizer ({}); if the loop freezes no parameter, name `freeze` as missing in `features`"
)
OTHER_LOSS_HINT = (
    "; if the loss of the loop is not the mean cross-entropy of its examples, as with label smoothing or a "
    "contrastive loss, name TL-GRAD-001, TL-LOG-001 and TL-EVAL-001 in `not_claimed`"
)


def falsify_equal_full_windows(bench: Bench) -> None:
    cases: Cases = {}
    # With equal examples in full windows, the mean of the micro-batches' means is correct as well.
    for batch, accumulate in product((1, 2), (1, 2, 3)):
        run = bench.run(Job(train=equal(2 * batch * accumulate), batch=batch, accumulate=accumulate, epochs=2))
        cases |= gradient_cases(bench, run)
    judge(cases, OTHER_LOSS_HINT)


DISTINGUISHING = {"train": unequal(10), "batch": 2, "accumulate": 3, "epochs": 2}
"""A job in whose first step, a full window, no two known mistakes give the same gradient.

In other steps, a few do. The job is tried before the random jobs.
"""


def unequal_cases(bench: Bench, shape: Shape, selects: Callable[[int, int], bool]) -> Cases:
    """Return a case for the gradients of a job, and one for the masks with which the model is called.

    The result is {} if no step is judged and no mask is wrong.

    Args:
        bench: The bench.
        shape: The settings of the job that determine its windows.
        selects: Returns whether a step is judged. Its arguments are the actual and the planned number of micro-batches
            in the window of the step.
    """
    run = bench.run(Job(**shape))
    cases, (fault, causes) = gradient_cases(bench, run, selects), wrong_mask(run)
    if cases or fault:
        cases[f"the masks of {len(run.job.train)} examples"] = Case(run, fault, causes)
    return cases


def _micro_batches(shape: Shape) -> int:
    """Return the number of micro-batches of an epoch."""
    return -(-len(shape["train"]) // shape["batch"])


@explicit_example(**DISTINGUISHING)
@given(**shapes(2))
def falsify_unequal_full_windows(bench: Bench, **shape: Unpack[Shape]) -> None:
    # At least one full window; short windows are the subject of another claim.
    assume(_micro_batches(shape) >= shape["accumulate"])
    judge(unequal_cases(bench, shape, lambda taken, planned: taken == planned))


def falsify_equal_partial_windows(bench: Bench) -> None:
    cases: Cases = {}
    for batch, n, accumulate in ((1, 3, 2), (1, 4, 3), (1, 5, 3), (2, 6, 2), (2, 2, 2), (1, 2, 4)):
        run = bench.run(Job(train=equal(n), batch=batch, accumulate=accumulate, epochs=2))
        cases |= gradient_cases(bench, run, lambda taken, planned: taken < planned)
    judge(cases)


@explicit_example(**DISTINGUISHING)
@given(**shapes(2))
def falsify_unequal_partial_windows(bench: Bench, **shape: Unpack[Shape]) -> None:
    # At least one short window.
    assume(_micro_batches(shape) % shape["accumulate"])
    judge(unequal_cases(bench, shape, lambda taken, planned: taken < planned))


def falsify_first_label_is_not_counted(bench: Bench) -> None:
    train = tuple(example(name, 4, 0b111, first=True) for name in (1, 2, 3, 4))
    cases: Cases = {}
    for batch, accumulate in ((1, 1), (2, 1), (2, 2)):
        cases |= gradient_cases(bench, bench.run(Job(train=train, batch=batch, accumulate=accumulate)))
    # Rows of different length in one batch. With padding on the left, the padding predicts the first labels.
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
            cases[name] = Case(padded, f"with padding to 16, {counts[1]} steps are taken, not {counts[0]}")
        elif padded.width <= plain.width:
            hint = "pad to `job.pad_multiple`, or name `padding` as missing in `features`"
            untried = f"with `job.pad_multiple` 16, no row is longer than {plain.width} tokens, as without it: {hint}"
            cases[name] = Case(padded, untried=untried)
        for k, (a, b) in enumerate(zip(plain.steps, padded.steps, strict=False), 1):
            off = difference(b.gradient, {name: tensor for name, tensor in a.gradient.items() if tensor is not None})
            allowed = max(bench.trainer.tolerance, 1e-7)
            fault = f"with padding to 16, the gradient differs by {off:.2g}" if off > allowed else ""
            cases[f"{name}, step {k}"] = Case(padded, fault)
    judge(cases)


def falsify_empty_micro_batch_changes_nothing(bench: Bench) -> None:
    cases: Cases = {}
    # Example 4 has no scored tokens.
    for seed in (1, 2):
        run = bench.run(Job(train=(*unequal(3), example(4, 5, 0)), batch=1, accumulate=4, seed=seed))
        cases |= gradient_cases(bench, run)
    judge(cases)
    if 4 not in consumed(run):
        raise SkipTest("the example without scored tokens is never used")


def falsify_empty_step_has_no_gradient(bench: Bench) -> None:
    # Example 3 has no scored tokens.
    run, cases = bench.run(Job(train=(*unequal(2), example(3, 5, 0)), batch=1, epochs=2)), Cases()
    for k, step in enumerate(run.steps, 1):
        length = norm(step.gradient) if step.names == (3,) else 0.0
        fault = f"nothing is scored, and the gradient has norm {length:.6g}" if length else ""
        if not all(bool(weight.isfinite().all()) for weight in step.weights.values()):
            fault = f"after a step on the examples {list(step.names)}, weights are not finite"
        cases[f"step {k}"] = Case(run, fault, _causes_of_empty_step(run, k - 1) if fault else ())
    judge(cases)
    if 3 not in consumed(run):
        raise SkipTest("the example without scored tokens is never used")


def _causes_of_empty_step(run: Run, k: int) -> tuple[str, ...]:
    """Return the known mistakes that give the gradient of the step at index k, which has no scored tokens."""
    step = run.steps[k]
    earlier = {n: torch.zeros_like(START[n]) if g is None else g for n, g in run.steps[k - 1].gradient.items()}
    mistakes = {
        "the gradient of the step before": k > 0 and difference(step.gradient, earlier) < CLOSE,
        "0/0: a mean over no tokens": any(g is not None and bool(g.isnan().any()) for g in step.gradient.values()),
    }
    return tuple(name for name, holds in mistakes.items() if holds)


def falsify_frozen_parameters_stay(bench: Bench) -> None:
    cases: Cases = {}
    # AdamW is tried too, since its weight decay changes a parameter whose gradient is zero.
    for optimizer in ("sgd", "adamw"):
        run = bench.run(Job(train=unequal(4), frozen=True, optimizer=optimizer, accumulate=2))
        frozen = "embed.weight"
        change = differing_tensors({frozen: run.weights[frozen]}, {frozen: START[frozen]})
        has_gradient = any(_has_gradient(step.gradient[frozen]) for step in run.steps)
        causes = (
            "trained like the other parameters: it has a gradient"
            if has_gradient
            else "changed without a gradient, for example by weight decay",
        )
        trains = differing_tensors(run.weights, START)
        untried = "" if trains else "no parameter changes, so the run does not show whether a frozen one would"
        fault = f"a frozen parameter has changed: {change}" if change else ""
        cases[optimizer] = Case(run, fault, causes, untried=untried)
    judge(cases)


def falsify_first_update_changes_every_parameter(bench: Bench) -> None:
    cases: Cases = {}
    for optimizer in ("sgd", "adamw"):
        run = bench.run(Job(train=unequal(4), optimizer=optimizer, accumulate=2))
        require_rate(bench, run)
        after = run.steps[0].weights if run.steps else START
        unchanged = [name for name, tensor in START.items() if torch.equal(after[name], tensor)]
        fault = f"the first update does not change {', '.join(unchanged)}" if unchanged else ""
        cases[optimizer] = Case(run, fault, _causes_of_unchanged(run, unchanged))
    judge(cases)


def _causes_of_unchanged(run: Run, names: Sequence[str]) -> tuple[str, ...]:
    """Return the known mistakes that explain why the first update changes none of these parameters."""
    step = run.steps[0] if run.steps else None
    if step is None:
        return ("a run without a step",)
    mistakes = {
        "not in the optimizer": not any(name in step.rates for name in names),
        "without a gradient, as if detached": not any(_has_gradient(step.gradient[name]) for name in names),
        "a step with the rate 0": not any(step.rates.get(name, 1.0) for name in names),
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
        held, trained = set(run.steps[0].rates), {name for name in START if not frozen or name != "embed.weight"}
        fault = f"the optimizer holds {sorted(held)}, and must hold {sorted(trained)}" if held != trained else ""
        mistakes = {HOLDS_FROZEN: held - trained, "left out of the optimizer ({})": trained - held}
        causes = tuple(cause.format(", ".join(sorted(names))) for cause, names in mistakes.items() if names)
        cases["embedding frozen" if frozen else "nothing frozen"] = Case(run, fault, causes)
    judge(cases)


CROP = 4
"""The number of tokens to which rows are cropped."""


def example_ending_with(name: int, length: int, end: int) -> Example:
    """Return an example with all tokens scored, whose last token is the end token `end`."""
    row = example(name, length, (1 << length - 1) - 1)
    return Example((*row.tokens[:-1], end), (*row.labels[:-1], end))


def falsify_end_token_is_scored(bench: Bench) -> None:
    end = int(cast("Any", bench.trainer).end)
    if not 0 <= end < VOCABULARY:
        raise SkipTest(f"the end token {end} is not below {VOCABULARY}, the number of tokens of the suite's model")
    # The first token names the example, so the end token must not be a name.
    names = [name for name in range(*NAMES) if name != end]
    train = tuple(
        example_ending_with(name, length, end) for name, length in zip(names, (5, 3, 5, 4, 5, 2, 5, 5), strict=False)
    )
    cases: Cases = {}
    for batch, accumulate in product((1, 2), (1, 2)):
        cases |= gradient_cases(bench, bench.run(Job(train=train, batch=batch, accumulate=accumulate)))
    judge(cases)


def falsify_long_rows_are_cropped(bench: Bench) -> None:
    # In example 9, only tokens after the crop are scored.
    train, cases = (*unequal(8), example(9, 8, 0b1110000)), Cases()
    for accumulate in (1, 3):
        cases |= gradient_cases(bench, bench.run(Job(train=train, batch=3, accumulate=accumulate, crop=CROP)))
    judge(cases)


NON_FINITE_CASES = ((1, 1, math.nan), (1, 0, math.inf), (2, 2, math.nan), (2, 5, math.inf))
"""Cases of a loss that is not finite: micro-batches per window, index of the micro-batch with the loss, and loss."""
WINDOWS = 4
"""The number of windows of these cases."""
STEP_NOT_FINITE = "a step with a loss that is not finite"


def falsify_loss_that_is_not_finite(bench: Bench) -> None:
    cases: Cases = {}
    for size, bad_batch, loss in NON_FINITE_CASES:
        if size == 1 or "accumulate" not in bench.lacks:
            plain = Job(train=equal(WINDOWS * size), batch=1, accumulate=size)
            job = replace(plain, not_finite=((bad_batch, loss),))
            name = f"accumulation {size}, loss {loss} in micro-batch {bad_batch + 1}"
            cases[name] = _non_finite_case(bench, bench.run(plain), job, bad_batch)
    judge(cases)


def _non_finite_case(bench: Bench, plain: Run, job: Job, bad_batch: int) -> Case:
    """Run a job in which the loss of one micro-batch is not finite, and check what the trainer does.

    Correct trainers skip the step, leave out the micro-batch, or raise an error. The error may be raised after the
    step, but before the next micro-batch.

    Args:
        bench: The bench.
        plain: A run of the job with finite losses, for reports.
        job: The job.
        bad_batch: The index of the micro-batch whose loss is not finite.
    """
    try:
        run = bench.run(job)
    except SkipTest:
        raise
    except (Exception, SystemExit):  # trainers raise different errors for such a loss; scripts call `sys.exit`
        steps, pending = recorder().steps, recorder().pending
        k, names = next(_non_finite_weights(steps), (len(steps), []))
        # The error is in time if it is raised before the step, or directly after the step. In the second case, no later
        # step and no later micro-batch is recorded.
        in_time = k == len(steps) or (k == len(steps) - 1 and not pending)
        fault = f"{_non_finite_fault(k, names)}, and the error is raised later"
        return Case(plain) if in_time else Case(plain, fault, (STEP_NOT_FINITE,))
    batches = [batch for step in run.steps for batch in step.batches] + [*run.leftover]
    # Without a forward of the micro-batch, nothing was tried.
    if bad_batch >= len(batches):
        raise SkipTest(f"micro-batch {bad_batch + 1}, whose loss is not finite, was not seen in training mode")
    for k, names in _non_finite_weights(run.steps):
        return Case(run, _non_finite_fault(k, names), (STEP_NOT_FINITE,))
    # Find the first step after the micro-batch. Its window may contain the micro-batch, or begin after a skipped step.
    ends = [sum(len(step.batches) for step in run.steps[: k + 1]) for k in range(len(run.steps))]
    if not ends or bad_batch >= ends[-1]:  # there is no step after the micro-batch
        return Case(run)
    index = next(k for k, end in enumerate(ends) if end > bad_batch)
    first = ends[index] - len(run.steps[index].batches)
    finite_batches = [batch for i, batch in enumerate(run.steps[index].batches, first) if i != bad_batch]
    return _finite_mean_case(bench, run, index, finite_batches)


def _non_finite_weights(steps: Sequence[Step]) -> Iterator[tuple[int, list[str]]]:
    """Yield the index of each step after which weights are not finite, and the names of these weights."""
    for k, step in enumerate(steps):
        if names := [name for name, weight in step.weights.items() if not weight.isfinite().all()]:
            yield k, names


def _non_finite_fault(k: int, names: Sequence[str]) -> str:
    """Return the text that the weights with these names are not finite after the step at index k."""
    return f"after step {k + 1}, {', '.join(names)} {'is' if len(names) == 1 else 'are'} not finite"


def _finite_mean_case(bench: Bench, run: Run, k: int, finite_batches: Sequence[tuple[int, ...]]) -> Case:
    """Check that a step has the gradient of the token mean over micro-batches with a finite loss.

    Args:
        bench: The bench.
        run: The run.
        k: The index of the first step after the micro-batch whose loss is not finite.
        finite_batches: The micro-batches of this step whose loss is finite.
    """
    step = run.steps[k]
    # A loop may leave out only the micro-batch whose loss is not finite, or also the micro-batches before it (a skipped
    # step). So every suffix is accepted.
    for start in range(len(finite_batches)):
        if difference(step.gradient, run.sums(k, chain(*finite_batches[start:])).mean) < bench.trainer.tolerance:
            return Case(run)
    fault = (
        f"step {k + 1} has a gradient of norm {norm(step.gradient):.6g}, which is not the gradient of the token mean "
        "over its micro-batches with a finite loss"
    )
    return Case(run, fault, _causes_of_finite_mean(bench, run, k, finite_batches))


def _causes_of_finite_mean(
    bench: Bench, run: Run, k: int, finite_batches: Sequence[tuple[int, ...]]
) -> tuple[str, ...]:
    """Return the known mistakes that explain a fault of `_finite_mean_case`, whose arguments are the same."""
    if not finite_batches:
        return ("a step for a window without a finite loss",)
    means = (run.sums(k, chain(*finite_batches[start:])).mean for start in range(len(finite_batches)))
    ratios = [ratio_of(run.steps[k].gradient, mean, bench.trainer.tolerance) for mean in means]
    is_smaller = any(ratio is not None and 0 < ratio < 1 for ratio in ratios)
    return ("divided by the tokens of all micro-batches, including the one that is left out",) if is_smaller else ()


SMOOTHING = 0.2
"""The label smoothing of the jobs of the next claims."""


def falsify_training_with_smoothing(bench: Bench) -> None:
    cases: Cases = {}
    for accumulate in (1, 2):
        run = bench.run(Job(train=equal(8), accumulate=accumulate, smoothing=SMOOTHING))
        for k in range(len(run.steps)):
            cases[f"accumulation {accumulate}, step {k + 1}"] = _smoothing_case(bench, run, k)
    judge(cases)


def _smoothing_case(bench: Bench, run: Run, k: int) -> Case:
    """Compare the gradient of the step at index k with the token mean of the cross-entropy with smoothed labels."""
    actual = run.steps[k].gradient
    off = difference(actual, run.sums(k, smoothing=SMOOTHING).mean)
    if off < bench.trainer.tolerance:
        return Case(run)
    smoothings = {"the gradient without smoothing": 0.0, "the gradient with twice the smoothing": 2 * SMOOTHING}
    mistakes = {name: run.sums(k, smoothing=smoothing).mean for name, smoothing in smoothings.items()}
    causes = matching_arrays(actual, mistakes, bench.trainer.tolerance)
    fault = (
        f"the gradient is off by {off:.2g} of the largest element from the gradient of the mean with smoothed labels"
    )
    return Case(run, fault, causes)


def falsify_evaluation_without_smoothing(bench: Bench) -> None:
    run, cases = bench.run(replace(EVALUATING, eval_batch=len(EVALUATED), smoothing=SMOOTHING)), Cases()
    require(run.evaluations, "`evaluations`", "and `job.evaluated` is set")
    for k, loss in run.evaluations:
        case = evaluation_case(run, k, loss)
        smoothed = token_mean([sums(run.before(k), run.job.evaluated, SMOOTHING)])
        mistakes = {"the loss with label smoothing, as in training": smoothed}
        causes = matching_numbers(loss, mistakes, EVALUATION_TOLERANCE)
        cases[f"step {k}"] = Case(run, case.fault, (*causes, *case.causes)) if case.fault else case
    judge(cases)


CorrectMask = Sequence[float | None]
"""The correct mask of a row: 1 or 0 at each position, or None at a position where both are correct."""


def wrong_mask(run: Run) -> tuple[str, tuple[str, ...]]:
    """Return the fault of the first wrong mask of a run, and its known causes; "" and () if no mask is wrong.

    Three kinds of masks are not judged:

    1. boolean masks that are True only for padding, such as the `key_padding_mask` of PyTorch;
    2. the masks of a run in which a row contains several examples, since such a mask may number the examples;
    3. the masks of rows that are no training examples of the run.
    """
    if any(_has_several_examples(run, row.ids) for row in run.masked):
        return "", ()
    # If all rows begin with the id of padding, the loop may have added this token, and the mask may include it.
    added = all(row.ids[:1] == [PAD] for row in run.masked)
    pairs = [(row, _correct_mask(run, row.ids, added)) for row in run.masked]
    judged = [(row, correct) for row, correct in pairs if set(correct) != {None}]
    wrong = [(row, correct) for row, correct in judged if any(_differences(row, correct))]
    if not wrong or all(row.is_bool and all(_differences(row, correct)) for row, correct in judged):
        return "", ()
    mistakes = {
        "a mask of ones": all(all(row.mask) for row, _ in wrong),
        "the inverse of the mask": all(all(_differences(row, correct)) for row, correct in wrong),
    }
    row, correct = wrong[0]
    actual, expected = (
        "".join("?" if value is None else str(int(value)) for value in mask) for mask in (row.mask, correct)
    )
    fault = f"for the tokens {row.ids}, the model is given the mask {actual}, not {expected} (? is 0 or 1)"
    return fault, tuple(name for name, holds in mistakes.items() if holds)


def _has_several_examples(run: Run, ids: list[int]) -> bool:
    """Return whether a row contains several examples, that is, several names that are followed by text."""
    names = {example.name for example in run.job.train}
    return sum(a in names and b >= TEXT[0] for a, b in pairwise(ids)) > 1


def _correct_mask(run: Run, ids: list[int], added: bool) -> CorrectMask:
    """Return the correct mask of a row; None everywhere if the row is no example of the run.

    Both values are correct from the last token on, since no earlier position of a causal model sees these positions.

    Args:
        run: The run.
        ids: The token ids of the row.
        added: Whether the loop may have added its own token before the first token; both values are correct there.
    """
    start = next((i for i, token in enumerate(ids) if token != PAD), len(ids))
    tokens = next((example.tokens for example in run.job.train if [example.name] == ids[start : start + 1]), ())
    last = start + len(tokens) - 1
    if not tokens or tuple(ids[start:last]) != tokens[:-1]:
        return [None] * len(ids)
    return [None if (added and i == start - 1) or i >= last else float(i >= start) for i in range(len(ids))]


def _differences(row: MaskedRow, correct: CorrectMask) -> list[bool]:
    """Return whether the mask is wrong at each position where only one value is correct."""
    return [a != b for a, b in zip(row.mask, correct, strict=True) if b is not None]
