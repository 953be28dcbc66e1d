"""Attacks on the last lines of runs, on the verdict of a smoke run, and on its comparison of gradients.

Lines are parsed with independent regular expressions, and compared with exact fractions.
"""

import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from click.testing import CliRunner
from hypothesis import assume, example, given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.distill_smoke.cases import changes, distilled, finished, invoked, place, planned
from falsifiers.support import run_lines
from falsifiers.support.assertions import assert_equal
from falsifiers.support.cases import ANYWHERE, NAMED, KdCase, kd_cases
from falsifiers.support.run_lines import matcher
from falsifiers.support.runs import acting
from reference_trainer import Action, Check, MetricSum, SmokeError, TrainResult, kd_logit_gradient
from reference_trainer.pipeline.report import DistillResult

SUMMARY = matcher(run_lines.SMOKE_SUMMARY)
RESULT: dict[str, Any] = {"initial_loss": 2.0, "final_loss": 1.0, "best_loss": 0.5, "finite": True}
RESULT |= {"steps_completed": 9, "tokens": 12345, "elapsed_s": 4.0, "stopped": False}
LOSSES = st.floats(0, 1e6) | st.sampled_from([math.nan, math.inf])
COUNTS = st.integers(1, 10**9)
SMOKE = {"steps_completed": st.integers(1, 10**6), "elapsed_s": st.floats(1e-3, 1e7), "tokens": COUNTS}
SMOKE |= dict.fromkeys(["initial_loss", "final_loss", "best_loss"], LOSSES)
FIELDS = {"steps_completed": st.integers(0, 10**6), "elapsed_s": st.floats(0, 1e6), "tokens": st.integers(0, 10**12)}
FIELDS["stopped"] = st.booleans()


def _assert_number(name: str, text: str, exact: float | Fraction) -> None:
    """Assert that `text` is the number, rounded to the decimals of `text`.

    Before rounding, relative errors of 1e-12 are allowed.
    """
    is_close = text == str(exact)  # for nan and inf
    if math.isfinite(exact):
        half = Fraction(1, 2 * 10 ** len(text.partition(".")[2]))
        is_close = abs(Fraction(text) - Fraction(exact)) <= half + abs(Fraction(exact)) / 10**12
    assert is_close, f"{name} is printed as {text}; expected {float(exact)}"


@given(fields=st.fixed_dictionaries(SMOKE), project_to_steps=COUNTS | st.just(50000), planned_steps=COUNTS)
def falsify_summary_reports_exact_numbers(
    subject: Any, fields: dict[str, Any], project_to_steps: int, planned_steps: int
) -> None:
    lines = subject.summary(TrainResult(**{**RESULT, **fields}), project_to_steps, planned_steps)
    first, second = SUMMARY.fullmatch(lines[0]), matcher(run_lines.SMOKE_PROJECTION).fullmatch(lines[1])
    third = matcher(run_lines.SMOKE_PLANNED, steps=planned_steps).fullmatch(lines[2])
    assert first and second and third, f"{lines} do not have the documented format"
    steps, elapsed = fields["steps_completed"], Fraction(fields["elapsed_s"])
    assert_equal("steps", (int(first["steps"]), int(second["steps"])), (steps, project_to_steps))
    _assert_number("the time", first["elapsed_s"], elapsed)
    for name in ("initial_loss", "final_loss"):
        _assert_number(name, first[name], fields[name])
    _assert_number("the throughput", first["throughput"], steps / elapsed)
    for name, unit in (("hours", 3600), ("minutes", 60), ("seconds", 1)):
        _assert_number(f"the projection in {name}", second[name], elapsed / steps * project_to_steps / unit)
    _assert_number("the time of the planned run", third["seconds"], elapsed / steps * planned_steps)


