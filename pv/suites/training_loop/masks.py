"""Check the attention masks that a loop passes to its model: 1 for the tokens of a row, 0 for its padding."""

from collections.abc import Sequence
from itertools import pairwise

from pv.suites.training_loop.probe import PAD, TEXT
from pv.suites.training_loop.recording import Masked
from pv.suites.training_loop.run import Run

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
