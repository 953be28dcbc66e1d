"""Attacks on the length of a smoke run, its agreement with the full run, and its files.

The subject has `distill`, `Settings`, `Lines`, `Callback` and `smoke`, as `pipeline.distill` does; for the
plan it is `reference_trainer.training.schedule`. Where stated, it is the command line, `reference_trainer.cli`.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.distill_smoke.cases import (
    Place,
    Ran,
    changes,
    distilled,
    finished,
    invoked,
    place,
    planned,
    raising_at,
    read_trace,
    steps_per_epoch,
    stopping_at,
)
from falsifiers.support import oracles

COUNTS, EPOCHS, BATCH_SIZES = st.integers(1, 12), st.integers(1, 3), st.sampled_from([4, 10, 3, 2])
WRITTEN = ["config.json", "manifest.json", "model.safetensors"]


def falsify_schedules_need_positive_integers(subject: Any) -> None:
    """Epochs, steps and N of 0, -1, 2.0, True, "2" and None are refused by name, before there is a plan."""
    usual = {"epochs": 2, "steps_per_epoch": 3, "limit": 4}
    for name, value in itertools.product(usual, (0, -1, 2.0, True, "2", None)):
        if (name, value) != ("limit", None):
            oracles.assert_refused(f"{name} = {value!r}", lambda k={**usual, name: value}: subject.Schedule(**k), name)


def _assert_summary(ran: Ran, steps: int) -> None:
    told = ran.reported_steps()
    assert told == [str(steps)], f"{steps} steps ran and the summaries tell of {told}: {ran.lines}"
    both = [line.startswith("[SMOKE] projected") for line in ran.starting_with("[SMOKE]")]
    assert both == [False, True], f"expected the summary, then the projection, once each: {ran.lines}"


@given(n=COUNTS, epochs=EPOCHS, batch_size=BATCH_SIZES)
@example(n=1, epochs=1, batch_size=4)
@example(n=3, epochs=1, batch_size=4)
@example(n=4, epochs=1, batch_size=4)
@example(n=4, epochs=3, batch_size=4)
def falsify_reported_steps_ran(subject: Any, n: int, epochs: int, batch_size: int) -> None:
    """Result, trace and lines agree on min(N, planned) steps, also where the data ends before N."""
    with place() as where:
        ran = finished(subject, where, smoke=n, epochs=epochs, batch_size=batch_size)
    expected = min(n, planned(batch_size=batch_size, epochs=epochs))
    steps = [event["step"] for event in ran.events if event["event"] == "on_step_end"]
    assert steps == list(range(1, expected + 1)), f"the trace has the steps {steps}; expected 1 to {expected}"
    told = ran.result.train.steps_completed
    assert told == expected, f"the result tells of {told} steps, {expected} ran"
    assert ran.result.output is None, f"a smoke run says that it wrote {ran.result.output}"
    _assert_summary(ran, expected)
    for hook in ("on_epoch_begin", "on_epoch_end"):
        count = sum(event["event"] == hook for event in ran.events)
        epochs_run = -(-expected // steps_per_epoch(batch_size))
        assert count == epochs_run, f"{count} times {hook} in {expected} steps; expected {epochs_run}"


def _run_unset(subject: Any, where: Place, name: str, **variables: str) -> list[float]:
    """Return the losses of a full run, whose last lines are checked."""
    trace, out = where.root / f"{name}.jsonl", where.tree / name
    ended = invoked(subject, where, *where.flags(epochs=2, trace=trace, out=out), **variables)
    said = f"with {variables or 'smoke unset'}: exit {ended.exit_code}, {ended.output}"
    assert ended.exit_code == 0, said
    assert "smoke" not in ended.output.lower(), f"a run that isn't a smoke run speaks of one {said}"
    assert sorted(path.name for path in out.iterdir()) == WRITTEN, f"{sorted(out.iterdir())} {said}"
    losses = [event["loss"] for event in read_trace(trace) if event["event"] == "on_step_end"]
    _assert_end(ended.output.splitlines(), losses, out)
    assert len(losses) == planned(epochs=2), f"{len(losses)} of {planned(epochs=2)} steps ran {said}"
    return losses


def _assert_end(lines: list[str], losses: list[float], out: Path) -> None:
    """The last lines report steps and losses, the held-out metrics, and the output directory."""
    number = r"[0-9,]+\.?[0-9]*"
    expected = [
        rf"{len(losses)} steps in {number}s \({number} step/s, {number} tokens/s\): "
        rf"distillation loss {losses[0]:.4f} to {losses[-1]:.4f}",
        *(rf"held-back {name}: {number} nats per byte over {number} bytes" for name in ("cross_entropy", "kl")),
        re.escape(f"wrote {out}"),
    ]
    same = [re.fullmatch(pattern, line) for pattern, line in zip(expected, lines[-len(expected) :], strict=True)]
    assert all(same), f"the run ends with {lines[-len(expected) :]}; expected {expected}"


def falsify_unset_limit_gives_a_full_run(subject: Any) -> None:
    """Every planned step runs, no line mentions smoke mode, a model is saved; an empty variable counts as unset.

    The subject is the command line.
    """
    with place() as where:
        usual = _run_unset(subject, where, "unset")
        for number, name in enumerate(("APR_DISTILL_MAX_STEPS", "REFERENCE_TRAINER_SMOKE")):
            losses = _run_unset(subject, where, f"empty-{number}", **{name: ""})
            assert losses == usual, f"with an empty {name} the losses are {losses}, else {usual}"


@given(n=COUNTS, seed=st.integers(0, 3), warmup=st.sampled_from([50, 0, 5]))
@example(n=5, seed=0, warmup=50)
@example(n=6, seed=0, warmup=2)
def falsify_losses_equal_the_first_of_the_full_run(subject: Any, n: int, seed: int, warmup: int) -> None:
    """The losses are equal bit for bit for the same teacher: a cached one, or one trained within N steps."""
    with place() as where:
        same = {"seed": seed, "warmup": warmup, "epochs": 4, "teacher_steps": n}
        fresh = finished(subject, where, smoke=n, **same).losses
        long = finished(subject, where, **same).losses
        kept = finished(subject, where, smoke=n, out=where.tree / "other", **same).losses
    for name, losses in (("its own teacher", fresh), ("the kept teacher", kept)):
        assert losses == long[:n], f"with {name} a smoke run of {n} has the losses {losses}, the long run {long[:n]}"


@given(n=st.integers(1, 4), teacher_steps=st.integers(1, 5))
def falsify_teacher_training_is_limited_and_not_cached(subject: Any, n: int, teacher_steps: int) -> None:
    """A teacher that is not cached is trained for min(N, teacher_steps) steps, and not cached."""
    steps = min(n, teacher_steps)
    with place() as where:
        before = where.listing()
        smoked = finished(subject, where, smoke=n, teacher_steps=teacher_steps)
        left = changes(before, where.listing())
        long = finished(subject, where, teacher_steps=steps, epochs=1)
    weights, expected = smoked.result.teacher.state_dict(), long.result.teacher.state_dict()
    other = [name for name, value in weights.items() if not torch.equal(value, expected[name])]
    assert not other, f"with N = {n} of {teacher_steps}, {other} of the teacher aren't those after {steps} steps"
    assert not left, f"a smoke run changed {left}; expected that its teacher isn't kept"


def _steps_before(hook: str, call: int, n: int) -> int:
    """Return the steps of a run of N that a callback ends in the `call`-th call of `hook`."""
    per_epoch = steps_per_epoch()
    epochs = {"on_step_end": 0, "on_epoch_begin": call - 1, "on_epoch_end": call}[hook]
    return min(n, call if hook == "on_step_end" else epochs * per_epoch)


@given(n=COUNTS, hook=st.sampled_from(["on_step_end", "on_epoch_end", "on_epoch_begin"]), call=st.integers(1, 4))
@example(n=9, hook="on_step_end", call=2)
@example(n=9, hook="on_epoch_begin", call=2)
@example(n=9, hook="on_epoch_begin", call=1)
def falsify_ended_by_a_callback(subject: Any, n: int, hook: str, call: int) -> None:
    """Both lines report the steps that ran; if none ran, a SmokeError is raised and neither line printed."""
    steps = _steps_before(hook, call, n)
    with place() as where:
        before = where.listing()
        ran = distilled(subject, where, smoke=n, epochs=9, callbacks=[stopping_at(subject, hook, call)])
        assert changes(before, where.listing()) == [], f"{changes(before, where.listing())} changed"
    if steps == 0:
        _assert_no_step_ran(subject, ran)
        return
    assert ran.error is None, f"a run that a callback ended after {steps} steps raised {ran.error!r}"
    told = ran.result.train.steps_completed
    assert told == steps, f"{told} steps ran; expected {steps}, ended in call {call} of {hook}"
    _assert_summary(ran, steps)


def _assert_no_step_ran(subject: Any, ran: Ran) -> None:
    assert isinstance(ran.error, subject.smoke.SmokeError), f"no step ran and the run ended with {ran.error!r}"
    assert "0 steps" in str(ran.error), f"the error doesn't say that no step ran: {ran.error}"
    assert ran.starting_with("[SMOKE]") == [], f"no step ran, and yet: {ran.lines}"


def falsify_run_without_steps_is_an_error(subject: Any) -> None:
    """A callback that ends the run at its start causes a SmokeError, no ZeroDivisionError, and no file."""
    with place() as where:
        before = where.listing()
        ran = distilled(subject, where, smoke=5, callbacks=[stopping_at(subject, "on_train_begin", 1)])
        assert changes(before, where.listing()) == [], f"{changes(before, where.listing())} changed"
    _assert_no_step_ran(subject, ran)


@given(n=COUNTS, step=st.integers(1, 3), error=st.sampled_from([ValueError, KeyboardInterrupt, MemoryError]))
def falsify_exception_ends_without_summary(subject: Any, n: int, step: int, error: type[BaseException]) -> None:
    """The caller sees the exception; neither summary nor end line is printed."""
    raised = error("by the test")
    with place() as where:
        before = where.listing()
        ran = distilled(subject, where, smoke=n + step - 1, callbacks=[raising_at(subject, step, raised)])
        assert changes(before, where.listing()) == [], f"{changes(before, where.listing())} changed"
    assert ran.error is raised, f"{raised!r} was raised in step {step}, and the run ended with {ran.error!r}"
    said = [*ran.starting_with("[SMOKE]"), *ran.starting_with("smoke check"), *ran.lines[-1:]]
    assert not any("SMOKE" in line or "smoke" in line for line in said if "at most" not in line), f"it said {said}"
