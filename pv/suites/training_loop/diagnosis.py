"""Describe how a run differs from a correct run: in its order, rates, weights or logged numbers; format its steps.

A correct run (`right`) is a run of the same job by the same trainer, such as the uninterrupted run for a resumed one.
"""

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
"""Smallest number of examples whose order is explained. A shorter order is part of many others by chance."""
ROUNDING, DRIFT = 1e-12, 1e-9
"""Allowed rounding of rates, relative to the largest rate, and of weights after steps with such rates."""


def explain_order(actual: Sequence[int], right: Run, skipped: int, cut: int | None = None) -> tuple[str, ...]:
    """Explain the order of a resumed run by the orders of the epochs of the uninterrupted run.

    Args:
        actual: The names of the examples after the cut, in order.
        right: The uninterrupted run.
        skipped: The number of examples of the cut epoch that were used before the cut.
        cut: The index of the epoch that was cut; None to number all epochs.

    Returns:
        The epochs that have this order, from their start or after `skipped` examples, or by how many steps the resumed
        run starts too early or too late; () if there is no explanation, as for a loop without passes over the data.
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
    return exact + _start_offset(actual, right, skipped)


def explain_set(actual: Sequence[int], right: Sequence[int]) -> tuple[str, ...]:
    """Describe an order that no epoch of the uninterrupted run has.

    Args:
        actual: The names of the examples, in order.
        right: The names in the uninterrupted run.

    Returns:
        Whether the examples are the same, or some are replayed; () for fewer than `FEW` examples, or if the numbers
        differ.
    """
    if len({*actual}) < FEW or len({*actual}) != len(right):
        return ()
    same = "the same examples in another order"
    replayed = "examples from before the cut are used again, and others left out"
    return (f"an order that no epoch of the run that was not cut has: {same if {*actual} == {*right} else replayed}",)


def _start_offset(actual: Sequence[int], right: Run, skipped: int) -> tuple[str, ...]:
    """Return by how many steps a resumed run starts too late or too early in its epoch, and the confused units."""
    names, size = [name for step in right.order for name in step], len(right.job.train)
    for epoch in range(len(_epochs(right))):
        for by in (shift for shift in range(-skipped, size - skipped) if shift):
            start = epoch * size + skipped + by
            expected = names[start : start + len(actual)]  # shorter if the run ends before
            if len(expected) >= min(len(actual), FEW + 1) and list(actual[: len(expected)]) == expected:
                part = "a part after the cut is skipped" if by > 0 else "a part before the cut is replayed"
                moved = f"the order of its epoch, but {part}: {_format_examples(abs(by), right)}"
                return (moved, *_unit_confusions(skipped, skipped + by, right))
    return ()


def _epochs(run: Run) -> list[list[int]]:
    """Return the order of each epoch; [] unless every epoch has each example once."""
    names, size = [name for step in run.order for name in step], len(run.job.train)
    orders = [names[epoch * size : (epoch + 1) * size] for epoch in range(len(names) // size)]
    return orders if all(len(set(epoch)) == size for epoch in orders) else []


def _unit_confusions(used: int, start: int, run: Run) -> Iterator[str]:
    """Yield the confusions of units (examples, batches, steps) by which a run resumes at `start`, not at `used`.

    Args:
        used: The number of examples of the epoch that were used before the cut.
        start: The number of examples of the epoch that the resumed run skips.
        run: A run, for the sizes of batch and step.
    """
    sizes = {"batches": run.job.batch, "steps": run.job.batch * run.job.accumulate}
    for unit, size in sizes.items():
        count = -(-used // size)
        if size > 1 and count > 1 and start == count:
            yield f"the number of {unit}, taken for one of examples"
        if size > 1 and used > 1 and start == used * size:
            yield f"the number of examples, taken for one of {unit}"


def _format_examples(examples: int, run: Run) -> str:
    """Format a number of examples, in steps if it is a multiple of the examples of a step."""
    steps, rest = divmod(examples, run.job.batch * run.job.accumulate)
    return f"{examples} examples" if rest else f"{steps} step{'s' * (steps > 1)}"


def explain_rates(actual: Sequence[float], right: Run, done: int = 0) -> tuple[str, ...]:
    """Explain the rates of a resumed run by the rates of the uninterrupted run.

    Args:
        actual: The rates of the resumed run, by step.
        right: The uninterrupted run.
        done: The number of steps before the cut.

    Returns:
        The known mistakes that give these rates, for messages.
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
    # The first p rates continue the schedule, as the restored optimizer has them; the others start it over.
    prefixes = [
        p for p in range(2, n) if [*actual[:p], *rates[p:n]] == list(actual) and list(actual[:p]) == rates[-n:][:p]
    ]
    anew = ("a schedule that starts over after the rate that the optimizer kept: its state is not restored",)
    causes = tuple(f"the schedule of a run that has taken {k} steps (last_epoch {k})" for k in counts)
    return causes or (anew if prefixes else ())


