"""Attacks on the checks of callbacks and of their answers: what is refused, before or during a run, and what is not.

The subject is that of `real_run`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property
from typing import Any

from hypothesis import given as drawn
from hypothesis import strategies as st

from falsifiers.callbacks.falsify_exceptions import PLACES, exception_of
from falsifiers.callbacks.lifecycle import HOOKS, SILENT, Call, Recorder, Script, assert_same_calls, lifecycle, scripts
from falsifiers.callbacks.real_run import parts, recording_callbacks, run
from reference_trainer.config.settings import Settings
from reference_trainer.errors import CallbackError
from reference_trainer.pipeline.distill import distill
from reference_trainer.training.callbacks import Callback
from reference_trainer.training.dispatch import Callbacks
from reference_trainer.training.schedule import Action


@drawn(
    script=scripts(st.none(), fewest=1),
    place=PLACES,
    answer=st.sampled_from([True, False, 0, 1, 2, "stop", "STOP", 2.0, (), Call]),
)
def falsify_invalid_answers_are_refused(subject: Any, script: Script, place: int, answer: Any) -> None:
    calls = [call for call in lifecycle(script).calls if call.event != "on_train_end"]
    _assert_refused_answer(subject, script, calls, calls[place % len(calls)], answer)


@drawn(script=scripts(st.none(), fewest=1), place=PLACES, answer=st.sampled_from(Action))
def falsify_answers_to_on_save_are_refused(subject: Any, script: Script, place: int, answer: Action) -> None:
    script = replace(script, every=(script.every[0], script.every[1], 1))
    calls = [call for call in lifecycle(script).calls if call.event != "on_train_end"]
    saves = [call for call in calls if call.event == "on_save"]
    _assert_refused_answer(subject, script, calls, saves[place % len(saves)], answer)


def _assert_refused_answer(subject: Any, script: Script, calls: list[Call], invalid: Call, answer: Any) -> None:
    recorder = Recorder(script)

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
    """Return a callback with these attributes: of its class, a base class or a mixin, or of the instance."""
    if origin == "instance":
        made = type("Mine", (Callback,), {})()
        vars(made).update(attributes)
        return made
    bases = {
        "class": (Callback,),
        "base": (type("Base", (Callback,), attributes),),
        "mixin": (type("Mixin", (), attributes), Callback),
    }
    return type("Mine", bases[origin], attributes if origin == "class" else {})()


ORIGINS = st.sampled_from(["class", "base", "mixin", "instance"])
SCRIPTS = scripts(st.none(), fewest=1)
POSITIONS = st.integers(0, 3)


@drawn(script=SCRIPTS, place=POSITIONS, kind=st.sampled_from(["class", "function", "None"]))
def falsify_non_callbacks_are_refused(subject: Any, script: Script, place: int, kind: str) -> None:
    odd = {"class": Callback, "function": len, "None": None}[kind]
    assert_refused(*refusal(subject, script, odd, place))


@drawn(script=SCRIPTS, kind=st.sampled_from(["Callback", "Callbacks", "function", "None"]))
def falsify_what_is_not_a_list_is_refused(subject: Any, script: Script, kind: str) -> None:
    odd: Any = {"Callback": Callback(), "Callbacks": Callbacks(), "function": len, "None": None}[kind]
    kinds = {"function": "builtin_function_or_method", "None": "NoneType"}
    runs = {"distill": lambda: distill(Settings(smoke=1), callbacks=odd)}
    if kind != "Callbacks":
        runs["train"] = lambda: run(subject, script, odd, parts())
    for name, started in runs.items():
        try:
            started()
        except Exception as error:
            named = isinstance(error, CallbackError) and f"a {kinds.get(kind, kind)};" in str(error)
            assert named, f"{name} with a {kind} for callbacks ended with {error!r}; expected a CallbackError"
        else:
            raise AssertionError(f"{name} accepted a {kind} for callbacks")


@st.composite
def misspelt(draw: st.DrawFn) -> tuple[str, str]:
    """Draw a hook's name with one letter left out, doubled or swapped after "on_", and the hook."""
    hook = draw(st.sampled_from(HOOKS))
    at = draw(st.integers(3, len(hook) - 2))
    doubled, left_out = hook[: at + 1] + hook[at:], hook[:at] + hook[at + 1 :]
    swapped = hook[:at] + hook[at + 1] + hook[at] + hook[at + 2 :]
    name = draw(st.sampled_from([f"{hook}s", doubled, left_out, swapped]).filter(lambda name: name not in HOOKS))
    return name, hook


