"""Claims about the learning rate."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product

from torch import Tensor

from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import equal, job, saved_job
from pv.suites.training_loop.claims.checkpoints import due
from pv.suites.training_loop.claims.checks import Case, Cases, judge, require, require_rate, require_steps
from pv.suites.training_loop.diagnosis import logged, other_numbers, same_rates
from pv.suites.training_loop.features import planned_steps
from pv.suites.training_loop.job import HEAD, Job
from pv.suites.training_loop.numbers import close
from pv.suites.training_loop.oracle import START
from pv.suites.training_loop.run import Run

RATE, DECAY_TOLERANCE = 0.01, 1e-3
"""Of a step whose weight decay is measured, and how far it may be off, relative."""
DEFAULT_DECAY = 0.01
"""Of a group of AdamW that names none."""
Schedule = Callable[[int, int], float]
"""The rate of the next step, by the steps done and the steps planned."""


def linear(job: Job, done: int, planned: int, first: int = 0) -> float:
    """Return the rate of the step after `done` steps: up to the peak in the warm-up, then to 0 at the end.

    first: 0 if the warm-up begins with the rate 0, 1 if it begins with the peak divided by its steps.
    """
    if done < job.warmup:
        return job.rate * (done + first) / job.warmup
    return job.rate * (planned - done) / max(1, planned - job.warmup)


def schedule_of(bench: Bench, run: Run) -> Schedule:
    """Return the schedule that the trainer documents, or the job's with the beginning that the run has."""
    documented: Callable[[Job, int, int], float] | None = getattr(bench.trainer, "expected_rate", None)
    # Two conventions of a warm-up: it begins with 0, or with peak / steps; the first step shows which.
    above = run.job.warmup > 0 and any(close(step.rate, run.job.rate / run.job.warmup) for step in run.steps[:1])
    return partial(documented, run.job) if documented else partial(linear, run.job, first=int(above))


def scheduled(bench: Bench) -> Iterator[tuple[str, Run]]:
    """Yield runs with schedules, by case."""
    for accumulate, warmup, limit in product((1, 2), (0, 2), (None, 3)):
        candidate = job(equal(7), epochs=2, accumulate=accumulate, schedule="linear", warmup=warmup, max_steps=limit)
        yield f"accumulation {accumulate}, warm-up {warmup}, max_steps {limit}", bench.run(candidate)


def falsify_rate_of_each_step(bench: Bench) -> None:
    cases: Cases = {}
    for case, run in scheduled(bench):
        # The schedule must span the steps that the run takes, not the epochs, if `max_steps` is set.
        planned = run.job.max_steps or _steps_of_epochs(bench, run)
        actual = [step.rate for step in run.steps]
        expected = [schedule_of(bench, run)(k, planned) for k in range(planned)]
        right = len(actual) == planned and all(map(close, actual, expected))
        fault = "" if right else f"rates {_short(actual)}, not {_short(expected)}"
        cases[case] = Case(run, fault, _causes(bench, run, actual, planned) if fault else ())
    judge(cases)


def _steps_of_epochs(bench: Bench, run: Run) -> int:
    """Return the number of steps of all epochs; the steps taken if windows span two epochs."""
    if bench.missing("", ("short_windows",)):
        return len(run.steps)
    return planned_steps(run.job)


