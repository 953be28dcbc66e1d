"""Describe how a run differs from the correct run: order, rates, weights or logged numbers; format its steps."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from pv.suites.training_loop.oracle import close, norm, sums
from pv.suites.training_loop.probe import Step
from pv.suites.training_loop.run import Run

ROWS = 24
"""Largest number of steps in a table."""
FEW = 3
"""Smallest number of examples whose order is explained. Shorter orders occur in many other orders by chance."""
ROUNDING, DRIFT = 1e-12, 1e-9
"""Of rates in another order of operations, relative to the largest, and of the weights after steps with such rates."""


def explain_order(actual: Sequence[int], right: Run, skipped: int, cut: int | None = None) -> tuple[str, ...]:
    """Return in which epochs of the right run names have this order: from the start, or after `skipped` examples.

    Also return how many steps after the cut are left out, or before it are repeated. cut: the index of the
    epoch that was cut. Nothing is returned for a loop that makes no passes over the data.
    """
    if not actual:
        return ("nothing: the rest of the epoch is left out",)
    if len(actual) < FEW:
        return ()
    orders = {}
    for epoch, epoch_order in enumerate(_epochs(right)):
        name = "the cut epoch" if epoch == cut else f"epoch {epoch + 1}"
        orders[f"the order of {name} from its start"] = epoch_order
        if skipped:
            orders[f"the order of {name} after as many examples as were used"] = epoch_order[skipped:]
    exact = tuple(name for name, order in orders.items() if list(actual) == order[: len(actual)])
    return exact + _moved(actual, right, skipped)


def explain_set(actual: Sequence[int], right: Sequence[int]) -> tuple[str, ...]:
    """Describe an order that no epoch of the right run has: the same examples or replayed ones; () for few examples."""
    if len({*actual}) < FEW or len({*actual}) != len(right):
        return ()
    same = "the same examples in another order"
    replayed = "examples from before the cut are used again, and others left out"
    return (f"an order that no epoch of the run that was not cut has: {same if {*actual} == {*right} else replayed}",)


def _moved(actual: Sequence[int], right: Run, skipped: int) -> tuple[str, ...]:
    """Return the number of steps by which a resumed run starts too late or too early in its epoch."""
    names, size = [name for step in right.order for name in step], len(right.job.train)
    for epoch in range(len(_epochs(right))):
        for by in (shift for shift in range(-skipped, size - skipped) if shift):
            start = epoch * size + skipped + by
            expected = names[start : start + len(actual)]  # the run may end before
            if len(expected) >= min(len(actual), FEW + 1) and list(actual[: len(expected)]) == expected:
                part = "some after the cut is skipped" if by > 0 else "some before the cut is replayed"
                moved = f"the order of its epoch, of which {part}: {_steps(abs(by), right)}"
                return (moved, *_units(skipped, skipped + by, right))
    return ()


def _epochs(run: Run) -> list[list[int]]:
    """Return the order of each epoch; [] if not every one has each example once."""
    names, size = [name for step in run.order for name in step], len(run.job.train)
    orders = [names[epoch * size : (epoch + 1) * size] for epoch in range(len(names) // size)]
    return orders if all(len(set(epoch)) == size for epoch in orders) else []


def _units(used: int, start: int, run: Run) -> Iterator[str]:
    """Yield the confused units (examples, batches, steps) that resume at `start` after `used` examples."""
    sizes = {"batches": run.job.batch, "steps": run.job.batch * run.job.accumulate}
    for unit, size in sizes.items():
        count = -(-used // size)
        if size > 1 and count > 1 and start == count:
            yield f"the number of {unit}, taken for one of examples"
        if size > 1 and used > 1 and start == used * size:
            yield f"the number of examples, taken for one of {unit}"


def _steps(examples: int, run: Run) -> str:
    """Format a number of examples, in steps if it is a multiple of these."""
    steps, rest = divmod(examples, run.job.batch * run.job.accumulate)
    return f"{examples} examples" if rest else f"{steps} step{'s' * (steps > 1)}"


def explain_rates(actual: Sequence[float], right: Run, done: int = 0) -> tuple[str, ...]:
    """Explain rates by the steps at which the schedule of the correct run has these rates; return the texts.

    The first rate may have been restored with the optimizer. Rates after the end of the schedule are not compared.

    Args:
        actual: The rates of the run.
        right: The rates of the correct run.
        done: Number of steps before the cut.
    """
    rates, n = [step.rate for step in right.steps], len(actual)
    if n > 1 and actual[0] == rates[0] and list(actual[1:]) == rates[1 - n :]:
        return (
            "the rate of a new optimizer in the first step: the rate or the state of the optimizer is not restored",
        )
    # The first rate may come from the restored optimizer, so compare from the second on.
    counts = [k for k in range(len(rates)) if n > 1 and list(actual[1:]) == rates[k + 1 : k + n]]
    left = rates[2 * done :]
    if not counts and len(left) > 1 and same_rates(actual[: len(left)], left):
        return (f"the schedule of a run that has taken {2 * done} steps: those before the cut count twice",)
    kept = [p for p in range(2, n) if [*actual[:p], *rates[p:n]] == list(actual) and list(actual[:p]) == rates[-n:][:p]]
    anew = ("a schedule that starts over after the rate that the optimizer kept: its state is not restored",)
    causes = tuple(f"the schedule of a run that has taken {k} steps (last_epoch {k})" for k in counts)
    return causes or (anew if kept else ())


def same_rates(actual: Sequence[float], right: Sequence[float]) -> bool:
    """Return whether rates are equal up to rounding errors."""
    allowed = ROUNDING * max(map(abs, right), default=0.0)
    return len(actual) == len(right) and all(abs(a - b) <= allowed for a, b in zip(actual, right, strict=True))


def different_end(actual: Run, right: Run, done: int, part: str = "weights") -> str:
    """Return how the weights (or the average) at the end of a run differ that was resumed after `done` steps.

    "" if they are the same bits, and if rates were rounded otherwise, weights up to what these steps make of it.
    """
    ends: tuple[Mapping[str, Tensor], ...] = (getattr(actual, part), getattr(right, part))
    rates = [[rate for step in steps for rate in step.rates.values()] for steps in (actual.steps, right.steps[done:])]
    # Rates that differ by rounding give weights that differ by rounding: the run is the same.
    if rates[0] != rates[1] and same_rates(*rates) and ends[0].keys() == ends[1].keys():
        pairs = [(ends[0][name], ends[1][name]) for name in ends[1]]
        if all(torch.allclose(a, b, rtol=DRIFT, atol=DRIFT) for a, b in pairs):
            return ""
    return different(*ends)


def first_difference(actual: Run, right: Run, done: int = 0) -> str:
    """Describe the first step in which two runs differ; `actual` was resumed after `done` steps of `right`."""
    for k, (a, b) in enumerate(zip(actual.steps, right.steps[done:], strict=False), done + 1):
        if why := _difference(a, b):
            return f"the first difference is in step {k}: {why}{_before(actual, right, k, done)}"
    return "no step differs" if len(actual.steps) + done == len(right.steps) else "the numbers of steps differ"


def explain_difference(actual: Run, right: Run, done: int = 0) -> str:
    """Name the first difference between two runs: `an order`, `random numbers`, or `weights`."""
    for a, b in zip(actual.steps, right.steps[done:], strict=False):
        if a.batches != b.batches:
            return "an order"
        if a.first and b.first and different(a.first, b.first):
            return "weights"
        if different(present(a.gradient), present(b.gradient)):
            return "random numbers" if _draws(actual) else "weights"
    return "weights"


def _draws(run: Run) -> bool:
    return bool(run.job.dropout or run.job.noise)


def _before(actual: Run, right: Run, k: int, done: int) -> str:
    """Explain a gradient difference at step `k` by an earlier difference; return "" if there is none."""
    a, b = actual.steps[k - done - 1], right.steps[k - 1]
    if a.batches != b.batches or not different(present(a.gradient), present(b.gradient)):
        return ""
    if not a.first or not b.first:  # the model was in eval mode
        return ": other weights or random numbers before it"
    if weights := different(a.first, b.first):
        # Equal after the step before, different in this one: something changed the weights in between.
        after_a_step = k > done + 1 and not different(actual.before(k - done - 1), right.before(k - 1))
        return ": weights that change between the steps" if after_a_step else f": other weights before it, {weights}"
    return " of the same weights: other random numbers" if _draws(actual) else " of the same weights"


def _difference(actual: Step, right: Step) -> str:
    if actual.batches != right.batches:
        return f"examples {actual.batches}, not {right.batches}"
    if lost := [name for name in right.rates if name not in actual.rates]:
        return f"the optimizer does not hold {', '.join(lost)}: the model has another parameter in its place"
    if actual.rates != right.rates:
        return f"rates {dict(actual.rates)}, not {dict(right.rates)}"
    if differing := different(present(actual.gradient), present(right.gradient)):
        return f"same examples, another gradient of {differing}"
    if differing := different(actual.state, right.state):
        return f"same gradient, another state of the optimizer: {differing}"
    differing = different(actual.weights, right.weights)
    return f"same gradient, rate and optimizer state, other weights before it: {differing}" if differing else ""


def present(gradient: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """Return the gradients that are not None."""
    return {name: tensor for name, tensor in gradient.items() if tensor is not None}


def different(actual: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> str:
    """Return the names of the tensors that are not bitwise equal, and their differences; "" if all are equal."""
    names = [
        n for n in {**right, **actual} if n not in actual or n not in right or not torch.equal(actual[n], right[n])
    ]
    return ", ".join(_named(name, actual.get(name), right.get(name)) for name in names)


def _named(name: str, actual: Tensor | None, right: Tensor | None) -> str:
    if actual is None or right is None:
        return f"{name} ({'missing' if actual is None else 'only here'})"
    if actual.shape != right.shape:
        return f"{name} (shape {list(actual.shape)}, not {list(right.shape)})"
    if actual.numel() == 1:
        return f"{name} ({actual.item():g}, not {right.item():g})"
    return f"{name} (off by up to {float((actual - right).abs().max()):.3g})"


def table(run: Run) -> str:
    """Return the steps of a run as aligned text; the oracle computes the losses, without dropout."""
    rows: list[tuple[str, ...]] = [("step", "examples", "scored", "loss", "norm", "rate")]
    rows += [_row(run, k) for k in range(min(len(run.steps), ROWS))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in rows]
    hidden = len(run.steps) - ROWS
    return "\n".join([*lines, *([f"... {hidden} more step{'' if hidden == 1 else 's'}"] if hidden > 0 else [])])


def _row(run: Run, k: int) -> tuple[str, ...]:
    step = run.steps[k]
    parts = " | ".join(" ".join(map(str, batch)) for batch in step.batches)
    scored, loss = ("-", "-") if run.job.noise else _loss(run, k)  # noise makes other examples of those of the job
    return str(run.done + k + 1), parts, scored, loss, f"{norm(step.gradient):.6g}", f"{step.rate:.6g}"


def _loss(run: Run, k: int) -> tuple[str, str]:
    """Return the scored tokens of a step and its loss; "-" if the weights before it are unknown."""
    rows = run.named(run.steps[k].names)
    tokens = sum(example.scored for example in rows)
    unknown = not tokens or not run.before(k)
    return str(tokens), "-" if unknown else f"{sums(run.before(k), rows).nats / tokens:.6g}"


def logged(rows: Iterable[Mapping[str, float]], name: str) -> dict[int, float]:
    """Return a logged number by step, for all rows that have this number."""
    return {int(row["step"]): row[name] for row in rows if name in row}


def other_numbers(actual: Mapping[int, float], right: Mapping[int, float], tolerance: float) -> list[int]:
    """Return the steps whose number is missing, unexpected, or not close to the correct number; NaN is close to NaN."""
    both = {**right, **actual}
    return sorted(k for k in both if k not in actual or k not in right or not _same(actual[k], right[k], tolerance))


def _same(actual: float, right: float, tolerance: float) -> bool:
    return (math.isnan(actual) and math.isnan(right)) or close(actual, right, tolerance)
