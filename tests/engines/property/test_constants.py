"""Hypothesis draws constants of source code as examples from the subject alone, however it is started."""

from pathlib import Path

import pytest

from tests.support.processes import python

DRAWING = """
import sys
sys.path.insert(0, {folder!r})
from pv.engines.property import constants
import loaded_before
{prepare}
import loaded_beside, subject
constants.draw_from("subject")
from hypothesis import given, seed, settings, strategies as st

drawn = set()

@seed(1)
@settings(max_examples=1000, database=None)
@given(st.integers())
def collect(number):
    drawn.add(number)

collect()
print(sorted(drawn & {{123454321, 234565432, 345676543}}))
"""


@pytest.mark.parametrize("prepare", ["", "constants.draw_from()"], ids=["spawned", "forked"])
def test_constants_of_the_subject_alone_are_drawn(tmp_path: Path, prepare: str) -> None:
    for name, number in {"subject": 123454321, "loaded_before": 234565432, "loaded_beside": 345676543}.items():
        (tmp_path / f"{name}.py").write_text(f"def limit():\n    return {number}\n")
    ended = python("-c", DRAWING.format(folder=str(tmp_path / ""), prepare=prepare), cwd=tmp_path)
    assert ended.stdout == "[123454321]\n", ended.stderr
