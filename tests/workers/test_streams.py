"""The file descriptors of a worker."""

import os
import subprocess
import sys
import tempfile

SCRIPT = """
import os, sys
from pv.workers.streams import EVIDENCE_FD, adopt
adopt(int(sys.argv[1]), int(sys.argv[2]))
print("stdin", repr(sys.stdin.read()), flush=True)
print("stderr", file=sys.stderr, flush=True)
os.write(EVIDENCE_FD, b"evidence")
print("inherited", os.get_inheritable(EVIDENCE_FD), flush=True)
"""


def test_output_evidence_and_empty_stdin_are_apart() -> None:
    with tempfile.TemporaryFile() as evidence, tempfile.TemporaryFile() as output:
        fds = (evidence.fileno(), output.fileno())
        command = [sys.executable, "-c", SCRIPT, *map(str, fds)]
        done = subprocess.run(command, pass_fds=fds, input=b"typed", capture_output=True, check=True)
        assert (done.stdout, done.stderr) == (b"", b"")
        written = [os.pread(fd, 1000, 0) for fd in fds]
    assert written == [b"evidence", b"stdin ''\nstderr\ninherited False\n"]