WRAPPERS = {"function": lambda function: function, "static method": staticmethod, "class method": classmethod}


@drawn(script=SCRIPTS, place=POSITIONS, names=misspelt(), origin=ORIGINS, wrapper=st.sampled_from(sorted(WRAPPERS)))
def falsify_misspelt_hooks_are_refused(
    subject: Any, script: Script, place: int, names: tuple[str, str], origin: str, wrapper: str
) -> None:
    name, hook = names
    method = WRAPPERS["function" if origin == "instance" else wrapper](lambda *arguments: None)
    position, message = refusal(subject, script, with_attributes(origin, **{name: method}), place)
    assert_refused(position, message, name, "Mine", hook)
    others = [each for each in HOOKS if each != hook and re.search(rf"\b{each}\b", message)]
    assert not others, f"{name} was refused with {message!r}, which names {others} too"


@drawn(script=SCRIPTS, place=POSITIONS, name=st.sampled_from(["on_fit_start", "on_validation", "on_"]))
def falsify_foreign_hooks_are_refused(subject: Any, script: Script, place: int, name: str) -> None:
    """A hook of another library, with no similar name here: CallbackError with all hooks to choose from."""
    callback = with_attributes("class", **{name: lambda self, context: None})
    position, message = refusal(subject, script, callback, place)
    assert_refused(position, message, name, *HOOKS)


def _raises(self: Any) -> Any:
    raise RuntimeError("a property was evaluated before the run")


HELPERS = {
    "step_ends": lambda *arguments: None,
    "_on_step_ends": lambda *arguments: None,
    "online": lambda *arguments: None,
    "on": lambda *arguments: None,
    "On_step_ends": lambda *arguments: None,
    "on_gpu": True,
    "on_disk": None,
}
PROPERTIES = {"on_terminal": property(_raises), "on_cluster": cached_property(_raises)}


@drawn(script=SCRIPTS, place=POSITIONS, name=st.sampled_from(sorted(HELPERS | PROPERTIES)), origin=ORIGINS)
def falsify_helpers_are_accepted(subject: Any, script: Script, place: int, name: str, origin: str) -> None:
    origin = "class" if name in PROPERTIES else origin
    attribute = (HELPERS | PROPERTIES)[name]
    if isinstance(attribute, cached_property):
        attribute.__set_name__(object, name)
    callback = with_attributes(origin, **{name: attribute})
    _, message = refusal(subject, script, callback, place)
    assert message == "", f"a callback with the {origin} attribute {name!r} was refused: {message}"


async def _coroutine(*arguments: Any) -> None: ...


async def _async_generator(*arguments: Any) -> Any:
    yield


def _generator(*arguments: Any) -> Any:
    yield


UNAWAITED = {_coroutine: "async", _async_generator: "async", _generator: "generator"}
BODIES = st.sampled_from(list(UNAWAITED))


@drawn(script=SCRIPTS, place=POSITIONS, hook=st.sampled_from(HOOKS), body=BODIES, origin=ORIGINS)
def falsify_async_and_generator_hooks_are_refused(
    subject: Any, script: Script, place: int, hook: str, body: Any, origin: str
) -> None:
    position, message = refusal(subject, script, with_attributes(origin, **{hook: body}), place)
    assert_refused(position, message, "Mine", hook, UNAWAITED[body])
