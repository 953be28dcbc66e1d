"""`pv.suite` makes a test of every claim of a suite."""

from collections.abc import Callable
from pathlib import Path

from tests.pytest_plugin.subprocesses import run_pytest

TEST = """
import pv
from trainers import Dropped, Reserved, Unclipped

@pv.suite("training-loop", trainer=Unclipped)
def test_unclipped(claim):
    claim()

@pv.suite("training-loop", trainer=Reserved)
def test_reserved(claim):
    claim()

@pv.suite("training-loop", trainer=Dropped())
def test_dropped(claim):
    claim()
"""


def test_each_claim_is_a_test(project: Callable[[str], Path]) -> None:
    folder = project("trainers")
    (folder / "test_trainers.py").write_text(TEST)
    ended = run_pytest("test_trainers.py", "-rfs", "-k", "TL-CLIP-001 or TL-DATA-002")
    assert "FAILED test_trainers.py::test_unclipped[TL-CLIP-001] - AssertionError" in ended.stdout
    assert "not claimed: it never clips (README, section Clipping)" in ended.stdout
    assert "FAILED test_trainers.py::test_dropped[TL-DATA-002]" in ended.stdout
    assert "vacuous: its premise TL-DATA-001 does not hold" in ended.stdout
    assert "2 failed, 3 passed, 1 skipped" in ended.stdout
