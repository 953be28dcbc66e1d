"""Checks of callbacks that need a double or a decorator; the rest is attacked in `falsifiers/callbacks`."""

import functools
from unittest.mock import MagicMock

import pytest

from reference_trainer.errors import CallbackError
from reference_trainer.training.callbacks import Callback, checked


def test_mock_with_the_spec_of_a_callback_is_accepted() -> None:
    mock = MagicMock(spec=Callback)
    assert checked([mock]) == (mock,)


def test_generator_of_callbacks_is_consumed_once() -> None:
    callbacks = [Callback(), Callback()]
    assert checked(each for each in callbacks) == tuple(callbacks)


def test_partial_of_an_async_function_is_refused() -> None:
    async def save(context: object, path: str) -> None: ...

    callback = Callback()
    callback.on_step_end = functools.partial(save, path="out")
    with pytest.raises(CallbackError, match="on_step_end is an async function"):
        checked([callback])


def test_wrapper_that_runs_an_async_function_is_accepted() -> None:
    async def save(self: Callback, context: object) -> None: ...

    class Synchronous(Callback):
        @functools.wraps(save)
        def on_step_end(self, context: object) -> None:
            save(self, context).close()

    callback = Synchronous()
    assert checked([callback]) == (callback,)
