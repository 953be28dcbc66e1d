"""Attacks on the go or no-go of a smoke run, the checks that decide it, and the exit code that follows.

The subject is `reference_trainer.pipeline.smoke`; where stated, it is the command line, `reference_trainer.cli`.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.distill_report.summaries import distilled_with, result_of
from falsifiers.distill_smoke.cases import changes, invoked, place
from falsifiers.support.run_lines import SMOKE_END
from reference_trainer.pipeline.smoke import Check


@given(
    finite=st.booleans(),
    difference=st.sampled_from([0.0, 1e-16, 1e-11, 1e-10, 1.1e-10, 1e-9, 0.5, math.nan, math.inf]),
    initial=st.sampled_from([2.0, None]),
)
def falsify_verdict_needs_every_check(subject: Any, finite: bool, difference: float, initial: float | None) -> None:
    checks = subject.checks(result_of(finite=finite, initial_loss=initial), difference, torch.device("cpu"))
    expected = [finite and initial is not None, difference <= 1e-10, True]
    case = f"finite {finite}, first loss {initial}, gradient off by {difference}: {checks}"
    assert [each.passed for each in checks] == expected, f"{case}; expected {expected}"
    assert "loss" in checks[0].says and "gradient" in checks[1].says, f"{case}; they do not name what they check"
    lines = [f"smoke check: {'ok' if each.passed else 'NOT OK'}: {each.says}" for each in checks]
    lines += [f"smoke check: {'go' if all(expected) else 'no-go'}", SMOKE_END]
    assert list(subject.verdict(checks)) == lines, f"{subject.verdict(checks)}; expected {lines}"


MIB = 2**20


def falsify_peak_memory_is_reported(subject: Any, device: str) -> None:
    held = torch.ones(64 * MIB, dtype=torch.uint8, device=device)
    seen = subject.peak_memory_bytes(held.device)
    low, high = _peak(device)
    assert low <= seen <= high, f"the peak on {device} is reported as {seen} bytes; expected {low} to {high}"
    *_, check = subject.checks(result_of(), 0.0, held.device)
    size = re.search(r"memory ([0-9,]+) MiB", str(check.says))
    assert size and check.passed is True, f"expected the peak memory in MiB, which never is a no-go: {check}"
    mib = int(size[1].replace(",", ""))
    assert low / MIB - 1 <= mib <= high / MIB + 1, f"{mib} MiB are reported; the peak is {low} to {high} bytes"


def _peak(device: str) -> tuple[float, float]:
    """Return bounds of the peak memory in bytes."""
    if device != "cpu":
        return 64 * MIB, torch.cuda.memory_stats(device)["reserved_bytes.all.peak"]
    found = re.search(r"VmHWM:\s+([0-9]+) kB", Path("/proc/self/status").read_text())
    assert found, "the kernel states no high-water mark"
    return 0.9 * int(found[1]) * 1024 - 2 * MIB, 1.1 * int(found[1]) * 1024 + 2 * MIB


def falsify_diverged_run_is_a_no_go(subject: Any, device: str) -> None:
    """At a learning rate of a million, teacher or student diverges."""
    for teacher_steps in (1, 4):
        with place() as where:
            before = where.listing()
            flags = where.flags(smoke=6, lr=1e6, warmup=0, teacher_steps=teacher_steps, device=device)
            ended = invoked(subject, where, *flags)
            lines, left = ended.output.splitlines(), changes(before, where.listing())
        said = [line for line in lines if line.startswith("smoke")][-3:]
        assert ended.exit_code == 1, f"exit code {ended.exit_code} after {lines}; expected 1"
        assert len(said) == 3 and "finite" in said[0] and "no-go" in said[1], f"the last lines are {said}"
        assert not [line for line in lines if line.startswith("[SMOKE]")], f"a diverged run has a summary: {lines}"
        assert not left, f"a diverged run left {left}; expected no file"


@given(passed=st.lists(st.booleans(), max_size=3), smoke=st.booleans())
def falsify_verdict_is_the_exit_code_of_a_smoke_run(subject: Any, passed: list[bool], smoke: bool) -> None:
    done = distilled_with(checks=tuple(Check(each, "a check") for each in passed))
    with place() as where:
        ended = invoked(subject, where, *(["--smoke", "3"] if smoke else []), run=lambda settings, *, lines: done)
    expected = 1 if smoke and not all(passed) else 0
    case = f"smoke {smoke}, checks that passed {passed}"
    assert ended.exit_code == expected, f"{case}: exit code {ended.exit_code}; expected {expected}"
    assert (ended.output == "") is smoke, f"{case}: the command printed {ended.output!r}"
