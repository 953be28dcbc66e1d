"""Attacks on the verdict of a smoke run, its checks and exit code, and on the comparison of gradients that it makes."""

import math
import re
from pathlib import Path
from typing import Any

import torch
from click.testing import CliRunner
from hypothesis import assume, example, given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.distill_report.falsify_lines import distilled_with, result_of
from falsifiers.distill_smoke.cases import changes, invoked, place
from falsifiers.kd_divergences.falsify_divergences import NAMED, Divergence
from falsifiers.support.comparison import ANYWHERE
from falsifiers.support.run_lines import SMOKE_END
from falsifiers.support.strategies import KdCase, kd_cases
from reference_trainer.distillation.losses import kd_logit_gradient
from reference_trainer.pipeline.smoke import Check

RISEN = [(5.61, 9.86), (0.0, 14.67), (2.0, math.nan), (math.inf, math.nan)]
FALLEN = [(5.61, 3.05), (5.61, 5.7), (0.0, 0.01), (3.0, 3.0)]
"""Losses of a batch before and after a run: of a rate that ruins the student, and of good ones."""


@given(
    finite=st.booleans(),
    difference=st.sampled_from([0.0, 1e-16, 1e-11, 1e-10, 1.1e-10, 1e-9, 0.5, math.nan, math.inf]),
    initial=st.sampled_from([2.0, None]),
    losses=st.sampled_from([*RISEN, *FALLEN]),
)
def falsify_verdict_needs_every_check(
    subject: Any, finite: bool, difference: float, initial: float | None, losses: tuple[float, float]
) -> None:
    checks = subject.checks(result_of(finite=finite, initial_loss=initial), losses, difference, torch.device("cpu"))
    expected = [finite and initial is not None, losses in FALLEN, difference <= 1e-10, True]
    case = f"finite {finite}, first loss {initial}, {losses}, gradient off by {difference}: {checks}"
    assert [each.passed for each in checks] == expected, f"{case}; expected {expected}"
    names = all(name in each.says for name, each in zip(("loss", "first batch", "gradient"), checks, strict=False))
    assert names, f"{case}; they do not name what they check"
    lines = [f"smoke check: {'ok' if each.passed else 'NOT OK'}: {each.says}" for each in checks]
    lines += [f"smoke check: {'go' if all(expected) else 'no-go'}", SMOKE_END]
    assert list(subject.verdict(checks)) == lines, f"{subject.verdict(checks)}; expected {lines}"


MIB = 2**20


def falsify_peak_memory_is_reported(subject: Any, device: str) -> None:
    held = torch.ones(64 * MIB, dtype=torch.uint8, device=device)
    seen = subject.peak_memory_bytes(held.device)
    low, high = _peak(device)
    assert low <= seen <= high, f"the peak on {device} is reported as {seen} bytes; expected {low} to {high}"
    *_, check = subject.checks(result_of(), (2.0, 1.0), 0.0, held.device)
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


TEMPERATURES = [0.25, 1.0, 2.0, 4.0, 20.0]
FORWARD_KL = ("forward_kl", 0.5)
ONE_ROW = KdCase(torch.zeros(1, 1, 2), torch.zeros(1, 1, 2), torch.zeros(1, 1, dtype=torch.int64), ce_weight=1.0)
"""One scored position, whose gradient is smaller than its terms."""


@example(case=ONE_ROW, named=FORWARD_KL, off=0.5, asking=False, integers=torch.int64)
@given(
    case=kd_cases(dtype=torch.float32, banned=ANYWHERE) | kd_cases(dtype=torch.float64, banned=ANYWHERE),
    named=NAMED,
    off=st.sampled_from([0.0, 1e-6, 0.5, 3.0]),
    asking=st.booleans(),
    integers=st.sampled_from([torch.int64, torch.int32]),
)
def falsify_difference_is_relative(
    subject: Any, device: str, case: KdCase, named: tuple[str, float], off: float, asking: bool, integers: torch.dtype
) -> None:
    assume(not case.kd_weight or Divergence(case, *named).nats() < math.inf)

    def wrong(*tensors: Tensor, **settings: Any) -> Tensor:
        asked = settings["divergence"], settings["beta"]
        assert asked == named, f"the closed form is asked for divergence and beta {asked}; expected {named}"
        gradient = kd_logit_gradient(*tensors, **settings)
        gradient.view(-1)[:1] += off
        return gradient

    student = case.student.clone().to(device).requires_grad_(asking)
    tensors = (student, case.teacher.to(device), case.labels.to(device, integers))
    given_gradient = {"gradient": wrong} if off else {}
    seen = subject.relative_difference(*tensors, **case.settings, **_divergence(*named), **given_gradient)
    terms = (case.ce_weight + case.kd_weight * case.temperature) * math.sqrt(max(1, int(case.scored.sum())))
    hard = case.but(kd_weight=0.0).oracle_gradient()
    scale = max(float((hard + Divergence(case, *named).gradient()).norm()), terms)
    expected = off / scale if scale else math.inf if off else 0.0
    assert type(seen) is float, f"the difference is a {type(seen).__name__}; expected a float"
    assert seen == expected or abs(seen - expected) <= subject.AGREE * (1 + expected) < math.inf, (
        f"a gradient that is off by {off} in one element differs by {seen}; expected {expected}: {off} divided by "
        f"the gradient's norm, or by {terms:.3g}, the norm of its terms, where that is larger"
    )
    assert student.requires_grad is asking and student.grad is None, "the caller's logits took part in the derivative"


def _divergence(name: str, beta: float) -> dict[str, Any]:
    """Return the arguments that are not the defaults."""
    return ({} if name == FORWARD_KL[0] else {"divergence": name}) | ({} if beta == FORWARD_KL[1] else {"beta": beta})


def falsify_gradcheck_accepts_the_trainers_gradient(subject: Any, device: str) -> None:
    ended = CliRunner().invoke(subject.main, ["gradcheck", "--device", device])
    assert ended.exit_code == 0, f"exit code {ended.exit_code}; expected 0: {ended.output}"
    *lines, last = ended.output.splitlines()
    lacks = [tau for tau in TEMPERATURES if not any(line.startswith(f"temperature {tau:5.2f}:") for line in lines)]
    assert not lacks, f"the temperatures {lacks} are not compared: {lines}"
    assert last.startswith(f"agree on {device}"), f"the last line is {last!r}; expected 'agree on {device}'"
