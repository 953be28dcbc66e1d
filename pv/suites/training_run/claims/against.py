"""Claims about two commands that should take equal steps, such as one rank with accumulation and two ranks."""

from collections.abc import Iterator

from pv.suites.training_run.claim import Record, claim
from pv.suites.training_run.claims.resume import Step, alike, by_rank, same_sums, steps_of
from pv.suites.training_run.run import Comparison, Run

NEEDS = "no second command was run (--against COMMAND)"


def _steps(run: Run) -> list[list[Step]]:
    """Return the steps of the first optimizer of a run. Every step is a list with one `Step` per rank."""
    ranks = [process for _, process in sorted(by_rank(run).items())]
    columns = [steps_of(process, min(process.windows)) for process in ranks if process.windows]
    return [list(row) for row in zip(*columns, strict=False)]


def _examples(row: list[Step]) -> list[int]:
    return sorted(example for step in row for example in step.examples)


def _pairs(run: Run) -> Iterator[tuple[Comparison, list[list[Step]], list[list[Step]], list[list[Step]]]]:
    for comparison in run.comparisons:
        if comparison.kind == "against" and comparison.again:
            yield comparison, _steps(run), _steps(comparison.again), _steps(comparison.parts[0])


@claim("TR-AGAINST-001", NEEDS)
def steps_have_the_same_examples(run: Run, record: Record) -> None:
    """The inputs of a step, over its micro-batches and ranks, are the same rows; their order does not matter.

    Two runs of the first command must have the same rows in every step, or the claim is not judged.
    """
    for _, mine, again, theirs in _pairs(run):
        if [_examples(row) for row in mine] != [_examples(row) for row in again] or not mine or not _examples(mine[0]):
            record.not_reached = "two runs of the first command have different inputs, or inputs without rows"
            continue
        for number, (one, two) in enumerate(zip(mine, theirs, strict=False), 1):
            record.tried += 1
            a, b = _examples(one), _examples(two)
            if a != b:
                record.falsify(
                    two[0].window.at,
                    f"step {number} trains on {len(a)} rows in the first command and on {len(b)} rows in the second; "
                    f"{len(set(a) & set(b))} rows are common",
                    "choose ranks x micro-batches x batch size so that both commands read the same rows in a step",
                )
                break


@claim("TR-AGAINST-002", NEEDS, premises=("TR-AGAINST-001",))
def steps_make_the_same_updates(run: Run, record: Record) -> None:
    """From the same weights and rows, the gradient of a step has the same norm.

    The claim is not judged with dropout or batch normalization, which depend on how rows are divided into batches. Rows
    that are padded to another length, or cropped at random, count as different rows.
    """
    for comparison, mine, again, theirs in _pairs(run):
        layers = any(
            forward["training_layers"]
            for part in (run, comparison.parts[0])
            for process in part.processes
            for forward, _ in process.training_forwards
        )
        if layers or any(one[0].norm != two[0].norm for one, two in zip(mine, again, strict=False)):
            record.not_reached = "dropout, batch normalization or other random numbers change the gradients"
            continue
        for number, (one, two) in enumerate(zip(mine, theirs, strict=False), 1):
            # After the first difference, weights differ, and later gradients differ for that reason.
            if _examples(one) != _examples(two) or not _examples(one) or not _near(one[0], two[0]):
                break
            record.tried += 1
            a, b = one[0].norm, two[0].norm
            # Sums in another order differ by rounding, far below 0.1 %; a wrong divisor is off by a factor.
            if a and b and not alike(a, b, 1e-3):
                record.falsify(
                    two[0].window.at,
                    f"step {number} has the same rows and weights in both commands; the norm of the gradient is "
                    f"{a:.5g} in the first and {b:.5g} in the second: {b / a:.4g} times",
                    "divide the loss by the rows or tokens of the whole step, over all ranks and micro-batches",
                )
                break


def _near(one: Step, two: Step) -> bool:
    """Return whether the weights before a step agree up to rounding errors."""
    if one.before is None or two.before is None:
        return False
    return bool(same_sums(one.before, two.before)) or abs(one.before[0] - two.before[0]) <= 1e-4 * one.before[1]