@given(n=st.integers(1, 15), project_to_steps=st.sampled_from([31, 50000]))
def falsify_lines_are_in_order(subject: Any, device: str, n: int, project_to_steps: int) -> None:
    with place() as where:
        settings = {"device": device, "smoke": n, "log_every": 1, "project_to_steps": project_to_steps}
        lines = finished(subject, where, **settings).lines
    forms = [
        matcher(run_lines.SMOKE_START, steps=n),
        matcher(run_lines.STEP, step=1),
        SUMMARY,
        matcher(run_lines.SMOKE_PROJECTION, steps=project_to_steps),
        matcher(run_lines.SMOKE_PLANNED, steps=planned()),
        re.compile("smoke check: go"),
        re.compile(re.escape(run_lines.SMOKE_END)),
    ]
    matches = [[number for number, line in enumerate(lines) if form.fullmatch(line)] for form in forms]
    assert all(len(numbers) == 1 for numbers in matches), f"{forms} match the lines {matches} of {lines}"
    order = [number for (number,) in matches]
    is_ordered = order == sorted(order) and order[-1] == len(lines) - 1
    assert is_ordered, f"{forms} match the lines {order} of {lines}; expected increasing numbers up to the last line"
    assert order[3] == order[2] + 1, f"a line is printed between summary and projection: {lines}"


def falsify_run_without_steps_is_an_error(subject: Any, device: str) -> None:
    with place() as where:
        before = where.listing()
        stop = acting(lambda: Action.STOP, "on_train_begin")
        outcome = distilled(subject, where, device=device, smoke=5, callbacks=[stop])
        assert_equal("changed files", changes(before, where.listing()), [])
    assert isinstance(outcome.error, SmokeError), f"a run without steps ends with {outcome.error!r}"
    assert re.search(r"\b0\b", str(outcome.error)), f"no 0, the number of steps, in the error: {outcome.error}"
    assert_equal("smoke lines of a run without steps", outcome.starting_with("[SMOKE]"), [])


LINE = re.compile(r"([0-9]+) steps in ([0-9]+\.[0-9])s \(([0-9]+\.[0-9]{2}) step/s, ([0-9,]+) (byte|token)s/s\): (.*)")
HELD_BACK = st.dictionaries(
    st.sampled_from(["hard_loss", "kl_at_1", "agreement", "accuracy"]), st.tuples(st.floats(0, 1e9), COUNTS)
)


@given(
    losses=st.none() | st.tuples(*[st.floats(0, 1e6) | st.just(math.inf)] * 2),
    fields=st.fixed_dictionaries(FIELDS),
    held_back=HELD_BACK,
    unit=st.sampled_from(["byte", "token"]),
)
def falsify_result_lines_report_the_run(
    subject: Any, losses: tuple[float, float] | None, fields: dict[str, Any], held_back: dict[str, Any], unit: str
) -> None:
    first, last = losses or (None, None)
    metrics = {name: MetricSum(total, count) for name, (total, count) in held_back.items()}
    result = TrainResult(**{**RESULT, **fields, "initial_loss": first, "final_loss": last})
    line, *lines = subject.result_lines(result, metrics, Path("a/place"), unit)
    match, steps, elapsed_s = LINE.fullmatch(line), fields["steps_completed"], fields["elapsed_s"]
    assert match, f"{line!r} does not have the documented format"
    assert_equal("steps, time, unit", (match[1], match[2], match[5]), (str(steps), f"{elapsed_s:.1f}", unit))
    seconds = Fraction(max(elapsed_s, 1e-9))
    _assert_number("steps per second", match[3], steps / seconds)
    _assert_number(f"{unit}s per second", match[4].replace(",", ""), fields["tokens"] / seconds)
    text = "distillation loss {:.4f} to {:.4f}".format(*losses) if losses else "no token was scored"
    assert_equal("the end of the line", match[6], text + ", stopped by a callback" * fields["stopped"])
    units = dict.fromkeys(("hard_loss", "kl_at_1"), f" nats per {unit}")
    expected = [
        f"held-back {name}: {total / count:.4f}{units.get(name, '')} over {count}{f' {unit}s' * (name != 'accuracy')}"
        for name, (total, count) in held_back.items()
    ]
    if "hard_loss" in held_back:
        total, count = held_back["hard_loss"]
        expected.append(f"held-back student_perplexity: {math.exp(min(total / count, 20)):.4f}")
    assert_equal("the last lines", lines, [*expected, "wrote a/place"])


