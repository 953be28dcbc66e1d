"""Claims about the tokens of a row that are used: its end token, and the first ones of a long row."""

from itertools import product
from typing import Any, cast
from unittest import SkipTest

from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import example, job, unequal
from pv.suites.training_loop.claims.checks import Cases, gradient_cases, judge
from pv.suites.training_loop.job import Example
from pv.suites.training_loop.probe import NAMES, VOCABULARY

CROP = 4


def ending(name: int, length: int, end: int) -> Example:
    """Return an example whose tokens are all scored, the last of which is an end token."""
    row = example(name, length, (1 << length - 1) - 1)
    return Example((*row.tokens[:-1], end), (*row.labels[:-1], end))


def falsify_end_token_is_scored(bench: Bench) -> None:
    end = int(cast("Any", bench.trainer).end)
    if not 0 <= end < VOCABULARY:
        raise SkipTest(f"the end token {end} is not below {VOCABULARY}, the number of tokens of the suite's model")
    names = [name for name in range(*NAMES) if name != end]
    train = tuple(ending(name, length, end) for name, length in zip(names, (5, 3, 5, 4, 5, 2, 5, 5), strict=False))
    cases: Cases = {}
    for batch, accumulate in product((1, 2), (1, 2)):
        cases |= gradient_cases(bench, bench.run(job(train, batch=batch, accumulate=accumulate)))
    judge(cases)


def falsify_long_rows_are_cropped(bench: Bench) -> None:
    train, cases = (*unequal(8), example(9, 8, 0b1110000)), Cases()
    for accumulate in (1, 3):
        cases |= gradient_cases(bench, bench.run(job(train, batch=3, accumulate=accumulate, crop=CROP)))
    judge(cases)