def same_rates(actual: Sequence[float], right: Sequence[float]) -> bool:
    """Return whether rates are equal up to rounding errors."""
    allowed = ROUNDING * max(map(abs, right), default=0.0)
    return len(actual) == len(right) and all(abs(a - b) <= allowed for a, b in zip(actual, right, strict=True))


def end_difference(actual: Run, right: Run, done: int, part: str = "weights") -> str:
    """Describe how the weights at the end of a resumed run differ from the weights of the uninterrupted run.

    Args:
        actual: The run that was resumed after `done` steps.
        right: The uninterrupted run.
        done: The number of steps before the cut.
        part: `weights`, or `average` to compare the running averages.

    Returns:
        The differing tensors; "" if all are bitwise equal. If the rates differ by rounding alone, the weights may
        differ by `DRIFT`.
    """
    ends: tuple[Mapping[str, Tensor], ...] = (getattr(actual, part), getattr(right, part))
    rates = [[rate for step in steps for rate in step.rates.values()] for steps in (actual.steps, right.steps[done:])]
    # Rates that differ by rounding alone give weights that differ by rounding: this is no fault.
    if rates[0] != rates[1] and same_rates(*rates) and ends[0].keys() == ends[1].keys():
        pairs = [(ends[0][name], ends[1][name]) for name in ends[1]]
        if all(torch.allclose(a, b, rtol=DRIFT, atol=DRIFT) for a, b in pairs):
            return ""
    return differing_tensors(*ends)


def first_difference(actual: Run, right: Run, done: int = 0) -> str:
    """Describe the first step in which two runs differ; `actual` was resumed after `done` steps of `right`."""
    for k, (a, b) in enumerate(zip(actual.steps, right.steps[done:], strict=False), done + 1):
        if why := _difference(a, b):
            return f"the first difference is in step {k}: {why}{_earlier_difference(actual, right, k, done)}"
    return "no step differs" if len(actual.steps) + done == len(right.steps) else "the numbers of steps differ"


def explain_difference(actual: Run, right: Run, done: int = 0) -> str:
    """Return what first differs between two runs: `an order`, `random numbers` or `weights`.

    Args:
        actual: The run that is judged; it was resumed after `done` steps of `right`.
        right: The correct run.
        done: The number of steps; 0 if `actual` was not resumed.
    """
    for a, b in zip(actual.steps, right.steps[done:], strict=False):
        if a.batches != b.batches:
            return "an order"
        if a.first and b.first and differing_tensors(a.first, b.first):
            return "weights"
        if differing_tensors(without_none(a.gradient), without_none(b.gradient)):
            return "random numbers" if _draws(actual) else "weights"
    return "weights"


def _draws(run: Run) -> bool:
    """Return whether the training of a run draws random numbers."""
    return bool(run.job.dropout or run.job.noise)


def _earlier_difference(actual: Run, right: Run, k: int, done: int) -> str:
    """Explain a gradient difference at step `k` by an earlier difference; return "" if there is none."""
    a, b = actual.steps[k - done - 1], right.steps[k - 1]
    if a.batches != b.batches or not differing_tensors(without_none(a.gradient), without_none(b.gradient)):
        return ""
    if not a.first or not b.first:  # the model was in eval mode
        return ": other weights or random numbers before it"
    if weights := differing_tensors(a.first, b.first):
        # The weights are equal after the step before and different in this one: something changed them in between.
        after_a_step = k > done + 1 and not differing_tensors(actual.before(k - done - 1), right.before(k - 1))
        return ": weights that change between the steps" if after_a_step else f": other weights before it, {weights}"
    return " of the same weights: other random numbers" if _draws(actual) else " of the same weights"


