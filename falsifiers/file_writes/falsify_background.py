"""Attacks on work in the background. The subject is `storage.background`, or has its names."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reference_trainer.errors import StopRequestedError


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
