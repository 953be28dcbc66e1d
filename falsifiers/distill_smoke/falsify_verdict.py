"""Attacks on the go or no-go of a smoke run, and the checks that decide it.

The subject is `reference_trainer.pipeline.smoke`; where stated, it is the command line, `reference_trainer.cli`.
"""

from __future__ import annotations

import importlib
import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.distill_smoke.cases import changes, invoked, place
from falsifiers.distill_smoke.summaries import result_of


def _checks(subject: Any, difference: float, **fields: Any) -> list[tuple[bool, str]]:
    result = result_of(subject, **{"steps_completed": 3, "elapsed_s": 1.0, **fields})
    return [(check.passed, check.says) for check in subject.checks(result, difference, torch.device("cpu"))]


@given(
    finite=st.booleans(),
    difference=st.sampled_from([0.0, 1e-16, 1e-11, 1e-10, 1.1e-10, 1e-9, 0.5, math.nan, math.inf]),
    initial=st.sampled_from([2.0, None]),
)
def falsify_each_check_decides(subject: Any, finite: bool, difference: float, initial: float | None) -> None:
    """A go needs finite losses, at least one loss, and a gradient difference of at most 1e-10."""
    losses, gradient, _ = _checks(subject, difference, finite=finite, initial_loss=initial)
    expected = (finite and initial is not None, difference <= 1e-10)
    found = (losses[0], gradient[0])
    case = f"finite {finite}, first loss {initial}, gradient off by {difference}"
    assert found == expected, f"{case}: {losses}, {gradient}"
    assert "loss" in losses[1] and "gradient" in gradient[1], f"the checks don't say what they are: {losses, gradient}"


def falsify_peak_memory_is_reported(subject: Any) -> None:
    """The check reports the process's high-water mark in MiB, as the kernel does."""
    *_, (passed, says) = _checks(subject, 0.0)
    told = re.search(r"memory ([0-9,]+) MiB", says)
    assert told and passed, f"expected the peak memory in MiB, which never is a no-go: {passed}, {says!r}"
    status = Path("/proc/self/status").read_text()
    kibibytes = re.search(r"VmHWM:\s+([0-9]+) kB", status)
    assert kibibytes, "the kernel states no high-water mark"
    expected, mib = int(kibibytes[1]) / 1024, int(told[1].replace(",", ""))
    in_bytes = subject.peak_memory_bytes(torch.device("cpu"))
    assert in_bytes % 1024 == 0, f"{in_bytes} bytes are told; the kernel counts whole kibibytes"
    assert 0.9 * expected - 2 <= mib <= 1.1 * expected + 2, f"{mib} MiB are told; the kernel says {expected:.0f} MiB"


def _gone(subject: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> tuple[int, list[str], list[str]]:
    """Return exit code, lines and changed files of a smoke run whose gradient is changed only in the check."""
    losses = importlib.import_module("reference_trainer.distillation.losses")
    importlib.import_module("reference_trainer.pipeline.distill")  # whose step has its gradient before it is changed
    right = losses.kd_logit_gradient
    with place() as where:
        before = where.listing()
        with mock.patch.object(losses, "kd_logit_gradient", lambda *tensors, **rest: change(right(*tensors, **rest))):
            ended = invoked(subject, where, *where.flags(smoke=2))
        return ended.exit_code, ended.output.splitlines(), changes(before, where.listing())


def falsify_correct_gradient_is_a_go(subject: Any) -> None:
    """Exit code 0 and every check ok, printed after the two lines. The subject is the command line."""
    code, lines, left = _gone(subject, lambda gradient: gradient)
    said = [line for line in lines if line.startswith("smoke check")]
    assert code == 0, f"exit {code} after {lines}"
    assert [line.split(":")[1].strip() for line in said] == ["ok", "ok", "ok", "go"], f"{said}"
    assert not left, f"a go left {left}"


def falsify_diverged_run_is_a_no_go(subject: Any) -> None:
    """At a learning rate of a million, teacher or student diverges: no-go, the cause, exit code 1, nothing written."""
    for teacher_steps in (1, 4):
        with place() as where:
            before = where.listing()
            ended = invoked(subject, where, *where.flags(smoke=6, lr=1e6, warmup=0, teacher_steps=teacher_steps))
            lines, left = ended.output.splitlines(), changes(before, where.listing())
        said = [line for line in lines if line.startswith("smoke")][-3:]
        assert ended.exit_code == 1, f"exit {ended.exit_code} after {lines}"
        assert said[0].startswith("smoke check: NOT OK: losses are not finite: invalid "), f"its last words are {said}"
        assert said[1] == "smoke check: no-go" and "no model was written" in said[2], f"its last words are {said}"
        assert not [line for line in lines if line.startswith("[SMOKE]")], (
            f"a run that broke off has a summary: {lines}"
        )
        assert not left, f"a diverged run left {left}"


def falsify_wrong_gradient_is_a_no_go(subject: Any) -> None:
    """A closed form off by a millionth, or by a NaN: exit code 1, the check named, and still nothing written."""
    wrong: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "a millionth too large": lambda gradient: gradient * (1 + 1e-6),
        "half": lambda gradient: gradient / 2,
        "NaN": lambda gradient: gradient * math.nan,
    }
    for name, change in wrong.items():
        code, lines, left = _gone(subject, change)
        said = list(itertools.dropwhile(lambda line: not line.startswith("[SMOKE] projected"), lines))[1:]
        assert code == 1, f"a gradient that is {name}: exit {code} after {said or lines}"
        assert "smoke check: no-go" in said, f"a gradient that is {name}: {said}"
        assert [line for line in said if "NOT OK" in line and "gradient" in line], f"the check isn't named: {said}"
        assert not left, f"a no-go left {left}"
