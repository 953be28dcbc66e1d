"""Attacks on observers of a real run. The subject has `Callbacks`, as `training.dispatch` does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.callbacks.lifecycle import ANSWERS, HOOKS, Call, Recorder, Script, assert_same_calls, lifecycle, scripts
from falsifiers.callbacks.real_run import parts, recording_callbacks, run
from falsifiers.observers.events import observer
from reference_trainer import Callback, Context
from reference_trainer.training import loop


@given(script=scripts(ANSWERS, fewest=1, most=2), observers=st.integers(1, 2), raises=st.none() | st.integers(0, 60))
def falsify_observers_see_the_whole_run(subject: Any, script: Script, observers: int, raises: int | None) -> None:
    planned, recorder = lifecycle(script).calls, Recorder(script)
    seen: list[list[Call]] = [[] for _ in range(observers)]

    def act(callback: int, event: str, at: Any) -> Any:
        if raises is not None and len(recorder.calls) == raises:
            raise RuntimeError("raised on purpose")
        return recorder.act(callback, event, at)

    def watch(number: int) -> Any:
        return observer(lambda hook, at: seen[number].append(Call(0, hook, at.epoch, at.step, at.micro_batch)))

    callbacks = subject.Callbacks([*recording_callbacks(len(script.answers), act), *map(watch, range(observers))])
    try:
        run(loop, script, callbacks, parts())
    except RuntimeError:
        assert raises is not None, "the run ended with an error of its own"
    callbacks.close()
    count, expected = len(script.answers), planned[:: len(script.answers)]
    if raises is not None and raises < len(planned):
        at = planned[raises]
        ends = [Call(0, "on_train_end", at.epoch, at.taken)] if at.event != "on_train_end" else []
        expected = expected[: raises // count + 1] + ends
    for calls in seen:
        assert_same_calls(calls, expected)


@given(script=scripts(st.none(), fewest=1), name=st.text(max_size=3), attempt=st.integers(1, 9))
def falsify_events_name_run_and_attempt(subject: Any, script: Script, name: str, attempt: int) -> None:
    seen: list[Context] = []
    callbacks = subject.Callbacks([observer(lambda hook, at: seen.append(at))])
    named = {"run": name, "attempt": attempt}
    run(loop, script, callbacks, parts() | named)
    callbacks.close()
    odd = [at for at in seen if (at.run, at.attempt) != (name, attempt)]
    assert not odd, f"of the run {name!r}, attempt {attempt}, comes an event of {odd[0].run!r}, {odd[0].attempt}"
    hooks = [call.event for call in lifecycle(script).calls[:: len(script.answers)]]
    assert [at.hook for at in seen] == hooks, f"the events say that they are {[at.hook for at in seen]}"
    ranks = {(at.rank, at.local_rank, at.world_size, at.is_world_process_zero, at.is_local_process_zero) for at in seen}
    assert ranks == {(0, 0, 1, True, True)}, f"one process is said to be {ranks}"


@given(script=scripts(st.none()), hooks=st.sets(st.sampled_from(HOOKS)))
def falsify_hooks_without_callbacks_cost_nothing(subject: Any, script: Script, hooks: set[str]) -> None:
    def reads(*callbacks: Any) -> int:
        now = [0]

        def clock() -> float:
            now[0] += 1
            return 0.0

        run(loop, script, subject.Callbacks(callbacks), parts() | {"clock": clock})
        return now[0]

    expected = [
        call
        for call in lifecycle(replace(script, answers=((),))).calls
        if call.event in hooks and call.event != "on_train_end"
    ]
    callback = type("Mine", (Callback,), {hook: lambda self, at: None for hook in hooks})()
    extra = reads(callback) - reads()
    assert extra == len(expected), f"{len(expected)} calls of {sorted(hooks)} read the clock {extra} times more"
