"""Checks of callbacks that need a double or a decorator; the rest is attacked in `falsifiers/callbacks`."""

from unittest.mock import MagicMock

import pytest

from reference_trainer.errors import CallbackError, CallbackNote
from reference_trainer.training.callbacks import Callback, Context, call_hooks, call_train_end, checked
from reference_trainer.training.progress import ProgressCallback
from reference_trainer.training.schedule import Event


async def _async(self: Callback, context: object) -> None: ...


def _generator(self: Callback, context: object) -> object:
    yield


def _plain(self: Callback, context: object) -> None: ...


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        (Callback, "callback 2 is the class Callback; expected an instance of reference_trainer's Callback"),
        (None, "callback 2 is a NoneType; expected an instance of reference_trainer's Callback"),
        ({"on_step_ends": _plain}, "callback 2: unknown hook 'on_step_ends' of Mine (did you mean 'on_step_end'?)"),
        (
            {"on_fit_start": _plain},
            "callback 2: unknown hook 'on_fit_start' of Mine (choose from on_train_begin, on_epoch_begin, ",
        ),
        ({"on_step_end": _async}, "callback 2: Mine.on_step_end is an async function, which nothing awaits; expected"),
        (
            {"on_step_end": _generator},
            "callback 2: Mine.on_step_end is a generator, which nothing iterates; expected a plain function",
        ),
    ],
)
def test_message_has_position_name_and_reason(odd: object, message: str) -> None:
    callback = type("Mine", (Callback,), odd)() if isinstance(odd, dict) else odd
    with pytest.raises(CallbackError) as raised:
        checked([Callback(), callback])
    assert str(raised.value).startswith(message)


class Raising(Callback):
    """Callback whose hooks raise."""

    def on_log(self, context: Context) -> None:
        raise ValueError("planted")

    def on_train_end(self, context: Context) -> None:
        raise ValueError("planted")


def notes(callback: Callback, event: Event) -> list[str]:
    with pytest.raises(Exception) as caught:
        if event is Event.TRAIN_END:
            call_train_end([callback], MagicMock(), None)
        else:
            call_hooks([callback], event, MagicMock())
    return [note for note in getattr(caught.value, "__notes__", []) if isinstance(note, CallbackNote)]


def test_error_of_a_hook_names_it_unless_the_callback_is_the_trainers_own() -> None:
    assert notes(Raising(), Event.LOG) == ["raised by Raising.on_log"]
    assert notes(Raising(), Event.TRAIN_END) == ["raised by Raising.on_train_end"]
    own = ProgressCallback(1)
    own.on_log = MagicMock(side_effect=ValueError)
    assert notes(own, Event.LOG) == []
