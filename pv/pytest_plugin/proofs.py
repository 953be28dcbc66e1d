"""Runs `prove_*` under pytest: at every point of a small box, at the first points of a large one."""

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pv.contract.claims import Harness

POINTS_OF_A_LARGE_BOX = 10_000


@dataclass(frozen=True, slots=True)
class WholeBox:
    """The value of each bound of a predicate: the whole box of its harness."""

    harness: "Harness"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Try a predicate at the points of its box, instead of calling it once."""
    whole = next((value for value in pyfuncitem.funcargs.values() if isinstance(value, WholeBox)), None)
    if whole is None:
        return None
    _try_box(pyfuncitem.obj, pyfuncitem.funcargs["subject"], whole.harness)
    return True


def _try_box(predicate: Any, subject: Any, harness: "Harness") -> None:
    """Try the points of a box. Fail if there is none, skip as undecided if not all of a large box were tried."""
    from pv.contract.bounds import ENUMERABLE, box

    space, tried = box(harness.bounds, harness.requires), 0
    most = None if space.size <= ENUMERABLE else POINTS_OF_A_LARGE_BOX
    for point in filter(space.admits, islice(space.points(), most)):
        tried += 1
        try:
            answer = predicate(subject, **point)
            assert answer is None or answer, f"the predicate returned {answer!r}"
        except BaseException as error:
            error.add_note(f"{harness.id} at {point}")
            raise
    if most is not None:
        rerun = f"`pv validate --only {harness.id}` searches all"
        pytest.skip(f"undecided: held at {tried:,} of {space.size:,} points; {rerun}")
    if not tried:
        pytest.fail(f"{harness.id} is vacuous: the box has no point", pytrace=False)
