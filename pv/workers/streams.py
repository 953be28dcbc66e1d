"""The file descriptors of a worker: its output, and the stream of its evidence."""

import contextlib
import fcntl
import os
from pathlib import Path

EVIDENCE_FD = 200


def adopt(evidence: int, output: int) -> None:
    """Make `output` this process's stdout and stderr, move `evidence` to EVIDENCE_FD, and empty stdin."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for fd in (output, nothing):
        if fd > 2:
            os.close(fd)
    if evidence != EVIDENCE_FD:
        os.dup2(evidence, EVIDENCE_FD)
        os.close(evidence)
    fcntl.fcntl(EVIDENCE_FD, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    volunteer_for_oom_killer()


def volunteer_for_oom_killer() -> None:
    """Let the kernel end this process before others when the machine runs out of memory."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
