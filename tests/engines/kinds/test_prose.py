"""Claims in prose are counted and never tried."""

from pathlib import Path

import pytest

from pv.contract.names import Target
from pv.engines.code import Code
from pv.engines.kind import How
from pv.engines.kinds import kind_of
from pv.source.project import find_project
from tests.engines.kinds.claims import CLAIMS, CONTRACT


def test_prose_cannot_be_tried() -> None:
    code = Code(find_project(Path(__file__).parent), Target("tiny"))
    with pytest.raises(ValueError, match="F is not bound"):
        kind_of(CLAIMS["prose"]).payload(code, CONTRACT, CLAIMS["prose"], How())


@pytest.mark.parametrize("name", ["prose", "prose harness"])
def test_prose_is_shown_as_unbound(name: str) -> None:
    kind = kind_of(CLAIMS[name])
    assert (kind.bound, kind.binding(CLAIMS[name])) == (False, "unbound: its test is prose")