# Losses of a batch before and after a run that ruins the student, and after a useful run.
BAD_LOSSES = [(5.61, 9.86), (0.0, 14.67), (2.0, math.nan), (math.inf, math.nan)]
GOOD_LOSSES = [(5.61, 3.05), (5.61, 5.7), (0.0, 0.01), (3.0, 3.0)]


@given(
    finite=st.booleans(),
    difference=st.sampled_from([0.0, 1e-16, 1e-11, 1e-10, 1.1e-10, 1e-9, 0.5, math.nan, math.inf]),
    initial=st.sampled_from([2.0, None]),
    losses=st.sampled_from([*BAD_LOSSES, *GOOD_LOSSES]),
)
def falsify_verdict_needs_every_check(
    subject: Any, finite: bool, difference: float, initial: float | None, losses: tuple[float, float]
) -> None:
    result = TrainResult(**{**RESULT, "finite": finite, "initial_loss": initial})
    checks = subject.checks(result, losses, difference, torch.device("cpu"))
    expected = [finite and initial is not None, losses in GOOD_LOSSES, difference <= 1e-10, True]
    case = f"finite {finite}, first loss {initial}, {losses}, gradient difference {difference}: {checks}"
    assert_equal(case, [check.passed for check in checks], expected)
    named = all(name in check.says for name, check in zip(("loss", "first batch", "gradient"), checks, strict=False))
    assert named, f"{case}; expected the words loss, first batch and gradient"
    lines = [f"smoke check: {'ok' if check.passed else 'NOT OK'}: {check.says}" for check in checks]
    lines += [f"smoke check: {'go' if all(expected) else 'no-go'}", run_lines.SMOKE_END]
    assert_equal(case, list(subject.verdict(checks)), lines)


MIB = 2**20


def falsify_peak_memory_is_reported(subject: Any, device: str) -> None:
    tensor = torch.ones(64 * MIB, dtype=torch.uint8, device=device)
    seen = subject.peak_memory_bytes(tensor.device)
    if device == "cpu":
        mark = re.search(r"VmHWM:\s+([0-9]+) kB", Path("/proc/self/status").read_text())
        assert mark, "/proc/self/status has no VmHWM"
        low, high = (share * int(mark[1]) * 1024 + margin for share, margin in ((0.9, -2 * MIB), (1.1, 2 * MIB)))
    else:
        low, high = 64 * MIB, torch.cuda.memory_stats(device)["reserved_bytes.all.peak"]
    assert low <= seen <= high, f"the reported peak on {device} is {seen} bytes; expected {low} to {high}"
    *_, check = subject.checks(TrainResult(**RESULT), (2.0, 1.0), 0.0, tensor.device)
    size = re.search(r"memory ([0-9,]+) MiB", str(check.says))
    assert size and check.passed is True, f"expected a passed check with the peak memory in MiB: {check}"
    mib = int(size[1].replace(",", ""))
    assert low / MIB - 1 <= mib <= high / MIB + 1, f"the check has {mib} MiB; expected {low} to {high} bytes"


def falsify_diverged_run_is_a_no_go(subject: Any, device: str) -> None:
    """With a learning rate of a million, the teacher or the student diverges."""
    for teacher_steps in (1, 4):
        with place() as where:
            before = where.listing()
            flags = where.flags(smoke=6, lr=1e6, warmup=0, teacher_steps=teacher_steps, device=device)
            ended = invoked(subject, where, *flags)
            assert_equal("changed files", changes(before, where.listing()), [])
        lines = ended.output.splitlines()
        last = [line for line in lines if line.startswith("smoke")][-3:]
        assert_equal(f"exit code after {lines}", ended.exit_code, 1)
        assert len(last) == 3 and "finite" in last[0] and "no-go" in last[1], f"the last smoke lines: {last}"
        assert not any(line.startswith("[SMOKE]") for line in lines), f"a diverged run has a summary: {lines}"


