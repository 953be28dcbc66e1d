"""What the tests of the claims have in common: they name every cell that fails, and show the steps of the first."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeAlias, TypeVar
from unittest import SkipTest

from pv.equations.causes import difference
from pv.errors import KnownCause
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.diagnosis import different, explain_difference, first_difference, table
from pv.suites.training_loop.job import Job
from pv.suites.training_loop.mistakes import LIMITS, explain_gradient, gradient_ratio, scale_of
from pv.suites.training_loop.oracle import norm, sums
from pv.suites.training_loop.run import Run


@dataclass(frozen=True, slots=True)
class Cell:
    """A case of an enumeration. fault: what is wrong, "" if nothing. causes: the known mistakes that give it.

    hint: printed where no cause is known. untried: why the case says nothing, although it should: the run is not about
    the claim; "" if it is.
    """

    run: Run
    fault: str = ""
    causes: tuple[str, ...] = ()
    hint: str = ""
    untried: str = ""


K = TypeVar("K")
COARSE = 2.0**-6
"""Four roundings to bfloat16, relative: a smaller difference may be one of precision."""
PRECISION = (
    "; rounding alone gives so small a difference where something is computed in another dtype (to bfloat16, up to "
    "0.004 each time): if the loop is to compute in that dtype, the adapter raises `tolerance`"
)
Cells: TypeAlias = dict[str, Cell]


def require(reported: Any, what: str, hint: str) -> None:
    """Raise SkipTest if an adapter has not reported something at all: that says nothing of the trainer."""
    if not reported:
        raise SkipTest(f"the adapter reports no {what}; {hint}")


def require_steps(*runs: Run) -> None:
    """Raise SkipTest if no run takes a step: then nothing was tried."""
    if not any(run.steps for run in runs):
        raise SkipTest("no step is taken, so nothing can be judged")


def require_forwards(run: Run) -> None:
    """Raise SkipTest if a step follows no forward in training mode: what it should be is not known."""
    if without := [k for k, step in enumerate(run.steps, 1) if not step.batches]:
        mode = ": the training examples have theirs in eval mode" if trains_in_eval_mode(run) else ""
        raise SkipTest(f"no forward in training mode was seen before step {without[0]}{mode}")


def require_rate(bench: Bench, run: Run) -> None:
    """Raise SkipTest if the first step has the rate 0 by a schedule of the loop's own: then it changes nothing."""
    expected = getattr(bench.trainer, "expected_rate", None)
    own = bench.missing("", ("schedule",)) or (expected is not None and not expected(run.job, 0, len(run.steps)))
    if run.steps and not run.steps[0].rate and own:
        raise SkipTest("the first step has the rate 0 by the schedule of the loop")


def trains_in_eval_mode(run: Run) -> bool:
    """Return whether there are steps without a forward in training mode, and training examples in eval mode."""
    own, blind = {each.name for each in run.job.train}, any(not step.batches for step in run.steps)
    return blind and any(own & set(names) for names in run.graded)


def refute(fault: str, run: Run, causes: tuple[str, ...] = (), rest: str = "") -> NoReturn:
    """Show the steps of a run, and raise AssertionError; `KnownCause` if there are causes. rest: follows them."""
    print(table(run))  # noqa: T201  # a report shows what the failing example has printed
    message = f"{fault}{it_is(causes)}{rest}"
    raise KnownCause(message) if causes else AssertionError(message)


MANY = 4
"""Failing cells, of which more than one has the cause."""


def judge(cells: Cells, unexplained: str = "") -> None:
    """Refute the claim if a cell has a fault: explain the most telling one, and name all that have one.

    unexplained: a hint where no cause is known and the cell has none. Raise SkipTest if there is no cell, or one that
    was not tried.
    """
    if not cells:
        raise SkipTest("no case of the claim can be tried: no run of the loop has a step or a checkpoint it is about")
    failed = {name: cell for name, cell in cells.items() if cell.fault}
    if not failed:
        if untried := {name: cell.untried for name, cell in cells.items() if cell.untried}:
            name = next(iter(untried))
            raise SkipTest(f"{name}: {untried[name]}")
        return
    name, causes = telling({each: cell.causes for each, cell in failed.items()})
    which = "all" if len(failed) == len(cells) else "; ".join(failed)
    others = f" ({len(failed)} of {len(cells)} cells fail: {which})" if len(cells) > 1 else ""
    hint = "" if causes else failed[name].hint or unexplained
    refute(f"{name}: {failed[name].fault}", failed[name].run, causes, f"{hint}{others}")


