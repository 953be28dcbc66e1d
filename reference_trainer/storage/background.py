"""Run one function at a time in a background thread, such as the writing of a checkpoint during training."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from types import TracebackType
from typing import Self

from reference_trainer.errors import StopRequestedError


class Background:
    """Run work in another thread while the caller continues. Exiting the `with` block waits for the work.

    An exception of the work is raised once, in the caller's thread, by the next `start`, `check` or `wait`, or at the
    end of the block. If another exception ends the block, the exception of the work is added to it as a note. Only a
    `StopRequestedError` is replaced by the exception of the work, because a `StopRequestedError` states that the work
    is done. The thread is not a daemon: a process that exits finishes the work first.
    """

    def __init__(self) -> None:
        self._thread: Thread | None = None
        self._error: BaseException | None = None

    @property
    def failed(self) -> bool:
        """Whether the work raised an exception that has not been raised in the caller's thread yet."""
        return self._error is not None

    def start(self, work: Callable[[], object], name: str) -> None:
        """Wait for the previous work, then start `work` in a thread with the name `name`."""
        self.wait()
        self._thread = Thread(target=self._do, args=(work,), name=name)
        self._thread.start()

    def check(self) -> None:
        """Raise the exception of the work if the work has failed. Do not wait for the work."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def wait(self) -> None:
        """Wait until the work has ended, and raise its exception if the work has failed."""
        if self._thread is not None:
            self._thread.join()
        self.check()

    def _do(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # the caller's thread decides what ends the run
            self._error = error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, cause: BaseException | None, _: TracebackType | None) -> None:
        try:
            self.wait()
        except Exception as error:
            if cause is None or isinstance(cause, StopRequestedError):
                raise
            cause.add_note(f"and {error}")
