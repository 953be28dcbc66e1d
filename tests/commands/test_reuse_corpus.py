"""A change of each kind is made to the project of `benchmarks/reuse.py`: no result that is reused would be another."""

import re
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks/reuse.py"


def test_no_result_is_stale_after_a_change_of_each_kind() -> None:
    command = [sys.executable, str(BENCHMARK), "--kinds", "--verbose"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    *changes, counts = done.stdout.splitlines()
    assert re.fullmatch(r"19 changes, \d+% of \d+ results reused, 0 stale", counts), done.stdout
    reused = [re.search(r": (\d+) of (\d+) reused", line) for line in changes]
    assert all(found is not None and found[1] != found[2] for found in reused), done.stdout
