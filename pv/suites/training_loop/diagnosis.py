"""Describe how a run differs from a correct run: in its order, rates, weights or logged numbers; format its steps.

A correct run (`expected`) is a run by the same trainer that must have equal steps, such as the uninterrupted run, or a
run without evaluations. The cut of a resumed run is the point of its checkpoint in the uninterrupted run.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from pv.suites.training_loop.oracle import close, norm, sums
from pv.suites.training_loop.probe import Step
from pv.suites.training_loop.run import Run

MAX_ROWS = 24
"""Largest number of steps in a table."""
MIN_EXAMPLES = 3
"""Smallest number of examples whose order is explained. A shorter order is part of many other orders by chance."""
RATE_ROUNDING, WEIGHT_ROUNDING = 1e-12, 1e-9
"""Allowed rounding of rates, relative to the largest rate, and of weights after steps with such rates."""


def explain_order(actual: Sequence[int], expected: Run, skipped: int, cut: int | None = None) -> tuple[str, ...]:
    """Explain the order of a resumed run by the orders of the epochs of the uninterrupted run.

    Args:
        actual: The names of the examples after the cut, in order.
        expected: The uninterrupted run.
        skipped: The number of examples of the interrupted epoch that were used before the cut.
        cut: The index of the interrupted epoch; None to name all epochs by their number.

    Returns:
        Causes for messages: the epochs that have this order, from their start or after `skipped` examples, and the
        number of steps or examples by which the resumed run starts too early or too late. Without examples, the cause
        is that the rest of the epoch is left out. () if there is no explanation, as for a loop without passes over the
        data, or for fewer than `MIN_EXAMPLES` examples.
    """
    if not actual:
        return ("nothing: the rest of the epoch is left out",)
    if len(actual) < MIN_EXAMPLES:
        return ()
    orders = {}
    for epoch, epoch_order in enumerate(_epochs(expected)):
        name = "the interrupted epoch" if epoch == cut else f"epoch {epoch + 1}"
        orders[f"the order of {name} from its start"] = epoch_order
        if skipped:
            orders[f"the order of {name} without its first {skipped} examples"] = epoch_order[skipped:]
    exact = tuple(name for name, order in orders.items() if list(actual) == order[: len(actual)])
    return exact + _start_offset(actual, expected, skipped)


def explain_set(actual: Sequence[int], expected: Sequence[int]) -> tuple[str, ...]:
    """Describe an order that no epoch of the uninterrupted run has.

    Args:
        actual: The names of the examples, in order.
        expected: The names in the uninterrupted run.

    Returns:
        A cause for messages, which says whether the examples are the same. () for fewer than `MIN_EXAMPLES` distinct
        examples, or if their number is not the number of expected examples.
    """
    if len({*actual}) < MIN_EXAMPLES or len({*actual}) != len(expected):
        return ()
    same = "the same examples in another order"
    replayed = "examples from before the cut are used again, and other examples are left out"
    return (f"an order that no epoch of the uninterrupted run has: {same if {*actual} == {*expected} else replayed}",)


def _start_offset(actual: Sequence[int], expected: Run, skipped: int) -> tuple[str, ...]:
    """Return the steps or examples by which a resumed run starts too late or early, and the confused units, as text.

    For the arguments, see `explain_order`.
    """
    names, size = [name for step in expected.order for name in step], len(expected.job.train)
    for epoch in range(len(_epochs(expected))):
        for offset in (offset for offset in range(-skipped, size - skipped) if offset):
            start = epoch * size + skipped + offset
            part_order = names[start : start + len(actual)]  # shorter if the uninterrupted run ends earlier
            if len(part_order) >= min(len(actual), MIN_EXAMPLES + 1) and list(actual[: len(part_order)]) == part_order:
                part = "a part after the cut is skipped" if offset > 0 else "a part before the cut is replayed"
                cause = f"the order of its epoch, but {part}: {_format_examples(abs(offset), expected)}"
                return (cause, *_unit_confusions(skipped, skipped + offset, expected))
    return ()


def _epochs(run: Run) -> list[list[int]]:
    """Return the order of each complete epoch; [] unless each of them has every example once."""
    names, size = [name for step in run.order for name in step], len(run.job.train)
    orders = [names[epoch * size : (epoch + 1) * size] for epoch in range(len(names) // size)]
    return orders if all(len(set(epoch)) == size for epoch in orders) else []


def _unit_confusions(used: int, start: int, run: Run) -> Iterator[str]:
    """Yield confusions of units (examples, batches, steps) that explain a resume at `start` instead of `used`.

    Args:
        used: The number of examples of the epoch that were used before the cut.
        start: The number of examples of the epoch that the resumed run skips.
        run: A run, for the sizes of batch and step.
    """
    examples_by_unit = {"batches": run.job.batch, "steps": run.job.batch * run.job.accumulate}
    for unit, size in examples_by_unit.items():
        count = -(-used // size)
        if size > 1 and count > 1 and start == count:
            yield f"the number of {unit}, taken for a number of examples"
        if size > 1 and used > 1 and start == used * size:
            yield f"the number of examples, taken for a number of {unit}"


def _format_examples(examples: int, run: Run) -> str:
    """Format a number of examples, in steps if it is a multiple of the examples of a step."""
    steps, rest = divmod(examples, run.job.batch * run.job.accumulate)
    return f"{examples} examples" if rest else f"{steps} step{'s' * (steps > 1)}"


def explain_rates(actual: Sequence[float], expected: Run, done: int = 0) -> tuple[str, ...]:
    """Explain the rates of a resumed run by the rates of the uninterrupted run.

    Args:
        actual: The rates of the resumed run, by step.
        expected: The uninterrupted run.
        done: The number of steps before the cut.

    Returns:
        The known mistakes that give these rates, for messages.
    """
    rates, n = [step.rate for step in expected.steps], len(actual)
    if n > 1 and actual[0] == rates[0] and list(actual[1:]) == rates[1 - n :]:
        return (
            "the rate of a new optimizer in the first step: the rate or the state of the optimizer is not restored",
        )
    # The numbers k of steps for which the rates equal the rates of a run that has taken k steps. The first rate may
    # come from the restored optimizer, so compare from the second rate on.
    counts = [k for k in range(len(rates)) if n > 1 and list(actual[1:]) == rates[k + 1 : k + n]]
    rates_after_twice = rates[2 * done :]
    if not counts and len(rates_after_twice) > 1 and same_rates(actual[: len(rates_after_twice)], rates_after_twice):
        return (f"the schedule of a run that has taken {2 * done} steps: the steps before the cut count twice",)
    if counts:
        return tuple(f"the schedule of a run that has taken {k} steps (last_epoch {k})" for k in counts)
    # The first p rates continue the schedule, with the rates of the restored optimizer. Later rates start it over.
    starts_over = any(list(actual) == [*rates[-n:][:p], *rates[p:n]] for p in range(2, n))
    cause = "a schedule that starts over after the restored rate of the optimizer: the state of the schedule is lost"
    return (cause,) if starts_over else ()


def same_rates(actual: Sequence[float], expected: Sequence[float]) -> bool:
    """Return whether rates are equal up to rounding errors."""
    allowed = RATE_ROUNDING * max(map(abs, expected), default=0.0)
    return len(actual) == len(expected) and all(abs(a - b) <= allowed for a, b in zip(actual, expected, strict=True))


def end_difference(actual: Run, expected: Run, done: int, part: str = "weights") -> str:
    """Describe how the weights at the end of a resumed run differ from the weights of the uninterrupted run.

    Args:
        actual: The run that was resumed after `done` steps.
        expected: The uninterrupted run.
        done: The number of steps before the cut.
        part: `weights`, or `average` to compare the running averages.

    Returns:
        The differing tensors; "" if all are bitwise equal. If the rates differ by rounding alone, the weights may
        differ by `WEIGHT_ROUNDING`.
    """
    ends: tuple[Mapping[str, Tensor], ...] = (getattr(actual, part), getattr(expected, part))
    rates = [[r for step in steps for r in step.rates.values()] for steps in (actual.steps, expected.steps[done:])]
    # If the rates differ only by rounding, the weights also differ only by rounding. This is not a fault.
    if rates[0] != rates[1] and same_rates(*rates) and ends[0].keys() == ends[1].keys():
        pairs = [(ends[0][name], ends[1][name]) for name in ends[1]]
        if all(torch.allclose(a, b, rtol=WEIGHT_ROUNDING, atol=WEIGHT_ROUNDING) for a, b in pairs):
            return ""
    return differing_tensors(*ends)


def first_difference(actual: Run, expected: Run, done: int = 0) -> str:
    """Describe the first step in which two runs differ; `actual` was resumed after `done` steps of `expected`."""
    for k, (a, b) in enumerate(zip(actual.steps, expected.steps[done:], strict=False), done + 1):
        if text := _difference(a, b):
            return f"the first difference is in step {k}: {text}{_earlier_difference(actual, expected, k, done)}"
    return "no step differs" if len(actual.steps) + done == len(expected.steps) else "the numbers of steps differ"


def explain_difference(actual: Run, expected: Run, done: int = 0) -> str:
    """Return what first differs between two runs: `an order`, `random numbers` or `weights`.

    Args:
        actual: The run that is judged. It was resumed after `done` steps of `expected`.
        expected: The correct run.
        done: The number of steps before the resume; 0 if `actual` was not resumed.
    """
    for a, b in zip(actual.steps, expected.steps[done:], strict=False):
        if a.batches != b.batches:
            return "an order"
        if a.weights_before and b.weights_before and differing_tensors(a.weights_before, b.weights_before):
            return "weights"
        if differing_tensors(without_none(a.gradient), without_none(b.gradient)):
            return "random numbers" if _draws_random_numbers(actual) else "weights"
    return "weights"


def _draws_random_numbers(run: Run) -> bool:
    """Return whether the training of a run draws random numbers."""
    return bool(run.job.dropout or run.job.noise)


def _earlier_difference(actual: Run, expected: Run, k: int, done: int) -> str:
    """Explain a gradient difference at step `k` by an earlier difference; return "" if there is none."""
    a, b = actual.steps[k - done - 1], expected.steps[k - 1]
    if a.batches != b.batches or not differing_tensors(without_none(a.gradient), without_none(b.gradient)):
        return ""
    if not a.weights_before or not b.weights_before:  # the model was in eval mode
        return ": other weights or random numbers before the step"
    if weights := differing_tensors(a.weights_before, b.weights_before):
        # If the weights are equal after the previous step, they were changed between the two steps.
        is_between_steps = k > done + 1 and not differing_tensors(actual.before(k - done - 1), expected.before(k - 1))
        between = ": weights that change between the steps"
        return between if is_between_steps else f": other weights before the step, {weights}"
    return " at the same weights: other random numbers" if _draws_random_numbers(actual) else " at the same weights"


def _difference(actual: Step, expected: Step) -> str:
    """Describe the first difference between two steps, in the order of cause and effect; "" if there is none."""
    if actual.batches != expected.batches:
        return f"examples {actual.batches}, not {expected.batches}"
    if lost := [name for name in expected.rates if name not in actual.rates]:
        return f"the optimizer does not hold {', '.join(lost)}: the model has another parameter instead"
    if actual.rates != expected.rates:
        return f"rates {dict(actual.rates)}, not {dict(expected.rates)}"
    if differing := differing_tensors(without_none(actual.gradient), without_none(expected.gradient)):
        return f"same examples, another gradient of {differing}"
    if differing := differing_tensors(actual.state, expected.state):
        return f"same gradient, another state of the optimizer: {differing}"
    differing = differing_tensors(actual.weights, expected.weights)
    return f"same gradient, rate and optimizer state, other weights before the step: {differing}" if differing else ""


def without_none(gradient: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """Return the gradients that are not None."""
    return {name: tensor for name, tensor in gradient.items() if tensor is not None}


def differing_tensors(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str:
    """Describe the tensors that are not bitwise equal, by name; "" if all are equal."""
    both = actual.keys() & expected.keys()
    names = [n for n in {**expected, **actual} if n not in both or not torch.equal(actual[n], expected[n])]
    return ", ".join(_name_with_difference(name, actual.get(name), expected.get(name)) for name in names)


def _name_with_difference(name: str, actual: Tensor | None, expected: Tensor | None) -> str:
    """Return the name of a tensor with its difference from the correct tensor."""
    if actual is None or expected is None:
        return f"{name} ({'missing' if actual is None else 'unexpected'})"
    if actual.shape != expected.shape:
        return f"{name} (shape {list(actual.shape)}, not {list(expected.shape)})"
    if actual.numel() == 1:
        return f"{name} ({actual.item():g}, not {expected.item():g})"
    return f"{name} (off by up to {float((actual - expected).abs().max()):.3g})"


def table(run: Run) -> str:
    """Return the steps of a run as a table of text. The losses are computed by the oracle, without dropout."""
    rows: list[tuple[str, ...]] = [("step", "examples", "scored", "loss", "norm", "rate")]
    rows += [_row(run, k) for k in range(min(len(run.steps), MAX_ROWS))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in rows]
    hidden = len(run.steps) - MAX_ROWS
    return "\n".join([*lines, *([f"... {hidden} more step{'' if hidden == 1 else 's'}"] if hidden > 0 else [])])


def _row(run: Run, k: int) -> tuple[str, ...]:
    """Return the cells of the step at index k."""
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


def differing_steps(actual: Mapping[int, float], expected: Mapping[int, float], tolerance: float) -> list[int]:
    """Return the steps whose number is missing, unexpected, or not close to the correct number. NaN is close to NaN."""
    both, steps = actual.keys() & expected.keys(), {**expected, **actual}
    return sorted(k for k in steps if k not in both or not _is_close(actual[k], expected[k], tolerance))


def _is_close(actual: float, expected: float, tolerance: float) -> bool:
    return (math.isnan(actual) and math.isnan(expected)) or close(actual, expected, tolerance)
