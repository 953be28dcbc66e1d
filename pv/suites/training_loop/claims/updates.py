"""Claims about the update of the weights from their gradient: clipping, gradient scaler, rate, weight decay."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from unittest import SkipTest

import torch
from torch import Tensor

from pv.equations.causes import difference, ratio
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.cases import SAVED, equal
from pv.suites.training_loop.claims.checks import (
    Case,
    Cases,
    judge,
    refute,
    require,
    require_forwards,
    require_rate,
    require_steps,
)
from pv.suites.training_loop.claims.resume import cut_after_every_step
from pv.suites.training_loop.diagnosis import differing_steps, logged, same_rates
from pv.suites.training_loop.features import planned_steps
from pv.suites.training_loop.job import HEAD_FACTOR, Job
from pv.suites.training_loop.mistakes import clipped_early, scale_of
from pv.suites.training_loop.oracle import START, close, matching_arrays, matching_numbers, norm, scaled
from pv.suites.training_loop.run import Run

DECAY_RATE, DECAY_TOLERANCE = 0.01, 1e-3
"""The learning rate of the step whose weight decay is measured, and the relative tolerance of the decay."""
CLIP_TOLERANCE = 1e-4
"""Relative tolerance of clipped gradients."""
DEFAULT_DECAY = 0.01
"""The weight decay of a parameter group of AdamW that names none."""
Schedule = Callable[[int, int], float]
"""Returns the rate of the next step from the number of steps done and the number of planned steps."""


def linear_rate(job: Job, done: int, planned: int, warmup_offset: int = 0) -> float:
    """Return the rate of the step after `done` steps: a linear warm-up to the peak, then a linear decay to 0.

    Args:
        job: The job.
        done: The number of steps done.
        planned: The number of planned steps.
        warmup_offset: 0 if the warm-up starts with the rate 0, 1 if it starts with the peak / the steps of the warm-up.
    """
    if done < job.warmup:
        return job.rate * (done + warmup_offset) / job.warmup
    return job.rate * (planned - done) / max(1, planned - job.warmup)


def schedule_of(bench: Bench, run: Run) -> Schedule:
    """Return the schedule that the trainer documents; by default the linear schedule of the run's job."""
    documented: Callable[[Job, int, int], float] | None = getattr(bench.trainer, "expected_rate", None)
    if documented:
        return partial(documented, run.job)
    # A warm-up starts with 0 or with peak / steps; both are correct, and the first step of the run shows which.
    starts_above_0 = run.job.warmup > 0 and run.steps and close(run.steps[0].rate, run.job.rate / run.job.warmup)
    return partial(linear_rate, run.job, warmup_offset=1 if starts_above_0 else 0)


def runs_with_schedules(bench: Bench) -> Iterator[tuple[str, Run]]:
    """Yield the name of a case and its run, for several accumulations, warm-ups and limits of steps."""
    for accumulate, warmup, limit in product((1, 2), (0, 2), (None, 3)):
        job = Job(train=equal(7), epochs=2, accumulate=accumulate, schedule="linear", warmup=warmup, max_steps=limit)
        yield f"accumulation {accumulate}, warm-up {warmup}, max_steps {limit}", bench.run(job)


def falsify_rate_of_each_step(bench: Bench) -> None:
    cases: Cases = {}
    for case, run in runs_with_schedules(bench):
        # With `max_steps`, the schedule must span these steps, not the epochs. If an accumulation window may span two
        # epochs, the number of steps does not follow from the epochs, so use the number of steps that the run took.
        planned = run.job.max_steps or (len(run.steps) if "short_windows" in bench.lacks else planned_steps(run.job))
        actual = [step.rate for step in run.steps]
        expected = [schedule_of(bench, run)(k, planned) for k in range(planned)]
        is_correct = len(actual) == planned and all(map(close, actual, expected))
        fault = "" if is_correct else f"rates {_short(actual)}, not {_short(expected)}"
        cases[case] = Case(run, fault, _causes_of_rates(bench, run, actual, planned) if fault else ())
    judge(cases)


