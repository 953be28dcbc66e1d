"""Attacks on the lifecycle of a run: which callback is told of what, when, and how a run ends.

The subject is that of `falsifiers.lifecycle`, with `START`, `following` and `ask` for the plan in pure integers.
"""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.lifecycle import (
    ANSWERS,
    FAR_TOO_MANY,
    Recorder,
    Script,
    action,
    answering_once,
    assert_same_calls,
    callbacks,
    lifecycle,
    parts,
    run,
    scripts,
    scripts_with_one,
)


def assert_lifecycle(subject: Any, script: Script, device: str = "cpu") -> None:
    """A real run tells what the words say, and its result says what happened."""
    recorder, expected = Recorder(script), lifecycle(script)
    result = run(subject, script, callbacks(subject, len(script.answers), recorder.act), parts(subject, device))
    assert_same_calls(recorder.told, expected.told)
    assert (result.steps_completed, result.stopped) == (expected.steps, expected.stopped), (
        f"the result says {result.steps_completed} steps, stopped {result.stopped}; expected {expected.steps} steps, "
        f"stopped {expected.stopped}"
    )


@given(script=scripts(ANSWERS))
def falsify_sequence_of_events(subject: Any, device: str, script: Script) -> None:
    """Any schedule, any answers: train_begin (epoch_begin step_end* epoch_end)* train_end, each with its numbers."""
    assert_lifecycle(subject, script, device)


@given(script=scripts_with_one("STOP"))
def falsify_stop_ends_the_run(subject: Any, script: Script) -> None:
    """One STOP, at any event, from any callback: everybody hears that event, no step follows, an epoch is closed."""
    assert_lifecycle(subject, script)


@given(script=scripts(st.sampled_from([None, "SKIP"]), fewest=1))
def falsify_skip_ends_the_epoch(subject: Any, script: Script) -> None:
    """SKIP leaves out the rest of the epoch and nothing else; where no epoch is open it changes nothing."""
    assert_lifecycle(subject, script)


@given(
    script=scripts(st.none(), fewest=2),
    nth=st.integers(0, 20),
    said=st.permutations(["SKIP", "STOP", None, "CONTINUE"]),
)
def falsify_the_strongest_answer_counts(subject: Any, script: Script, nth: int, said: list[str | None]) -> None:
    """Different answers to one event: STOP before SKIP before CONTINUE, whoever gave it."""
    assert_lifecycle(subject, answering_once(script, nth, said))


def _planned(subject: Any, schedule: Any, count: int, stop: tuple[str, int, int] | None) -> list[tuple[int, int]]:
    """(step, callback) of each on_step_end of a run without models. `stop`: where STOP is answered."""
    seen: list[tuple[int, int]] = []

    def act(callback: int, event: str, context: Any) -> Any:
        seen.extend([(context.step, callback)] if event == "on_step_end" else [])
        return action("STOP") if (event, context.step, callback) == stop else None

    told, position = callbacks(subject, count, act), subject.START
    for _ in range(FAR_TOO_MANY):
        if position is None:
            return seen
        position = subject.following(schedule, position, subject.ask(told, position.event, position))
    raise AssertionError(f"{schedule} has no end: it is at {position}")


def falsify_callbacks_are_called_in_order(subject: Any) -> None:
    """0 to 8 callbacks, 0 to 32 steps: (step, callback) in lexicographic order, none twice, none left out."""
    for count, steps, per_epoch in itertools.product(range(9), range(33), (1, 5, 32)):
        schedule = subject.Schedule(epochs=33, steps_per_epoch=per_epoch, limit=max(steps, 1))
        seen = _planned(subject, schedule, count, None if steps else ("on_train_begin", 0, count // 2))
        expected = list(itertools.product(range(1, steps + 1), range(count)))
        assert seen == expected, (
            f"{count} callbacks and {steps} steps, {per_epoch} in an epoch: on_step_end came as (step, callback) {seen}"
        )


def falsify_stop_in_the_plan(subject: Any) -> None:
    """STOP at step k of 32, from any of 1 to 8 callbacks: exactly k steps, and everybody hears of the k-th."""
    for count, k, per_epoch in itertools.product(range(1, 9), range(1, 33), (5, 32)):
        schedule = subject.Schedule(epochs=7, steps_per_epoch=per_epoch, limit=32)
        for callback in (0, count // 2, count - 1):
            seen = _planned(subject, schedule, count, ("on_step_end", k, callback))
            assert seen == list(itertools.product(range(1, k + 1), range(count))), (
                f"callback {callback} of {count} said STOP at step {k}; on_step_end came as (step, callback) {seen}"
            )


def falsify_number_of_steps(subject: Any) -> None:
    """Where nobody skips or stops, min(limit, epochs * steps_per_epoch) steps are taken, in epochs that are filled."""
    for epochs, per_epoch, limit in itertools.product(range(1, 6), range(1, 7), (None, *range(1, 33))):
        schedule, total = subject.Schedule(epochs=epochs, steps_per_epoch=per_epoch, limit=limit), epochs * per_epoch
        total = total if limit is None else min(total, limit)
        assert schedule.total_steps == total, f"{schedule} plans {schedule.total_steps} steps; expected {total}"
        seen, position = "", subject.START
        while position is not None and len(seen) < FAR_TOO_MANY:
            seen += {"on_epoch_begin": "(", "on_step_end": "s", "on_epoch_end": ")"}.get(position.event.value, "|")
            position = subject.following(schedule, position, action("CONTINUE"))
        full, rest = divmod(total, per_epoch)
        expected = f"|{('(' + 's' * per_epoch + ')') * full}{'(' + 's' * rest + ')' if rest else ''}|"
        assert seen == expected, f"{schedule} goes {seen}; expected {expected} (| ends, () epochs, s steps)"
