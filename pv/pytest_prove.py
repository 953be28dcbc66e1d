"""Runs `prove_*` under pytest: at every point of a box that can be counted out, at the first ones of a larger box."""

from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pv.model import Harness

POINTS_OF_A_LARGE_BOX = 10_000


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Stands in for the call of a predicate, whose bounds were all given their harness for a value."""
    from pv.model import Harness

    harness = next((value for value in pyfuncitem.funcargs.values() if isinstance(value, Harness)), None)
    if harness is None:
        return None
    _count_out(pyfuncitem.obj, pyfuncitem.funcargs["subject"], harness)
    return True


def _count_out(predicate: Any, subject: Any, harness: "Harness") -> None:
    from pv.bounds import ENUMERABLE, box

    space = box(harness.bounds, harness.requires)
    most = None if space.size <= ENUMERABLE else POINTS_OF_A_LARGE_BOX
    for point in islice(filter(space.admits, space.points()), most):
        try:
            answer = predicate(subject, **point)
            assert answer is None or answer, f"the predicate answered {answer!r}"
        except BaseException as error:
            error.add_note(f"{harness.id} at {point}")
            raise
