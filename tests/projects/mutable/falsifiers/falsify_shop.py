"""Attacks on `shop`."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

pieces = st.integers(0, 20)
cents = st.integers(0, 1000)


@given(cents=cents, pieces=pieces)
def falsify_price(subject, cents, pieces):
    assert subject.price(cents, pieces) == sum(cents for _ in range(pieces)), "not the sum of the prices of the pieces"


@given(seconds=st.integers(0, 5))
def falsify_countdown(subject, seconds):
    assert subject.countdown(seconds) == 0


def falsify_leave(subject):
    assert subject.leave(3) == 3


def falsify_forget(subject):
    with tempfile.TemporaryDirectory() as folder:
        for name in ("kept", "gone.tmp"):
            Path(folder, name).write_text(name)
        assert subject.forget(folder) == ["kept"], "a temporary file is left"