def _difference(actual: Step, right: Step) -> str:
    """Describe the first difference between two steps, in the order of cause and effect; "" if there is none."""
    if actual.batches != right.batches:
        return f"examples {actual.batches}, not {right.batches}"
    if lost := [name for name in right.rates if name not in actual.rates]:
        return f"the optimizer does not hold {', '.join(lost)}: the model has another parameter in its place"
    if actual.rates != right.rates:
        return f"rates {dict(actual.rates)}, not {dict(right.rates)}"
    if differing := differing_tensors(without_none(actual.gradient), without_none(right.gradient)):
        return f"same examples, another gradient of {differing}"
    if differing := differing_tensors(actual.state, right.state):
        return f"same gradient, another state of the optimizer: {differing}"
    differing = differing_tensors(actual.weights, right.weights)
    return f"same gradient, rate and optimizer state, other weights before it: {differing}" if differing else ""


def without_none(gradient: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """Return the gradients that are not None."""
    return {name: tensor for name, tensor in gradient.items() if tensor is not None}


def differing_tensors(actual: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> str:
    """Describe the tensors that are not bitwise equal, by name; "" if all are equal."""
    names = [
        n for n in {**right, **actual} if n not in actual or n not in right or not torch.equal(actual[n], right[n])
    ]
    return ", ".join(_name_with_difference(name, actual.get(name), right.get(name)) for name in names)


def _name_with_difference(name: str, actual: Tensor | None, right: Tensor | None) -> str:
    """Return the name of a tensor with its difference from the correct one."""
    if actual is None or right is None:
        return f"{name} ({'missing' if actual is None else 'only here'})"
    if actual.shape != right.shape:
        return f"{name} (shape {list(actual.shape)}, not {list(right.shape)})"
    if actual.numel() == 1:
        return f"{name} ({actual.item():g}, not {right.item():g})"
    return f"{name} (off by up to {float((actual - right).abs().max()):.3g})"


def table(run: Run) -> str:
    """Return the steps of a run as a table of text. The losses are computed by the oracle, without dropout."""
    rows: list[tuple[str, ...]] = [("step", "examples", "scored", "loss", "norm", "rate")]
    rows += [_row(run, k) for k in range(min(len(run.steps), ROWS))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in rows]
    hidden = len(run.steps) - ROWS
    return "\n".join([*lines, *([f"... {hidden} more step{'' if hidden == 1 else 's'}"] if hidden > 0 else [])])


def _row(run: Run, k: int) -> tuple[str, ...]:
    step = run.steps[k]
    parts = " | ".join(" ".join(map(str, batch)) for batch in step.batches)
    scored, loss = ("-", "-") if run.job.noise else _loss(run, k)  # noise changes the tokens of the job's examples
    return str(run.done + k + 1), parts, scored, loss, f"{norm(step.gradient):.6g}", f"{step.rate:.6g}"


def _loss(run: Run, k: int) -> tuple[str, str]:
    """Return the scored tokens of a step and its loss as text; "-" for a loss at unknown weights or without tokens."""
    rows = run.examples(run.steps[k].names)
    tokens = sum(example.scored for example in rows)
    unknown = not tokens or not run.before(k)
    return str(tokens), "-" if unknown else f"{sums(run.before(k), rows).nats / tokens:.6g}"


def logged(rows: Iterable[Mapping[str, float]], name: str) -> dict[int, float]:
    """Return a logged number by step, from the rows that have this number."""
    return {int(row["step"]): row[name] for row in rows if name in row}


def differing_steps(actual: Mapping[int, float], right: Mapping[int, float], tolerance: float) -> list[int]:
    """Return the steps whose number is missing, unexpected, or not close to the correct one. NaN is close to NaN."""
    both = {**right, **actual}
    return sorted(k for k in both if k not in actual or k not in right or not _same(actual[k], right[k], tolerance))


def _same(actual: float, right: float, tolerance: float) -> bool:
    return (math.isnan(actual) and math.isnan(right)) or close(actual, right, tolerance)
