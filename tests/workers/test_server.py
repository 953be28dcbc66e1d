"""A fork copies few pages when it allocates, if the free blocks of its parent were filled."""

from tests.support.processes import python

SCRIPT = """
import os, resource, sys
from pv.workers import server

objects = [bytes(31) for _ in range(1 << 16)]
del objects[::64]  # a free block in each page
if sys.argv[1:]:
    server.fill_free_blocks()
if not os.fork():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    kept = [bytes(31) for _ in range(1 << 10)]
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    sys.stdout.flush()
    os._exit(0)
os.wait()
"""


def _faults(*arguments: str) -> int:
    return int(python("-c", SCRIPT, *arguments).stdout)


def test_a_fork_copies_few_pages_once_free_blocks_are_filled() -> None:
    assert _faults("fill") < _faults() / 4
