"""The reply of a worker as a trial."""

from typing import Any

import pytest

from pv.engines.trial import Output, Trial, TrialStatus
from pv.workers import reading
from pv.workers.live import Reply


def trial(*records: dict[str, Any], status: int | None = 0, stopped: str = "") -> Trial:
    reply = Reply(
        records=records, status=status, stopped=stopped, seconds=1.5, cpu_s=0.5, peak_mib=7, output=Output(head="said"),
        limit_s=60.0, memory_mib=500,
    )  # fmt: skip
    return reading.trial(reply, falsifier="F", device="cpu", mutant="m", seed=3)


def test_trial_holds_what_the_last_record_says_and_what_the_pool_measured() -> None:
    end = {"kind": "end", "status": "held", "detail": "d", "valid": 9, "invalid": 2, "reached": ["a:f"], "files": ["b"]}
    found = trial({"kind": "end", "status": "error", "detail": ""}, end)
    assert (found.falsifier, found.device, found.mutant, found.seed) == ("F", "cpu", "m", 3)
    assert (found.status, found.detail, found.valid, found.invalid) == (TrialStatus.HELD, "d", 9, 2)
    assert (found.reached, found.files) == ({"a:f"}, {"b"})
    assert (found.seconds, found.cpu_s, found.peak_mib, found.output.text) == (1.5, 0.5, 7, "said")
    assert found.counterexample is None


@pytest.mark.parametrize(
    ("status", "stopped", "ended", "detail"),
    [
        (0, "", TrialStatus.NO_RESULT, "the worker ended without an answer (exit status 0)"),
        (3 << 8, "", TrialStatus.NO_RESULT, "the worker ended without an answer (exit status 3)"),
        (11, "", TrialStatus.CRASHED, "killed by signal 11 (SIGSEGV)"),
        (None, "", TrialStatus.CRASHED, "the fork server was killed while this task ran alone"),
        (9, "time", TrialStatus.TIMEOUT, "stopped at its limit of 60 s of CPU time"),
        (9, "idle", TrialStatus.TIMEOUT, "stopped after 60 s in which it waited and used no CPU time"),
        (9, "memory", TrialStatus.OUT_OF_MEMORY, "stopped at its memory limit of 500 MiB"),
    ],
)
def test_worker_without_a_result_never_holds(status: int | None, stopped: str, ended: TrialStatus, detail: str) -> None:
    found = trial(status=status, stopped=stopped)
    assert (found.status, found.detail, found.stopped) == (ended, detail, stopped != "")


def test_counterexample_seen_before_a_limit_is_kept() -> None:
    found = trial({"kind": "counterexample", "arguments": {"n": 1}, "error": "e"}, status=9, stopped="time")
    assert found.status is TrialStatus.TIMEOUT
    assert found.counterexample is not None
    assert (found.counterexample.arguments, found.counterexample.error) == ({"n": 1}, "e")
    assert not found.counterexample.exact and not found.counterexample.shrunk


def test_survivors_of_an_equation_are_read() -> None:
    survivor = {"equation": "e", "line": 1, "column": 2, "before": "+", "after": "-"}
    mutants = {"killed": 3, "total": 4, "survivors": [survivor]}
    found = trial({"kind": "end", "status": "held", "detail": "", "equation_mutants": mutants}).equation_mutants
    assert found is not None
    assert (found.killed, found.total, found.survivors[0].after) == (3, 4, "-")