def _causes(bench: Bench, run: Run, actual: list[float], planned: int) -> tuple[str, ...]:
    rate, micro = schedule_of(bench, run), planned * run.job.accumulate
    epoch = planned_steps(run.job) // run.job.epochs
    # Each mistake: the number of steps that the schedule is asked for in step k, and the planned number.
    counts: dict[str, tuple[Callable[[int], int], int]] = {
        "the rate of the step before": (lambda k: max(k - 1, 0), planned),
        "the rate of the next step": (lambda k: k + 1, planned),
        "a schedule that advances with every micro-batch": (lambda k: min(_passed(run, k), planned), planned),
        "a schedule that advances twice in a step": (lambda k: min(2 * k, planned), planned),
        "a schedule that advances before the step": (lambda k: min(_passed(run, k + 1), planned), planned),
        "a schedule that is planned for as many steps as there are micro-batches": (lambda k: k, micro),
        "a schedule of epochs that advances with every step": (lambda k: k * epoch, planned),
        "a schedule of steps that advances once an epoch": (lambda k: k // epoch, planned),
    }
    still = bool(actual) and not actual[0] and rate(0, planned) > 0

    def same(count: Callable[[int], int], end: int) -> bool:
        try:
            rates = [max(0.0, rate(count(k), end)) for k in range(planned)]
        except (ArithmeticError, LookupError, TypeError, ValueError):  # a schedule of its own, undefined after the end
            return False
        return len(actual) == planned and all(map(close, actual, rates))

    first = ["0 in the first step, which then changes nothing"] if still else []
    if warmup := _other_warmup(bench, run, actual, planned):
        return (f"a warm-up of {warmup} steps, where {run.job.warmup} are asked for",)
    if _decays_from_the_start(bench, run, actual, planned):
        first.append("after the warm-up, the schedule without one: its decay is counted from the first step")
    return (*first, *(name for name, count in counts.items() if same(*count)))


def _other_warmup(bench: Bench, run: Run, actual: list[float], planned: int) -> int:
    """Return the length of the warm-up that explains the rates exactly; 0 if there is none.

    Its length follows from the first rise, and all rates are then compared with those of the schedule.
    """
    # A linear warm-up of w steps rises by rate / w in each step.
    rise = actual[1] - actual[0] if len(actual) == planned > 1 else 0.0
    warmup = round(run.job.rate / rise) if rise > 0 else 0
    if warmup in (0, run.job.warmup):
        return 0
    rate = schedule_of(bench, replace(run, job=replace(run.job, warmup=warmup)))
    return warmup if all(map(close, actual, (rate(k, planned) for k in range(planned)))) else 0


def _decays_from_the_start(bench: Bench, run: Run, actual: list[float], planned: int) -> bool:
    warmup, rate = run.job.warmup, schedule_of(bench, run)
    cold = schedule_of(bench, replace(run, job=replace(run.job, warmup=0)))
    rates = (rate(k, planned) if k < warmup else cold(k, planned) for k in range(planned))
    return warmup > 0 and len(actual) == planned and all(map(close, actual, rates))


def _passed(run: Run, steps: int) -> int:
    """Return how many micro-batches the first steps had."""
    return sum(len(step.batches) for step in run.steps[:steps])


def _short(rates: list[float]) -> str:
    return f"[{', '.join(f'{rate:.6g}' for rate in rates)}]"


def grouped_job(accumulate: int) -> Job:
    """Return a job with a parameter group of the head."""
    return saved_job(accumulate=accumulate, groups=True, warmup=2, dropout=0.0)


def falsify_rate_of_each_group(bench: Bench) -> None:
    cases: Cases = {}
    for accumulate in (1, 2):
        run, fault = bench.run(grouped_job(accumulate)), ""
        require_steps(run)
        scheduled_rate = schedule_of(bench, run)
        for k, step in enumerate(run.steps):
            rate = scheduled_rate(k, len(run.steps))
            expected = {name: rate * (HEAD if name.startswith("head.") else 1) for name in START}
            if step.rates.keys() != expected.keys() or not all(close(step.rates[n], expected[n]) for n in expected):
                fault = fault or f"step {k + 1} has the rates {dict(step.rates)}, not {expected}"
        cases[f"accumulation {accumulate}"] = Case(run, fault, _of_groups(run) if fault else ())
    judge(cases)


def _of_groups(run: Run) -> tuple[str, ...]:
    """Return the known mistakes that give the rates of the group of the head."""
    head = [step.rates.get("head.weight") for step in run.steps]
    mistakes = {
        "the rate of the first group in every group": head == [step.rate for step in run.steps],
        "a schedule of the first group alone: that of the head is constant": len(set(head[1:])) == 1,
    }
    return tuple(name for name, holds in mistakes.items() if holds)


def falsify_rate_of_each_group_after_a_cut(bench: Bench) -> None:
    cases: Cases = {}
    for accumulate in (1, 2):
        uninterrupted = bench.run(grouped_job(accumulate))
        for k in due(bench, uninterrupted)[:-1]:
            again = bench.resume(uninterrupted, k)
            actual, expected = (
                [dict(step.rates) for step in steps] for steps in (again.steps, uninterrupted.steps[k:])
            )
            names = [[sorted(rates) for rates in steps] for steps in (actual, expected)]
            same = names[0] == names[1] and same_rates(_flat(actual), _flat(expected))
            fault = "" if same else f"the next step has the rates {actual[:1]}, not {expected[:1]}"
            one = all(len(set(step_rates.values())) == 1 for step_rates in actual)
            first = same_rates(
                *([next(iter(step_rates.values()), 0.0) for step_rates in steps] for steps in (actual, expected))
            )
            causes = ("the rate of the first group in every group",) if one and first else ()
            cases[f"accumulation {accumulate}, cut after step {k}"] = Case(again, fault, causes)
    judge(cases)


def _flat(rates: Iterable[Mapping[str, float]]) -> list[float]:
    return [step_rates[name] for step_rates in rates for name in sorted(step_rates)]


def falsify_rates_do_not_depend_on_accumulation(bench: Bench) -> None:
    cases: Cases = {}
    # Equally many steps for every accumulation, so rates must be equal step by step.
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
        cases[f"accumulation {accumulate}"] = Case(run, fault, _faster(bench, actual, plain, accumulate))
    judge(cases)


def _faster(bench: Bench, actual: list[float], plain: list[float], accumulate: int) -> tuple[str, ...]:
    longer = _rates(bench, replace(_stepping_job(1), epochs=2 * accumulate))
    mistakes = {
        "a schedule that advances with every micro-batch": plain[::accumulate],
        "a schedule that is planned for as many steps as there are micro-batches": longer[: len(actual)],
    }
    return tuple(name for name, rates in mistakes.items() if all(map(close, actual, rates)))


def _rates(bench: Bench, job: Job) -> list[float]:
    return [step.rate for step in bench.run(job).steps]


def _stepping_job(accumulate: int) -> Job:
    """Return a job of eight steps."""
    return job(equal(4 * accumulate), batch=1, accumulate=accumulate, epochs=2, schedule="linear", warmup=2)


def falsify_biases_do_not_decay(bench: Bench) -> None:
    cases: Cases = {}
    for decay in (0.0, 0.1):
        run = bench.run(job(equal(4), optimizer="adamw", decay=decay))
        require_steps(run)
        expected, actual = {"head.weight": decay, "head.bias": 0.0}, dict(run.steps[0].decays)
        wrong = [
            f"{name} has the weight decay {actual.get(name)}, not {decay}"
            for name, decay in expected.items()
            if actual.get(name) != decay
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
    # The same first step without decay: the difference of the weights is the decay alone (Loshchilov and Hutter
    # 2019).
    without = bench.run(job(equal(4), optimizer="adamw", rate=RATE, decay=0.0))
    for decay in (0.1, 0.5):
        run = bench.run(replace(without.job, decay=decay))
        require_steps(run)
        require_rate(bench, run)
        rate = run.steps[0].rates.get("head.weight") or RATE
        taken, expected = (_weight(without) - _weight(run)), rate * decay * START["head.weight"]
        apart = float((taken - expected).abs().max() / expected.abs().max())
        fault = f"the first step takes {float(taken.abs().max()):.3g} from head.weight for its decay at most"
        fault += f", rate times decay times weight is {float(expected.abs().max()):.3g}"
        cause = "a decay that is added to the gradient" if apart > 0.5 else "another factor of the decay"
        cases[f"decay {decay:g}"] = Case(run, fault if apart > DECAY_TOLERANCE else "", (cause,))
    judge(cases)


def _weight(run: Run) -> Tensor:
    """Return the weights of the head after the first step."""
    return run.steps[0].weights["head.weight"]


def falsify_logged_rate_is_the_one_used(bench: Bench) -> None:
    cases: Cases = {}
    for case, run in scheduled(bench):
        require(run.logs, "`logs`", "where the loop logs no rate, name `rate` as missing in `features`")
        require_steps(run)
        actual, used = logged(run.logs, "rate"), {k: step.rate for k, step in enumerate(run.steps, 1)}
        differing = other_numbers(actual, used, 1e-6)
        late = differing and all(actual.get(k) == used[k + 1] for k in used if k + 1 in used)
        fault = f"logged {actual}, used {used}" if differing else ""
        cases[case] = Case(run, fault, ("the rate of the next step",) if late else ())
    judge(cases)
