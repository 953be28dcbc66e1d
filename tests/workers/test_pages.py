"""Huge pages of the fork server."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json
from pathlib import Path
from pv.workers import pages

def huge():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages:"))

kept = bytearray(range(256)) * (1 << 16)
before = huge()
pages.collapse()
print(json.dumps({"before": before, "after": huge(), "kept": kept == bytearray(range(256)) * (1 << 16)}))
"""


def test_memory_is_unchanged_and_in_huge_pages_where_there_are_any() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["kept"]
    assert found["after"] >= found["before"]
    if found["after"] < 8192:  # KiB; 16 MiB were written
        pytest.skip("this kernel made no huge pages: it is older than 6.1, has none left, or they are turned off")
