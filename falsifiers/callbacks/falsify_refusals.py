"""Attacks on the checks of callbacks and of their answers: what is refused, before or during a run, and what is not."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given as drawn
from hypothesis import strategies as st

from falsifiers.callbacks.falsify_lifecycle import PLACES, exception_of
from falsifiers.callbacks.lifecycle import HOOKS, SILENT, Call, Recorder, Script, assert_same_calls, lifecycle, scripts
from falsifiers.callbacks.real_run import parts, recording_callbacks, run
from falsifiers.support import oracles
from reference_trainer.callbacks.base import Callback
from reference_trainer.config.settings import Settings
from reference_trainer.errors import CallbackError
from reference_trainer.pipeline.distill import distill
from reference_trainer.plan.schedule import Action

ODD = [True, False, 0, 1, "stop", "STOP", 2.0, ()]


@drawn(script=scripts(st.none(), fewest=1), place=PLACES, answer=st.sampled_from([*ODD, *Action]))
def falsify_invalid_answers_are_refused(subject: Any, script: Script, place: int, answer: Any) -> None:
    """An action is an answer to every hook but on_save, at which a checkpoint has it no more."""
    script = replace(script, every=(*script.every[:2], 1)) if isinstance(answer, Action) else script
    calls = [call for call in lifecycle(script).calls if call.event != "on_train_end"]
    refusing = [call for call in calls if call.event == "on_save" or not isinstance(answer, Action)]
    invalid, recorder = refusing[place % len(refusing)], Recorder(script)

    def act(callback: int, event: str, context: Any) -> Any:
        recorder.act(callback, event, context)
        return answer if recorder.calls[-1] == invalid else None

    seen = exception_of(subject, script, act, parts())
    expected = "expected None" if invalid.event in SILENT else "expected Action.CONTINUE"
    shown = (f"Recorder.{invalid.event}", repr(answer), expected)
    assert isinstance(seen, CallbackError) and all(part in str(seen) for part in shown), (
        f"{invalid} was answered with {answer!r}; the run ended with {seen!r}, expected a CallbackError naming {shown}"
    )
    ends = [Call(c, "on_train_end", invalid.epoch, invalid.taken) for c in range(len(script.answers))]
    assert_same_calls(recorder.calls, calls[: calls.index(invalid) + 1] + ends)


def refusal(subject: Any, script: Script, callback: Any, place: int) -> tuple[int, str]:
    """Return the callback's position from 1 and the CallbackError of a run with it, "" if the run was not refused.

    Assert that nothing was called or read before a refusal.
    """
    recorder, batches = Recorder(script), list[int]()
    registered = recording_callbacks(len(script.answers), recorder.act)
    place = min(place, len(registered))
    registered.insert(place, callback)
    given = parts()
    counted = given | {"batch_at": lambda epoch, k: batches.append(k) or given["batch_at"](epoch, k)}
    try:
        run(subject, script, registered, counted)
    except Exception as error:
        assert isinstance(error, CallbackError), f"callback {place + 1} ended the run with {error!r}"
        assert recorder.calls == [] and batches == [], f"before the refusal came {recorder.calls}, batches {batches}"
        return place + 1, str(error)
    return place + 1, ""


def assert_refused(position: int, message: str, *names: str) -> None:
    """Assert that the message has the position and these names, in any words."""
    missing = [name for name in (str(position), *names) if not re.search(rf"\b{name}\b", message)]
    assert message and not missing, f"refused with {message!r}; expected a CallbackError that names {missing}"


def with_attributes(origin: str, **attributes: Any) -> Any:
    """Return a callback with these attributes: of its class or a base class, or of the instance."""
    if origin == "instance":
        made = type("Mine", (Callback,), {})()
        vars(made).update(attributes)
        return made
    base = type("Base", (Callback,), attributes) if origin == "base" else Callback
    return type("Mine", (base,), attributes if origin == "class" else {})()


ORIGINS = st.sampled_from(["class", "base", "instance"])
SCRIPTS = scripts(st.none(), fewest=1)
POSITIONS = st.integers(0, 3)


@drawn(script=SCRIPTS, place=POSITIONS, kind=st.sampled_from(["type", "builtin_function_or_method", "NoneType"]))
def falsify_non_callbacks_are_refused(subject: Any, script: Script, place: int, kind: str) -> None:
    """In a list of callbacks, and in place of the list, where `distill` refuses it too."""
    odd: Any = {"type": Callback, "builtin_function_or_method": len, "NoneType": None}[kind]
    assert_refused(*refusal(subject, script, odd, place))
    missing = Settings(data=Path("missing"))
    for what, started in (
        (f"a {kind};", lambda: distill(missing, callbacks=odd)),
        (f"a {kind};", lambda: run(subject, script, odd, parts())),
        ("callback 1 is ", lambda: distill(missing, callbacks=[odd])),
    ):
        oracles.assert_refused(f"a {kind} for callbacks", started, what, kind=CallbackError)


async def _coroutine(*arguments: Any) -> None: ...


def _generator(*arguments: Any) -> Any:
    yield


def _plain(*arguments: Any) -> None: ...


UNAWAITED = {_coroutine: "async", _generator: "generator"}


@st.composite
def uncalled(draw: st.DrawFn) -> tuple[str, Any, list[str]]:
    """Draw a hook that would not be called, and the words of its refusal: misspelt, foreign, or never awaited."""
    hook, kind = draw(st.sampled_from(HOOKS)), draw(st.sampled_from(["misspelt", "foreign", "unawaited"]))
    if kind == "foreign":
        name = draw(st.sampled_from(["on_fit_start", "on_validation"]))
        return name, _plain, [name, *HOOKS]
    if kind == "unawaited":
        body = draw(st.sampled_from(list(UNAWAITED)))
        return hook, body, [hook, UNAWAITED[body]]
    at = draw(st.integers(3, len(hook) - 2))
    left_out, swapped = hook[:at] + hook[at + 1 :], hook[:at] + hook[at + 1] + hook[at] + hook[at + 2 :]
    name = draw(st.sampled_from([f"{hook}s", left_out, swapped]).filter(lambda name: name not in HOOKS))
    return name, _plain, [name, hook]


@drawn(script=SCRIPTS, place=POSITIONS, odd=uncalled(), origin=ORIGINS)
def falsify_uncalled_hooks_are_refused(
    subject: Any, script: Script, place: int, odd: tuple[str, Any, list[str]], origin: str
) -> None:
    name, body, words = odd
    position, message = refusal(subject, script, with_attributes(origin, **{name: body}), place)
    assert_refused(position, message, "Mine", *words)
    others = [each for each in HOOKS if each not in words and re.search(rf"\b{each}\b", message)]
    assert not others, f"{name} was refused with {message!r}, which names {others} too"