def _causes_of_rates(bench: Bench, run: Run, actual: list[float], planned: int) -> tuple[str, ...]:
    """Return the known mistakes of a schedule that give exactly the actual rates.

    A wrong rate 0 in the first step is named even if it does not explain the later rates.
    """
    schedule, planned_batches = schedule_of(bench, run), planned * run.job.accumulate
    per_epoch = planned_steps(run.job) // run.job.epochs
    # A wrong schedule is the correct one, evaluated with wrong arguments. By mistake: a function from step k to the
    # number of steps done, and the planned number of steps.
    arguments: dict[str, tuple[Callable[[int], int], int]] = {
        "the rate of the step before": (lambda k: max(k - 1, 0), planned),
        "the rate of the next step": (lambda k: k + 1, planned),
        "a schedule that advances with every micro-batch": (
            lambda k: min(_micro_batches_before(run, k), planned),
            planned,
        ),
        "a schedule that advances twice in a step": (lambda k: min(2 * k, planned), planned),
        "a schedule that advances before the step": (
            lambda k: min(_micro_batches_before(run, k + 1), planned),
            planned,
        ),
        "a schedule that is planned for as many steps as there are micro-batches": (lambda k: k, planned_batches),
        "a per-epoch schedule that is advanced at every step": (lambda k: k * per_epoch, planned),
        "a per-step schedule that is advanced once per epoch": (lambda k: k // per_epoch, planned),
    }
    starts_with_zero = bool(actual) and not actual[0] and schedule(0, planned) > 0

    def explains(steps_done: Callable[[int], int], end: int) -> bool:
        try:
            rates = [max(0.0, schedule(steps_done(k), end)) for k in range(planned)]
        # The documented schedule of a trainer may be undefined for such numbers of steps, as after its end.
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return False
        return len(actual) == planned and all(map(close, actual, rates))

    if warmup := _other_warmup(bench, run, actual, planned):
        return (f"a warm-up of {warmup} steps, where {run.job.warmup} are asked for",)
    causes = ["0 in the first step, which then changes nothing"] if starts_with_zero else []
    if _decays_from_the_start(bench, run, actual, planned):
        causes.append(
            "after the warm-up, the rates of a schedule without warm-up: the decay starts at the first step instead of "
            "after the warm-up"
        )
    return (*causes, *(name for name, pair in arguments.items() if explains(*pair)))


def _other_warmup(bench: Bench, run: Run, actual: list[float], planned: int) -> int:
    """Return another length of the warm-up, in steps, that explains all rates exactly; 0 if there is none."""
    # A linear warm-up of w steps rises by rate / w in each step, so the first rise gives w. All rates are then compared
    # with the schedule that has this warm-up.
    rise = actual[1] - actual[0] if len(actual) == planned > 1 else 0.0
    warmup = round(run.job.rate / rise) if rise > 0 else 0
    if warmup in (0, run.job.warmup):
        return 0
    schedule = schedule_of(bench, replace(run, job=replace(run.job, warmup=warmup)))
    return warmup if all(map(close, actual, (schedule(k, planned) for k in range(planned)))) else 0


def _decays_from_the_start(bench: Bench, run: Run, actual: list[float], planned: int) -> bool:
    """Return whether the rates after the warm-up equal the rates of the schedule without a warm-up."""
    warmup, schedule = run.job.warmup, schedule_of(bench, run)
    without_warmup = schedule_of(bench, replace(run, job=replace(run.job, warmup=0)))
    rates = (schedule(k, planned) if k < warmup else without_warmup(k, planned) for k in range(planned))
    return warmup > 0 and len(actual) == planned and all(map(close, actual, rates))


def _micro_batches_before(run: Run, steps: int) -> int:
    """Return the number of micro-batches in the first `steps` steps."""
    return sum(len(step.batches) for step in run.steps[:steps])


def _short(rates: list[float]) -> str:
    """Format rates with six digits."""
    return f"[{', '.join(f'{rate:.6g}' for rate in rates)}]"


GROUPED = replace(SAVED, groups=True, warmup=2, dropout=0.0)
"""A job in which the head has its own parameter group."""


def falsify_rate_of_each_group(bench: Bench) -> None:
    cases: Cases = {}
    for accumulate in (1, 2):
        run, fault = bench.run(replace(GROUPED, accumulate=accumulate)), ""
        require_steps(run)
        schedule = schedule_of(bench, run)
        for k, step in enumerate(run.steps):
            rate = schedule(k, len(run.steps))
            expected = {name: rate * (HEAD_FACTOR if name.startswith("head.") else 1) for name in START}
            if step.rates.keys() != expected.keys() or not all(close(step.rates[n], expected[n]) for n in expected):
                fault = fault or f"step {k + 1} has the rates {dict(step.rates)}, not {expected}"
        cases[f"accumulation {accumulate}"] = Case(run, fault, _causes_of_group_rates(run) if fault else ())
    judge(cases)


def _causes_of_group_rates(run: Run) -> tuple[str, ...]:
    """Return the known mistakes that give the rates of the head's group."""
    head = [step.rates.get("head.weight") for step in run.steps]
    mistakes = {
        "the rate of the first group in every group": head == [step.rate for step in run.steps],
        "a schedule of the first group alone: the rate of the head is constant": len(set(head[1:])) == 1,
    }
    return tuple(name for name, holds in mistakes.items() if holds)


def falsify_rate_of_each_group_after_a_cut(bench: Bench) -> None:
    def check(uninterrupted: Run, resumed: Run, k: int) -> tuple[str, tuple[str, ...]]:
        # By step: the rate of each parameter.
        actual, expected = ([dict(step.rates) for step in steps] for steps in (resumed.steps, uninterrupted.steps[k:]))
        same_names = [*map(sorted, actual)] == [*map(sorted, expected)]
        if same_names and same_rates(_flat(actual), _flat(expected)):
            return "", ()
        equal_in_all_groups = all(len(set(rates.values())) == 1 for rates in actual)
        first_rates = ([next(iter(rates.values()), 0.0) for rates in steps] for steps in (actual, expected))
        is_first_rate = equal_in_all_groups and same_rates(*first_rates)
        causes = ("the rate of the first group in every group",) if is_first_rate else ()
        return f"the next step has the rates {actual[:1]}, not {expected[:1]}", causes

    cut_after_every_step(bench, check, GROUPED)


def _flat(rates: Iterable[Mapping[str, float]]) -> list[float]:
    """Return the rates of all parameters and steps in a fixed order."""
    return [step_rates[name] for step_rates in rates for name in sorted(step_rates)]


def falsify_rates_do_not_depend_on_accumulation(bench: Bench) -> None:
    cases: Cases = {}
    # The jobs have the same number of steps, so their rates must be equal step by step.
    plain = _rates(bench, _stepping_job(1))
    for accumulate in (2, 3):
        run = bench.run(_stepping_job(accumulate))
        require_steps(run)
        actual = [step.rate for step in run.steps]
        if len(actual) == len(plain) and all(map(close, actual, plain)):
            cases[f"accumulation {accumulate}"] = Case(run)
            continue
        first = next((k for k, pair in enumerate(zip(actual, plain, strict=False)) if not close(*pair)), 0)
        fault = f"rates {_short(actual)}, not {_short(plain)} as without accumulation, from step {first + 1} on"
        cases[f"accumulation {accumulate}"] = Case(
            run, fault, _causes_of_accumulated_rates(bench, actual, plain, accumulate)
        )
    judge(cases)


def _causes_of_accumulated_rates(
    bench: Bench, actual: list[float], plain: list[float], accumulate: int
) -> tuple[str, ...]:
    """Return the known mistakes that give the actual rates; `plain` are the rates without accumulation."""
    # A schedule that is planned for all micro-batches has the rates of a run with `accumulate` times the epochs.
    longer = _rates(bench, replace(_stepping_job(1), epochs=2 * accumulate))
    mistakes = {
        "a schedule that advances with every micro-batch": plain[::accumulate],
        "a schedule that is planned for as many steps as there are micro-batches": longer[: len(actual)],
    }
    return tuple(name for name, rates in mistakes.items() if all(map(close, actual, rates)))


def _rates(bench: Bench, job: Job) -> list[float]:
    return [step.rate for step in bench.run(job).steps]


def _stepping_job(accumulate: int) -> Job:
    """Return a job of eight steps, whatever the accumulation."""
    return Job(train=equal(4 * accumulate), batch=1, accumulate=accumulate, epochs=2, schedule="linear", warmup=2)


def falsify_biases_do_not_decay(bench: Bench) -> None:
    cases: Cases = {}
    for decay in (0.0, 0.1):
        run = bench.run(Job(train=equal(4), optimizer="adamw", decay=decay))
        require_steps(run)
        expected, actual = {"head.weight": decay, "head.bias": 0.0}, dict(run.steps[0].decays)
        wrong = [
            f"{name} has the weight decay {actual.get(name)}, not {expected_decay}"
            for name, expected_decay in expected.items()
            if actual.get(name) != expected_decay
        ]
        mistakes = {
            "one weight decay for every parameter": len(set(actual.values())) == 1 and any(actual.values()),
            "no weight decay at all": bool(decay) and not any(actual.values()),
            "the default of AdamW, where a group names no decay": actual.get("head.bias") == DEFAULT_DECAY != decay,
            "a decay of biases in place of weights": actual.get("head.bias") == decay != actual.get("head.weight"),
        }
        causes = tuple(name for name, holds in mistakes.items() if holds) if wrong else ()
        cases[f"decay {decay:g}"] = Case(run, "; ".join(wrong), causes)
    judge(cases)


def falsify_decay_is_decoupled(bench: Bench) -> None:
    cases: Cases = {}
    # The first step without decay differs from the step with decay by rate * decay * weight alone, if the decay is
    # decoupled (Loshchilov and Hutter 2019).
    without = bench.run(Job(train=equal(4), optimizer="adamw", rate=DECAY_RATE, decay=0.0))
    for decay in (0.1, 0.5):
        run = bench.run(replace(without.job, decay=decay))
        require_steps(run)
        require_rate(bench, run)
        rate = run.steps[0].rates.get("head.weight") or DECAY_RATE
        taken, expected = _head_weight(without) - _head_weight(run), rate * decay * START["head.weight"]
        relative_error = float((taken - expected).abs().max() / expected.abs().max())
        fault = (
            f"weight decay changes head.weight by up to {float(taken.abs().max()):.3g} in the first step; "
            f"expected: rate * decay * weight, which is up to {float(expected.abs().max()):.3g}"
        )
        # A decoupled decay with a wrong factor takes a multiple of the weight. The first step of Adam is about the rate
        # times the sign of the gradient, so a decay in the gradient changes only the elements whose sign it changes.
        factor = ratio({"decay": taken}, {"decay": expected}, DECAY_TOLERANCE)
        cause = f"{factor:.3g} times the decay" if factor else "a decay that is added to the gradient, or none"
        cases[f"decay {decay:g}"] = Case(run, fault if relative_error > DECAY_TOLERANCE else "", (cause,))
    judge(cases)


def _head_weight(run: Run) -> Tensor:
    """Return the weight of the head after the first step."""
    return run.steps[0].weights["head.weight"]


def falsify_logged_rate_is_the_one_used(bench: Bench) -> None:
    cases: Cases = {}
    for case, run in runs_with_schedules(bench):
        require(run.logs, "`logs`", "where the loop logs no rate, name `rate` as missing in `features`")
        require_steps(run)
        actual, used = logged(run.logs, "rate"), {k: step.rate for k, step in enumerate(run.steps, 1)}
        # The tolerance allows a rate that is logged in float32.
        differing = differing_steps(actual, used, 1e-6)
        logs_next = differing and all(actual.get(k) == used[k + 1] for k in used if k + 1 in used)
        fault = f"logged {actual}, used {used}" if differing else ""
        cases[case] = Case(run, fault, ("the rate of the next step",) if logs_next else ())
    judge(cases)


WINDOWS = 6


def overflowing(window: int, accumulate: int) -> Job:
    """Return a job of `WINDOWS` windows with a gradient scaler, in which one gradient is infinite.

    Args:
        window: The number of the window, from 0, whose first micro-batch has the infinite gradient.
        accumulate: The micro-batches of a window.
    """
    return Job(
        train=equal(3 * accumulate),
        batch=1,
        epochs=2,
        accumulate=accumulate,
        schedule="linear",
        scaler=True,
        save_every=1,
        overflows=(window * accumulate,),
    )


def require_scale(bench: Bench) -> None:
    """Raise SkipTest if the loop scales no gradient, although `job.scaler` is set."""
    _scales(*_runs_without_and_with_scaler(bench, 1))


def _runs_without_and_with_scaler(bench: Bench, accumulate: int) -> tuple[Run, Run]:
    """Return a run without a scaler, and a run of the same job with one, long enough for its scale to grow twice."""
    job = Job(train=equal(6 * accumulate), batch=1, accumulate=accumulate, epochs=2)
    return bench.run(job), bench.run(replace(job, scaler=True))


def _scales(plain: Run, with_scaler: Run) -> list[float]:
    """Return the scale of each step that both runs take. Raise SkipTest if the scale is always 1."""
    # A `Step` does not contain the scale of the gradient scaler. It is the ratio of the gradients of the hidden states
    # with and without a scaler.
    pairs = zip(with_scaler.steps, plain.steps, strict=False)
    gradients = [(a.hidden_gradients[-1:], b.hidden_gradients[-1:]) for a, b in pairs]
    scales = [a[0] / b[0] for a, b in gradients if a and b and b[0]]
    if all(close(scale, 1.0) for scale in scales):
        raise SkipTest("`features` has `scaler`, and no gradient is scaled where `job.scaler` is set")
    return scales


def falsify_rate_after_an_overflow(bench: Bench) -> None:
    require_scale(bench)
    cases: Cases = {}
    for accumulate in (1, 2):
        for window in (0, 2):
            run = bench.run(overflowing(window, accumulate))
            cases[f"accumulation {accumulate}, overflow in window {window + 1} of {WINDOWS}"] = _rates_case(bench, run)
    judge(cases)


def _rates_case(bench: Bench, run: Run) -> Case:
    """Check that the steps have the first rates of the schedule, since a skipped step must not count.

    The weights must be finite at the end.
    """
    broken = [name for name, weight in run.weights.items() if not weight.isfinite().all()]
    if broken:
        return Case(run, f"{', '.join(broken)} is not finite at the end", ("a step with an infinite gradient",))
    actual, schedule = [step.rate for step in run.steps], schedule_of(bench, run)
    if len(actual) < WINDOWS - 1:
        fault = f"{len(actual)} of {WINDOWS} windows take a step, and one gradient overflows"
        return Case(run, fault, ("a gradient that is not cleared after the skipped step",))
    expected = [schedule(k, WINDOWS) for k in range(len(actual))]
    if all(map(close, actual, expected)):
        overflows = any(math.inf in step.hidden_gradients for step in run.steps)
        is_tried = len(actual) < WINDOWS or overflows
        untried = "no gradient overflows, although the job injects an infinite gradient into one micro-batch"
        return Case(run, untried="" if is_tried else untried)
    # If the skipped step counts, the rates are the rates of the schedule without one step.
    rates = [schedule(k, WINDOWS) for k in range(WINDOWS + 1)]
    skips_a_rate = any(all(map(close, actual, rates[:k] + rates[k + 1 :])) for k in range(WINDOWS + 1))
    causes = ("a schedule that moves on with the skipped step",) if skips_a_rate else ()
    return Case(run, f"the steps taken have the rates {actual}, not {expected}", causes)


def falsify_scale_never_grows_faster_than_at_first(bench: Bench) -> None:
    cases: Cases = {}
    for accumulate in (1, 2):
        cases[f"accumulation {accumulate}"] = _growth_case(*_runs_without_and_with_scaler(bench, accumulate))
    judge(cases)


def _growth_case(plain: Run, with_scaler: Run) -> Case:
    """Check that between two growths of the scale there are at least as many steps as before the first growth.

    Args:
        plain: A run without a scaler, whose gradients show the scales of the other run.
        with_scaler: The run of the same job with a scaler.

    Raises:
        SkipTest: The scale is always 1, or grows less than twice.
    """
    if len(plain.steps) != len(with_scaler.steps):
        return Case(with_scaler, f"{len(with_scaler.steps)} steps are taken, and without a scaler {len(plain.steps)}")
    scales = _scales(plain, with_scaler)
    grown = [k for k in range(1, len(scales)) if scales[k] > 1.01 * scales[k - 1]]
    if len(grown) < 2:
        raise SkipTest(
            f"in {len(scales)} steps the scale grows {len(grown)} times, which is too rarely: let the adapter set a "
            "growth interval of at most 4 where `job.scaler` is set, or name the claim in `not_claimed`"
        )
    # A shorter interval than the first one means that the count of good steps was not reset when the scale grew.
    early = [k for last, k in pairwise(grown) if k - last < grown[0]]
    if not early:
        return Case(with_scaler)
    fault = f"the scale first grows after {grown[0]} steps, and then after the steps {', '.join(map(str, grown[1:]))}"
    return Case(with_scaler, fault, ("a count of good steps that is not reset when the scale grows",))


def falsify_scale_after_a_cut(bench: Bench) -> None:
    require_scale(bench)
    cases: Cases = {}
    for accumulate in (1, 2):
        uninterrupted = bench.run(overflowing(0, accumulate))
        for k in sorted(uninterrupted.checkpoints)[:-1]:
            name = f"accumulation {accumulate}, cut after step {k}"
            cases[name] = _scale_case(uninterrupted, bench.resume(uninterrupted, k))
    judge(cases)


def _scale_case(uninterrupted: Run, resumed: Run) -> Case:
    """Check that the gradients of a resumed run have the scales of the uninterrupted run."""
    expected = [size for step in uninterrupted.steps for size in step.hidden_gradients]
    actual = [size for step in resumed.steps for size in step.hidden_gradients]
    if not actual or actual == expected[-len(actual) :]:
        return Case(resumed)
    if len(actual) > len(expected):
        return Case(resumed, f"the resumed run has {len(actual)} gradients, the uninterrupted run {len(expected)}")
    # Negative indices count from the end, where both runs have the same gradients.
    k = next(k for k, size in enumerate(actual) if size != expected[k - len(actual)])
    correct = expected[k - len(actual)]
    times = actual[k] / correct if correct else math.inf
    fault = f"gradient {k + 1} of the resumed run is {times:.6g} times the gradient of the uninterrupted run"
    if k:
        return Case(
            resumed, fault, ("a count of good steps that is not restored, so that the scale grows at other steps",)
        )
    return Case(resumed, fault, ("the scale at the start of a run: it is not restored",) if times > 1 else ())


def falsify_clipping_scales_the_window(bench: Bench) -> None:
    cases: Cases = {}
    # One limit that always clips, and one that never does.
    for accumulate, limit in product((1, 2), (0.1, 3.0)):
        run = bench.run(Job(train=equal(8), accumulate=accumulate, clip=limit, epochs=2))
        cases |= _clipping_cases(bench, run, f"clip {limit:g}, accumulation {accumulate}")
    judge(cases)


def _clipping_cases(bench: Bench, run: Run, name: str) -> Cases:
    """Return a case about the gradient of each step, and one about the number of steps if the job has a limit."""
    require_forwards(run)
    cases = {} if run.job.clip is None else {name: _step_count_case(bench, run)}
    limit = run.job.clip or math.inf
    for k, step in enumerate(run.steps):
        correct = run.sums(k)
        length = norm(correct.mean)
        # PyTorch divides by the norm + 1e-6. Gradients that need clipping have a norm above 0.1 before it, so the 1e-6
        # changes them by at most 1e-5, relative to their elements.
        off = difference(step.gradient, scaled(correct.mean, min(1.0, limit / length)))
        fault = (
            f"a gradient of norm {length:.6g}, clipped at {limit:g}, reaches the optimizer with norm "
            f"{norm(step.gradient):.6g}; its largest error is {off:.2g} times the largest element"
        )
        causes = causes_of_clipping(step.gradient, correct.mean, limit, correct.tokens, scale_of(run, k))
        if difference(step.gradient, _gradient_clipped_in_parts(run, k, limit)) < CLIP_TOLERANCE:
            causes = ("the sum of the micro-batches' gradients, clipped after each of them",)
        cases[f"{name}, step {k + 1}"] = Case(run, fault, causes) if off > CLIP_TOLERANCE else Case(run)
    return cases


def _step_count_case(bench: Bench, run: Run) -> Case:
    """Check that a run with a limit takes as many steps as one without: long gradients must be clipped, not dropped."""
    # The directory is a part of the cache key, so a run without a directory is shared with other claims.
    limit, unlimited = run.job.clip, bench.run(replace(run.job, clip=None, directory=Path()))
    require_steps(unlimited)
    if len(run.steps) >= len(unlimited.steps):
        return Case(run)
    return Case(
        run,
        f"{len(run.steps)} steps are taken with a limit of {limit:g}, and {len(unlimited.steps)} without one",
        ("a loop that skips steps whose gradient norm exceeds the limit, or a multiple of the limit",),
    )


def _gradient_clipped_in_parts(run: Run, k: int, limit: float) -> Mapping[str, Tensor]:
    """Return the gradient of the step at index k in a loop that clips the sum of gradients after each micro-batch."""
    parts = run.batch_sums(k)
    tokens, total = sum(part.tokens for part in parts), dict.fromkeys(parts[0].gradient, torch.zeros(()))
    for part in parts:
        # As in a loop that calls `clip_grad_norm_` after each backward.
        total = {name: tensor + part.gradient[name] / tokens for name, tensor in total.items()}
        total = scaled(total, min(1.0, limit / norm(total)))
    return total


def causes_of_clipping(
    actual: Mapping[str, Tensor | None],
    plain: Mapping[str, Tensor],
    limit: float,
    tokens: int,
    scale: float | None = None,
) -> tuple[str, ...]:
    """Return the known mistakes of clipping that give exactly the gradient `actual`.

    Args:
        actual: The gradient of a step, by parameter.
        plain: The correct gradient before clipping.
        limit: The limit of the norm.
        tokens: The number of scored tokens of the window.
        scale: The scale of the gradient scaler; None if there is no scale.
    """
    largest = max(float(tensor.abs().max()) for tensor in plain.values())
    mistakes: dict[str, Mapping[str, Tensor]] = {
        "clipped before it is divided by the scored tokens": scaled(plain, min(1.0, limit / (norm(plain) * tokens))),
        "the gradient before the clipping: it is clipped after the step, or not at all": plain,
        "clipped by its largest element, and not by its Euclidean norm": scaled(plain, min(1.0, limit / largest)),
        "clipped element by element": {name: tensor.clamp(-limit, limit) for name, tensor in plain.items()},
        "clipped tensor by tensor, each by its own norm": {
            name: tensor * min(1.0, limit / (norm({name: tensor}) or 1.0)) for name, tensor in plain.items()
        },
    }
    if scale is not None:
        mistakes[clipped_early(scale)] = scaled(plain, min(1.0, limit / (norm(plain) * scale)))
        mistakes[f"not divided by the scale of the gradient scaler, {scale:g}"] = scaled(plain, scale)
    return matching_arrays(actual, mistakes, CLIP_TOLERANCE) or _cause_of_unclipped(actual, plain)


def _cause_of_unclipped(actual: Mapping[str, Tensor | None], plain: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Return the mistake that the gradients of some parameters are not clipped; () if it does not explain all."""
    ratios = {name: ratio({name: actual.get(name)}, {name: tensor}, CLIP_TOLERANCE) for name, tensor in plain.items()}
    unclipped = [name for name, factor in ratios.items() if factor is not None and abs(factor - 1) < CLIP_TOLERANCE]
    # Every tensor must be a multiple of its correct gradient, otherwise the mistake is another one.
    if not unclipped or None in ratios.values():
        return ()
    return (f"clipped, but for {', '.join(unclipped)}, as if only some parameters were passed to the clipping",)


def falsify_clipping_of_unscaled_gradients(bench: Bench) -> None:
    cases: Cases = {}
    for accumulate, limit in product((1, 2), (0.3, None)):
        run = bench.run(Job(train=equal(8), accumulate=accumulate, clip=limit, scaler=True))
        require_scale(bench)
        cases |= _clipping_cases(bench, run, f"clip {limit}, accumulation {accumulate}")
    judge(cases)


def falsify_logged_norm_is_before_clipping(bench: Bench) -> None:
    run = bench.run(Job(train=equal(8), accumulate=2, clip=0.3))
    require_forwards(run)
    require(run.logs, "`logs`", "where the loop logs no norm, name `norm` as missing in `features`")
    actual, cases = logged(run.logs, "norm"), Cases()
    if sorted(actual) != [*range(1, len(run.steps) + 1)]:
        refute(f"norms are logged for the steps {sorted(actual)}, not for 1 to {len(run.steps)}", run)
    for k, step in enumerate(run.steps, 1):
        correct, parts = run.sums(k - 1), run.batch_sums(k - 1)
        expected = norm(correct.mean)
        mistakes = {
            "the norm after clipping": norm(step.gradient),
            "the norm of the gradient before it is divided by the tokens": norm(correct.gradient),
            "the norm of the last micro-batch's part": norm(parts[-1].gradient) / correct.tokens,
            "the square of the norm": expected**2,
        }
        mistakes |= {f"the norm of {name} alone": norm({name: g}) for name, g in correct.mean.items()}
        if scale := scale_of(run, k - 1):
            mistakes[f"the norm before it is divided by the scale of the gradient scaler, {scale:g}"] = expected * scale
        wrong = abs(actual[k] - expected) > 1e-5 * max(1.0, expected)
        fault = f"{actual[k]:.6g} is logged, the norm is {expected:.6g}" if wrong else ""
        cases[f"step {k}"] = Case(run, fault, matching_numbers(actual[k], mistakes, 1e-5) if wrong else ())
    judge(cases)
