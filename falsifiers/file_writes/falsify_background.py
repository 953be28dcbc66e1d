"""Attacks on work in the background. The subject is `storage.background`, or has its names."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reference_trainer.errors import StopRequestedError

PATIENCE_S = 5.0
"""How long a thread is waited for that should be free to go on; a right subject never needs it."""


def falsify_caller_goes_on_meanwhile(subject: Any) -> None:
    go, names = threading.Event(), list[str]()

    def work() -> None:
        names.append(threading.current_thread().name)
        assert go.wait(PATIENCE_S), "the caller waits for the work"

    with subject.Background() as background:
        background.start(work, "the writer")
        assert not background.failed, "work that is being done has failed"
        background.check()
        go.set()
    assert names == ["the writer"], f"the work ran in the threads {names}; expected one called 'the writer'"


@given(pieces=st.lists(st.booleans(), min_size=2, max_size=5))
def falsify_pieces_are_done_in_order(subject: Any, pieces: list[bool]) -> None:
    """Pieces never overlap and keep their order; those that are True raise an error."""
    log, errors = list[tuple[str, int]](), list[str]()

    def piece(number: int, fails: bool) -> Callable[[], None]:
        def work() -> None:
            log.append(("begin", number))
            threading.Event().wait(0.002)  # so that a piece that does not wait overlaps
            log.append(("end", number))
            if fails:
                raise ValueError(str(number))

        return work

    background = subject.Background()
    for number, fails in enumerate(pieces):
        while True:
            try:
                background.start(piece(number, fails), "writer")
                break
            except ValueError as error:
                errors.append(str(error))
    try:
        background.wait()
    except ValueError as error:
        errors.append(str(error))
    expected = [(what, number) for number in range(len(pieces)) for what in ("begin", "end")]
    assert log == expected, f"the pieces were done as {log}; expected {expected}"
    failed = [str(number) for number, fails in enumerate(pieces) if fails]
    assert errors == failed, f"the pieces {errors} reported an error; expected {failed}"


class Stop(BaseException):
    """What ends a block; like KeyboardInterrupt, it is not an `Exception`."""


def falsify_end_waits_for_the_last_piece(subject: Any) -> None:
    for cause in (None, ValueError("x"), Stop()):
        done = list[int]()
        try:
            with subject.Background() as background:
                background.start(lambda done=done: _slow(done), "writer")
                if cause is not None:
                    raise cause
        except (ValueError, Stop) as error:
            assert error is cause, f"the block ended with {error!r}; expected {cause!r}"
        assert done == [1], f"a block that ends with {cause!r} ends before the work"
    background, done = subject.Background(), []
    background.start(lambda: _slow(done), "writer")
    background.wait()
    assert done == [1], "`wait` returns before the work has ended"
    background.wait()


def _slow(done: list[int]) -> None:
    threading.Event().wait(0.05)
    done.append(1)


def falsify_exit_finishes_the_work(subject: Any) -> None:
    """A child whose main thread returns at once still writes what the work writes."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(subject, writing)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    assert said == "done", f"the process exited with {said!r} written; expected 'done'"


def _child(subject: Any, writing: int) -> None:
    def work() -> None:
        threading.Event().wait(0.1)
        os.write(writing, b"done")

    try:
        subject.Background().start(work, "writer")
        threading._shutdown()  # what the interpreter does at its exit: it waits for threads that are no daemons
    finally:
        sys.stdout.flush()
        os._exit(0)


ERRORS: tuple[BaseException, ...] = (OSError(28, "No space left on device"), ValueError("x"), Stop("y"))
CALLS = ("start", "check", "wait", "end")


@given(which=st.integers(0, 2), call=st.sampled_from(CALLS), then=st.sampled_from(CALLS[1:]))
def falsify_error_is_raised_once(subject: Any, which: int, call: str, then: str) -> None:
    wanted, background = ERRORS[which], subject.Background()

    def work() -> None:
        raise wanted

    background.start(work, "writer")
    while not background.failed and any(each.name == "writer" for each in threading.enumerate()):
        threading.Event().wait(0.001)
    assert background.failed, "the work raised an error, and has not failed"
    seen = _raised(background, call)
    assert seen is wanted, f"{call} raised {seen!r}; expected {wanted!r}"
    assert not background.failed, f"after {call} raised the error, the work has still failed"
    again = _raised(background, then)
    assert again is None, f"{then} raised {again!r} after {call} had raised it"


def _raised(background: Any, call: str) -> BaseException | None:
    calls: dict[str, Callable[[], object]] = {
        "start": lambda: background.start(lambda: None, "writer"),
        "check": background.check,
        "wait": background.wait,
        "end": lambda: background.__exit__(None, None, None),
    }
    try:
        calls[call]()
    except BaseException as error:  # whatever it is, it is compared
        return error
    return None


def falsify_error_is_a_note_on_what_ended_the_block(subject: Any) -> None:
    def work() -> None:
        raise OSError("the disk is full")

    for cause in (ValueError("x"), Stop()):
        seen: BaseException | None = None
        try:
            with subject.Background() as background:
                background.start(work, "writer")
                raise cause
        except BaseException as error:  # whatever it is, it is compared
            seen = error
        assert seen is cause, f"the block ended with {seen!r}; expected {cause!r}"
        notes = getattr(seen, "__notes__", [])
        assert notes == ["and the disk is full"], f"the notes of {cause!r} are {notes}"


@given(fails=st.booleans())
def falsify_request_to_stop_needs_its_checkpoint(subject: Any, fails: bool) -> None:
    def work() -> None:
        if fails:
            raise OSError("the disk is full")

    request = StopRequestedError("stopped on request")
    try:
        with subject.Background() as background:
            background.start(work, "writer")
            raise request
    except (OSError, StopRequestedError) as error:
        seen: BaseException = error
    expected = OSError if fails else StopRequestedError
    assert type(seen) is expected, f"with {'a failed' if fails else 'its'} checkpoint, the run ended with {seen!r}"
