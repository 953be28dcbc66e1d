"""Huge pages of the fork server."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import ctypes, json, mmap
from pathlib import Path
from pv.workers import pages

def huge():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages:"))

probe = mmap.mmap(-1, 8 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
probe.write(bytes(len(probe)))
address = ctypes.addressof(ctypes.c_char.from_buffer(probe))
refused = ctypes.CDLL(None).madvise(ctypes.c_void_p(address), ctypes.c_size_t(len(probe)), 25)
kept = bytearray(range(256)) * (1 << 16)
before = huge()
pages.collapse()
unchanged = kept == bytearray(range(256)) * (1 << 16)
print(json.dumps({"refused": refused, "before": before, "after": huge(), "unchanged": unchanged}))
"""


def test_memory_is_unchanged_and_in_huge_pages() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["unchanged"]
    if found["refused"]:
        pytest.skip("this kernel makes no huge pages on request: it is older than 6.1, or they are turned off")
    assert found["after"] >= found["before"]
    assert found["after"] >= 14 * 1024, "KiB: less than the 16 MiB that were written, and the probe, are in huge pages"
