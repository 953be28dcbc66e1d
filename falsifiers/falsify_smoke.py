"""Attacks on how far a smoke run goes, what it shares with the long run, and what it leaves behind.

The subject has `distill`, `Settings`, `Lines`, `Callback` and `smoke`, as `reference_trainer.distill` does; for the
plan it is `reference_trainer.plan`. Where it is said, it is the command line, `reference_trainer.cli`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers import oracles
from falsifiers.smoke_cases import (
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

COUNTS, EPOCHS, BATCH_SIZES = st.integers(1, 12), st.integers(1, 3), st.sampled_from([4, 10, 3, 2])
WRITTEN = ["config.json", "manifest.json", "model.safetensors"]


class _Watched:
    """A schedule that notes what is read of it."""

    def __init__(self, schedule: Any) -> None:
        self._schedule, self.read = schedule, {}

    def __getattr__(self, name: str) -> Any:
        value = self.read[name] = getattr(self._schedule, name)
        return value


class _Node:
    """A position, and what followed it under each schedule of which something else was read."""

    def __init__(self, position: Any) -> None:
        self.position = position
        self.followed: list[tuple[dict[str, Any], _Node]] = []

    def after(self, subject: Any, schedule: Any, values: dict[str, Any]) -> _Node:
        """What follows by the subject, asked anew unless it has answered a schedule of which it read the same."""
        for read, node in self.followed:
            if read.items() <= values.items():
                return node
        watched = _Watched(schedule)
        position = subject.following(watched, self.position, subject.Action.CONTINUE)
        same = [node for _, node in self.followed[-1:] if node.position == position]
        self.followed.append((watched.read, same[0] if same else _Node(position)))
        return self.followed[-1][1]


def _walked(subject: Any, schedule: Any, start: _Node, most: int) -> Iterator[Any]:
    """The events of a run, `most` of them at most."""
    values = {name: getattr(schedule, name) for name in ("epochs", "steps_per_epoch", "limit", "total_steps")}
    node = start
    for _ in range(most):
        if node.position is None:
            return
        yield node.position.event
        node = node.after(subject, schedule, values)


def _expected(event: Any, steps: int, per_epoch: int) -> list[Any]:
    """The events of a run of so many steps: each epoch that was begun is closed, and none is begun for nothing."""
    whole, rest = divmod(steps, per_epoch)
    epochs = [per_epoch] * whole + [rest] * (rest > 0)
    parts = [[event.EPOCH_BEGIN, *[event.STEP_END] * size, event.EPOCH_END] for size in epochs]
    return [event.TRAIN_BEGIN, *itertools.chain.from_iterable(parts), event.TRAIN_END]


def falsify_every_plan_is_cut_off_exactly(subject: Any) -> None:
    """For N and steps per epoch from 1 to 64 and 1 to 16 epochs: min(N, planned) steps, all 65,536 walked.

    What isn't a positive integer is refused, by its name, before there is a plan.
    """
    usual = {"epochs": 2, "steps_per_epoch": 3, "limit": 4}
    for name, value in itertools.product(usual, (0, -1, 2.0, True, "2", None)):
        if (name, value) != ("limit", None):
            oracles.assert_refused(f"{name} = {value!r}", lambda k={**usual, name: value}: subject.Schedule(**k), name)
    for limit, per_epoch in itertools.product(range(1, 65), range(1, 65)):
        start = _Node(subject.START)
        for epochs in range(1, 17):
            schedule = subject.Schedule(epochs=epochs, steps_per_epoch=per_epoch, limit=limit)
            steps = min(limit, epochs * per_epoch)
            case = f"N = {limit}, {epochs} epochs of {per_epoch} steps"
            assert schedule.total_steps == steps, f"{case}: {schedule.total_steps} steps are announced, not {steps}"
            expected = _expected(subject.Event, steps, per_epoch)
            events = list(_walked(subject, schedule, start, len(expected) + 1))
            assert events == expected, f"{case}: {_counted(events)}; expected {_counted(expected)}"


def _counted(events: list[Any]) -> str:
    names = [event.value for event in events]
    return ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names)) + f", and at last {names[-1]}"


def _assert_summary(ran: Ran, steps: int) -> None:
    told = ran.told_steps()
    assert told == [str(steps)], f"{steps} steps ran and the summaries tell of {told}: {ran.lines}"
    both = [line.startswith("[SMOKE] projected") for line in ran.starting_with("[SMOKE]")]
    assert both == [False, True], f"expected the summary, then the projection, once each: {ran.lines}"


@given(n=COUNTS, epochs=EPOCHS, batch_size=BATCH_SIZES)
@example(n=1, epochs=1, batch_size=4)
@example(n=3, epochs=1, batch_size=4)
@example(n=4, epochs=1, batch_size=4)
@example(n=4, epochs=3, batch_size=4)
def falsify_so_many_steps_run(subject: Any, n: int, epochs: int, batch_size: int) -> None:
    """min(N, planned) real steps, by the result, the trace and the lines, also where the text ends before N."""
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
    """The losses of a run that nothing makes a smoke run, whose end is checked."""
    trace, out = where.root / f"{name}.jsonl", where.tree / name
    ended = invoked(subject, where, *where.flags(epochs=2, trace=trace, out=out), **variables)
    said = f"with {variables or 'smoke unset'}: exit {ended.exit_code}, {ended.output}"
    assert ended.exit_code == 0, said
    assert "smoke" not in ended.output.lower(), f"a run that isn't a smoke run speaks of one {said}"
    assert sorted(path.name for path in out.iterdir()) == WRITTEN, f"{sorted(out.iterdir())} {said}"
    losses = [event["loss"] for event in read_trace(trace) if event["event"] == "on_step_end"]
    assert len(losses) == planned(epochs=2), f"{len(losses)} of {planned(epochs=2)} steps ran {said}"
    return losses


def falsify_unset_is_a_long_run(subject: Any) -> None:
    """Every planned step, no word of a smoke run, and a model; an empty variable is an unset one.

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
def falsify_losses_are_the_first_of_the_long_run(subject: Any, n: int, seed: int, warmup: int) -> None:
    """Bit for bit, where the teacher is the same: one that is kept, or one trained within N steps."""
    with place() as where:
        same = {"seed": seed, "warmup": warmup, "epochs": 4, "teacher_steps": n}
        fresh = finished(subject, where, smoke=n, **same).losses
        long = finished(subject, where, **same).losses
        kept = finished(subject, where, smoke=n, out=where.tree / "other", **same).losses
    for name, losses in (("its own teacher", fresh), ("the kept teacher", kept)):
        assert losses == long[:n], f"with {name} a smoke run of {n} has the losses {losses}, the long run {long[:n]}"