@given(passed=st.lists(st.booleans(), max_size=3), smoke=st.booleans())
def falsify_verdict_is_the_exit_code_of_a_smoke_run(subject: Any, passed: list[bool], smoke: bool) -> None:
    no_model: Any = None
    checks = tuple(Check(value, "a check") for value in passed)
    result: dict[str, Any] = {"train": TrainResult(**RESULT), "output": Path("out"), "held_back": {}, "checks": checks}
    outcome = DistillResult(**result, student=no_model, teacher=no_model)
    with place() as where:
        ended = invoked(subject, where, *(["--smoke", "3"] if smoke else []), run=lambda settings, *, lines: outcome)
    case = f"smoke {smoke}, checks that passed {passed}"
    assert_equal(f"{case}: exit code", ended.exit_code, 1 if smoke and not all(passed) else 0)
    assert (ended.output == "") is smoke, f"{case}: the output is {ended.output!r}; only a smoke run prints nothing"


FORWARD_KL = ("forward_kl", 0.5)
# One scored position, where the norm of the gradient is smaller than the norm of its terms.
ONE_ROW = KdCase(torch.zeros(1, 1, 2), torch.zeros(1, 1, 2), torch.zeros(1, 1, dtype=torch.int64), ce_weight=1.0)


@example(case=ONE_ROW, divergence=FORWARD_KL, error=0.5, requires_grad=False, integers=torch.int64)
@given(
    case=kd_cases(dtype=torch.float32, banned=ANYWHERE) | kd_cases(dtype=torch.float64, banned=ANYWHERE),
    divergence=NAMED,
    error=st.sampled_from([0.0, 1e-6, 0.5, 3.0]),
    requires_grad=st.booleans(),
    integers=st.sampled_from([torch.int64, torch.int32]),
)
def falsify_difference_is_relative(
    subject: Any, device: str, case: KdCase, divergence: Any, error: float, requires_grad: bool, integers: torch.dtype
) -> None:
    """divergence: name and beta. error: added to one element of the gradient. requires_grad: of the caller's logits."""
    name, beta = divergence
    # An infinite loss has no gradient.
    assume(not case.kd_weight or case.but(ce_weight=0.0, divergence=name, beta=beta).oracle_nats() < math.inf)

    def gradient_with_error(*tensors: Tensor, **settings: Any) -> Tensor:
        assert_equal("divergence and beta of the closed form", (settings["divergence"], settings["beta"]), divergence)
        gradient = kd_logit_gradient(*tensors, **settings)
        gradient.view(-1)[:1] += error
        return gradient

    student = case.student.clone().to(device).requires_grad_(requires_grad)
    # Defaults are not passed.
    options = zip(("divergence", "beta"), divergence, FORWARD_KL, strict=True)
    changed: dict[str, Any] = {key: value for key, value, default in options if value != default}
    seen = subject.relative_difference(
        *(student, case.teacher.to(device), case.labels.to(device, integers)),
        **case.settings,
        **changed,
        **({"gradient": gradient_with_error} if error else {}),
    )
    terms = (case.ce_weight + case.kd_weight * case.temperature) * math.sqrt(max(1, int(case.scored.sum())))
    scale = max(float(case.but(divergence=name, beta=beta).oracle_gradient().norm()), terms)
    expected = error / scale if scale else math.inf if error else 0.0
    assert type(seen) is float, f"the difference is a {type(seen).__name__}; expected a float"
    assert seen == expected or abs(seen - expected) <= subject.AGREE * (1 + expected) < math.inf, (
        f"relative difference of a gradient with an error {error} in one element: {seen}; expected {expected}, the "
        f"error divided by the larger of the norm of the gradient and {terms:.3g}, the norm of its terms"
    )
    assert student.requires_grad is requires_grad and student.grad is None, "the call changed the caller's logits"


def falsify_gradcheck_accepts_the_trainers_gradient(subject: Any, device: str) -> None:
    ended = CliRunner().invoke(subject.main, ["gradcheck", "--device", device])
    assert ended.exit_code == 0, f"exit code {ended.exit_code}; expected 0: {ended.output}"
    *lines, last = ended.output.splitlines()
    temperatures = [0.25, 1.0, 2.0, 4.0, 20.0]
    missing = [x for x in temperatures if not any(line.startswith(f"temperature {x:5.2f}:") for line in lines)]
    assert not missing, f"no line for the temperatures {missing}: {lines}"
    assert last.startswith(f"agree on {device}"), f"the last line is {last!r}; expected 'agree on {device}'"
