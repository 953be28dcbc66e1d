"""Claims about two commands that should take equal steps, such as one rank that accumulates gradients and two ranks.

`pv check --against COMMAND` runs the first command twice and the second once. The repetition shows whether the inputs
and gradients of the first command depend on chance.
"""

from collections.abc import Iterator

from pv.suites.training_run.claim import Record, claim
from pv.suites.training_run.claims.resume import Step, alike, by_rank, same_sums, steps_of
from pv.suites.training_run.run import Comparison, Run

NOT_REACHED = "no second command was run (--against COMMAND)"


def _steps(run: Run) -> list[list[Step]]:
    """Return the steps of the first optimizer of a run: for every step, a list with the `Step` of every rank."""
    processes = [process for _, process in sorted(by_rank(run).items())]
    ranks = [steps_of(process, min(process.windows)) for process in processes if process.windows]
    return [list(ranks_of_step) for ranks_of_step in zip(*ranks, strict=False)]


def _examples(ranks: list[Step]) -> list[int]:
    """Return the hashes of all rows of a step on all ranks, in ascending order."""
    return sorted(example for step in ranks for example in step.examples)


def _comparisons(run: Run) -> Iterator[tuple[Comparison, list[list[Step]], list[list[Step]], list[list[Step]]]]:
    """Yield comparisons, with the steps of the first command, of its repetition and of the second command."""
    for comparison in run.comparisons:
        if comparison.kind == "against" and comparison.repeat:
            yield comparison, _steps(run), _steps(comparison.repeat), _steps(comparison.parts[0])


@claim("TR-AGAINST-001", NOT_REACHED)
def steps_have_the_same_examples(run: Run, record: Record) -> None:
    """The rows of a step, over its micro-batches and ranks, differ between the commands. Their order does not matter.

    The claim is judged only if two runs of the first command have the same rows in every step.
    """
    for _, first, repeat, second in _comparisons(run):
        if list(map(_examples, first)) != list(map(_examples, repeat)) or not first or not _examples(first[0]):
            record.not_reached = "two runs of the first command have different inputs, or inputs without rows"
            continue
        for number, (one, two) in enumerate(zip(first, second, strict=False), 1):
            record.tried += 1
            a, b = _examples(one), _examples(two)
            if a != b:
                record.falsify(
                    two[0].window.at,
                    f"step {number} trains on {len(a)} rows in the first command and on {len(b)} rows in the second; "
                    f"{len(set(a) & set(b))} rows are in both",
                    "choose ranks x micro-batches x batch size so that both commands read the same rows in a step",
                )
                break


@claim("TR-AGAINST-002", NOT_REACHED, premises=("TR-AGAINST-001",))
def steps_make_the_same_updates(run: Run, record: Record) -> None:
    """The norm of the gradient of a step differs between the commands, with the same weights and rows.

    The claim is not judged with dropout or batch normalization, whose results depend on the division of rows into
    batches, or if the norms differ between two runs of the first command. Rows that are padded to another length, or
    cropped at random, count as different rows.
    """
    for comparison, first, repeat, second in _comparisons(run):
        has_layers = any(
            forward["training_layers"]
            for part in (run, comparison.parts[0])
            for process in part.processes
            for forward, _ in process.training_forwards
        )
        if has_layers or any(one[0].norm != two[0].norm for one, two in zip(first, repeat, strict=False)):
            record.not_reached = "dropout, batch normalization or random numbers change the gradients"
            continue
        for number, (one, two) in enumerate(zip(first, second, strict=False), 1):
            # After the first difference, the weights differ, and therefore all later gradients.
            if _examples(one) != _examples(two) or not _examples(one) or not _same_weights(one[0], two[0]):
                break
            record.tried += 1
            a, b = one[0].norm, two[0].norm
            # Sums in another order differ by rounding, far below 0.1 %; a wrong divisor is off by a factor.
            if a and b and not alike(a, b, 1e-3):
                record.falsify(
                    two[0].window.at,
                    f"step {number} has the same rows and weights in both commands; the norm of the gradient is "
                    f"{a:.5g} in the first and {b:.5g} in the second, which is {b / a:.4g} times the first",
                    "divide the loss by the rows or tokens of the whole step, over all ranks and micro-batches",
                )
                break


def _same_weights(one: Step, two: Step) -> bool:
    """Return whether the weights before a step agree up to rounding errors."""
    a, b = one.weights_before, two.weights_before
    return a is not None and b is not None and (bool(same_sums(a, b)) or abs(a[0] - b[0]) <= 1e-4 * a[1])