@given(n=st.integers(1, 4), teacher_steps=st.integers(1, 5))
def falsify_teacher_costs_no_more_than_the_run(subject: Any, n: int, teacher_steps: int) -> None:
    """A teacher that isn't kept yet is trained for min(N, teacher_steps) steps, and not kept."""
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
    """Steps of a run of N that is ended in the `call`-th call of `hook`."""
    per_epoch = steps_per_epoch()
    epochs = {"on_step_end": 0, "on_epoch_begin": call - 1, "on_epoch_end": call}[hook]
    return min(n, call if hook == "on_step_end" else epochs * per_epoch)


@given(n=COUNTS, hook=st.sampled_from(["on_step_end", "on_epoch_end", "on_epoch_begin"]), call=st.integers(1, 4))
@example(n=9, hook="on_step_end", call=2)
@example(n=9, hook="on_epoch_begin", call=2)
@example(n=9, hook="on_epoch_begin", call=1)
def falsify_ended_by_a_callback(subject: Any, n: int, hook: str, call: int) -> None:
    """Both lines are there, with the steps that ran; if none ran, a SmokeError says so and neither line is."""
    steps = _steps_before(hook, call, n)
    with place() as where:
        before = where.listing()
        ran = distilled(subject, where, smoke=n, epochs=9, callbacks=[stopping_at(subject, hook, call)])
        assert changes(before, where.listing()) == [], f"{changes(before, where.listing())} changed"
    if steps == 0:
        _assert_nothing_was_tried(subject, ran)
        return
    assert ran.error is None, f"a run that a callback ended after {steps} steps raised {ran.error!r}"
    told = ran.result.train.steps_completed
    assert told == steps, f"{told} steps ran; expected {steps}, ended in call {call} of {hook}"
    _assert_summary(ran, steps)


def _assert_nothing_was_tried(subject: Any, ran: Ran) -> None:
    assert isinstance(ran.error, subject.smoke.SmokeError), f"no step ran and the run ended with {ran.error!r}"
    assert "0 steps" in str(ran.error), f"the error doesn't say that no step ran: {ran.error}"
    assert ran.starting_with("[SMOKE]") == [], f"no step ran, and yet: {ran.lines}"


def falsify_nothing_tried_is_an_error(subject: Any) -> None:
    """A callback that ends the run at its begin leaves a SmokeError, no division by zero, and no file."""
    with place() as where:
        before = where.listing()
        ran = distilled(subject, where, smoke=5, callbacks=[stopping_at(subject, "on_train_begin", 1)])
        assert changes(before, where.listing()) == [], f"{changes(before, where.listing())} changed"
    _assert_nothing_was_tried(subject, ran)


@given(n=COUNTS, step=st.integers(1, 3), error=st.sampled_from([ValueError, KeyboardInterrupt, MemoryError]))
def falsify_exception_ends_without_summary(subject: Any, n: int, step: int, error: type[BaseException]) -> None:
    """The exception is what the caller sees; neither summary nor end line claims that something was tried."""
    raised = error("by the test")
    with place() as where:
        before = where.listing()
        ran = distilled(subject, where, smoke=n + step - 1, callbacks=[raising_at(subject, step, raised)])
        assert changes(before, where.listing()) == [], f"{changes(before, where.listing())} changed"
    assert ran.error is raised, f"{raised!r} was raised in step {step}, and the run ended with {ran.error!r}"
    said = [*ran.starting_with("[SMOKE]"), *ran.starting_with("smoke check"), *ran.lines[-1:]]
    assert not any("SMOKE" in line or "smoke" in line for line in said if "at most" not in line), f"it said {said}"
