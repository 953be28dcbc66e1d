"""Attacks on work in the background. The subject is `storage.background`, or has its names."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reference_trainer.errors import StopRequestedError


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