def telling(cells: Mapping[K, Sequence[str]]) -> tuple[K, tuple[str, ...]]:
    """Return the name of the cell whose causes most cells share, of several that with the fewest, and those causes.

    A cause that a single one of at least `MANY` cells has is a coincidence.
    """
    if len(cells) >= MANY and sum(map(bool, cells.values())) == 1:
        return next(iter(cells)), ()
    times = Counter(cause for causes in cells.values() for cause in dict.fromkeys(causes))

    def most(causes: Sequence[str]) -> int:
        return max((times[cause] for cause in causes), default=0)

    name = min(cells, key=lambda each: (-most(cells[each]), len(cells[each])))
    return name, tuple(cause for cause in cells[name] if times[cause] == most(cells[name]))


def it_is(causes: tuple[str, ...]) -> str:
    """Return "; it is A, or B"; "" if there is no cause."""
    return f"; it is {', or '.join(causes)}" if causes else ""


def unchanged(bench: Bench, with_it: Job, off: str, what: str, count: Callable[[Run], int]) -> Cells:
    """Return a cell for each accumulation: a run is that of the job in which the cadence `off` is 0, bit for bit.

    count: of what a run shows of it. Where there is no more of it than in the other run, two runs are compared that do
    not differ in what the claim is about.
    """
    cells: Cells = {}
    for accumulate in (1, 2):
        job = replace(with_it, accumulate=accumulate)
        without: dict[str, Any] = {off: 0}
        run, plain = bench.run(job), bench.run(replace(job, **without))
        same = run.order == plain.order and not different(run.weights, plain.weights)
        if same and not (run.steps and count(run) > count(plain)):
            why = f"the run where `job.{off}` is 0 has as many {what} as the one where it is {getattr(job, off)}"
            hint = f"let the adapter make none where it is 0, and some where it is not ({count(run)} are seen)"
            cells[f"accumulation {accumulate}"] = Cell(run, untried=f"{why}, or no step is taken: {hint}")
            continue
        fault = "" if same else f"beside the run without {what}, {first_difference(run, plain)}"
        beside = off != "eval_every" and len(run.evaluated) > len(plain.evaluated)
        changing = f"the evaluations that come with {what}" if beside else what
        causes = (f"{explain_difference(run, plain)} that {changing} change",) if fault else ()
        cells[f"accumulation {accumulate}"] = Cell(run, fault, causes)
    return cells


def gradient_cell(bench: Bench, run: Run, k: int) -> Cell:
    """Return how the gradient at index k differs from that of the token mean over the examples since the last step."""
    step, tolerance = run.steps[k], bench.trainer.tolerance
    if not step.batches:
        causes = ("a training in eval mode",) if trains_in_eval_mode(run) else ()
        return Cell(run, "the optimizer steps without a forward in training mode since the last step", causes)
    right = sums(run.before(k), run.named(step.names))
    wanted = {name: each / max(right.tokens, 1) for name, each in right.gradient.items()}
    off = difference(step.gradient, wanted)
    if off < tolerance:
        return Cell(run)
    scored = [[each.scored for each in run.named(batch)] for batch in step.batches]
    ratio = gradient_ratio(run, k, tolerance)
    if ratio is not None and 0 < ratio < 1 and bench.missing("", ("clip",)) and scale_of(run, k) is None:
        _skip_clipped(norm(step.gradient))
    length = f"is {ratio:.6g} times" if ratio is not None else f"differs by {off:.2g} of the largest element from"
    fault = (
        f"on the examples {[list(batch) for batch in step.batches]} with {scored} scored tokens, the gradient (norm "
        f"{norm(step.gradient):.6g}) {length} that of the token mean (norm {norm(wanted):.6g})"
    )
    return Cell(run, fault, explain_gradient(run, k, tolerance), PRECISION if off < COARSE else "")


def _skip_clipped(length: float) -> None:
    """Raise SkipTest if a gradient that is too short has the length of a usual limit."""
    if any(math.isclose(length, limit, rel_tol=1e-4) for limit in LIMITS):
        hint = "hand `job.clip` to it (None is no limit), and do not name `clip` as missing in `features`"
        raise SkipTest(f"the gradient has the norm {length:.3g}, as of a loop that clips at a limit of its own: {hint}")


def gradient_cells(bench: Bench, run: Run, which: Callable[[int, int], bool] = lambda taken, planned: True) -> Cells:
    """Return a cell for a run: its first fault, of the steps whose micro-batches, taken and planned, are asked for.

    There is no cell if the run has no such step.
    """
    job, taken = run.job, [len(step.batches) for step in run.steps]
    cells = [gradient_cell(bench, run, k) for k, each in enumerate(taken) if which(each, job.accumulate)]
    faults = {k: cell for k, cell in enumerate(cells, 1) if cell.fault}
    name = f"{len(job.train)} examples, batch {job.batch}, accumulation {job.accumulate}, seed {job.seed}"
    if not faults:
        return {name: Cell(run)} if cells else {}
    k, causes = telling({each: cell.causes for each, cell in faults.items()})
    return {f"{name}, {len(faults)} of {len(cells)} steps": replace(faults[k], causes=causes)}
