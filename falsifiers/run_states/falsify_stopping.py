"""Attacks on a run that is asked to stop. The subject is that of `kept`."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from falsifiers.callbacks.lifecycle import Call, Script, assert_same_calls, lifecycle, scripts
from falsifiers.callbacks.real_run import parts
from falsifiers.run_states.kept import KeptRun, rest_of

ASKED = st.integers(0, 300)


@st.composite
def failing(draw: st.DrawFn) -> tuple[Script, int]:
    """Draw a script with the call of an on_step_begin, of a step after the first, whose data are fetched."""
    silent = draw(scripts(st.none(), fewest=1))
    count, calls = len(silent.answers), lifecycle(silent).calls
    begins = [n for n, call in enumerate(calls) if (call.event, call.callback) == ("on_step_begin", 0) and call.taken]
    assume(begins)
    return silent, begins[draw(ASKED) % len(begins)] + draw(st.integers(0, count - 1))


@given(drawn=failing())
def falsify_a_failure_after_a_request_loses_no_step(subject: Any, drawn: tuple[Script, int]) -> None:
    script, at = drawn
    calls, count = lifecycle(script).calls, len(script.answers)
    step, epoch = calls[at].step, calls[at].epoch
    earlier = {call.step for call in calls[:at] if (call.event, call.epoch) == ("on_step_begin", epoch)} - {step}
    first = (epoch, 1 + script.accumulation * len(earlier))
    fetch = parts()["batch_at"]

    def batch_at(*place: int) -> Any:
        if place == first:
            raise RuntimeError("a worker was killed")
        return fetch(*place)

    where = f"asked to stop in step {step}, whose data fail,"
    try:
        failed = KeptRun(subject, script, asked_at=at, batch_at=batch_at)
    except RuntimeError as error:
        raise AssertionError(f"{where} the run ends with {error!r}") from error
    assert failed.kept, f"{where} the run saves nothing"
    position = failed.kept[-1].state.position
    assert position.step == step - 1, f"{where} the run saves step {position.step}"
    forward = next(n for n, call in enumerate(calls) if (call.event, call.step) == ("on_before_forward", step))
    begin = [Call(n, event, epoch, step - 1) for event in ("on_train_begin", "on_save") for n in range(count)]
    rest, events = [*begin, *calls[forward:]], forward // count
    if script.is_saved(step - 1):
        rest = rest_of(script, position, named=True)[1]
        events = next(n for n, call in enumerate(calls) if (call.event, call.step) == ("on_save", step - 1)) // count
    resumed = KeptRun(subject, script, resumed=failed.kept[-1])
    assert_same_calls(resumed.calls, rest)
    got, expected = [state for _, _, state in resumed.loaded], [{"events": events}] * count
    assert got == expected, f"{where} the callbacks get back {got}; expected {expected}"
