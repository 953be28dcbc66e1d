"""An attack on the place of a process in its run. The subject is `reference_trainer.config.place`."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from reference_trainer import SettingError

NUMBERS = st.integers(-1, 4).map(str) | st.sampled_from(["", "1.0", " 1", "one", "\u0661", str(10**6), str(10**6 + 1)])
NAMES = ("WORLD_SIZE", "RANK", "LOCAL_RANK")
ENVIRONMENTS = st.tuples(*(st.none() | NUMBERS for _ in NAMES))
"""A text of each variable; None where it is not set."""


def _number(name: str, text: str | None, least: int, most: int) -> int:
    """Return the number, or raise ValueError with what is to be said."""
    if re.fullmatch("[0-9]+", text or "") and least <= int(text or "") <= most:
        return int(text or "")
    raise ValueError(
        f"invalid value {text or ''!r} for the variable {name}: expected an integer from {least} to {most}"
    )


def _expected(size: str | None, rank: str | None, local: str | None) -> tuple[int, int, int]:
    if size is None and rank is None:
        return 0, 1, 0
    ranks = _number("WORLD_SIZE", size, 1, 10**6)
    number = _number("RANK", rank, 0, ranks - 1)
    return number, ranks, number if local is None else _number("LOCAL_RANK", local, 0, number)


@given(texts=ENVIRONMENTS)
@example(texts=("2", None, None))
@example(texts=(None, "0", None))
@example(texts=("4", "4", None))
@example(texts=("4", "2", "3"))
def falsify_place_is_that_of_the_launcher(subject: Any, texts: tuple[str | None, ...]) -> None:
    environment = {name: text for name, text in zip(NAMES, texts, strict=True) if text is not None}
    said, seen = "", None
    try:
        place = subject.placed({"HOME": "/", **environment})
        seen = (place.rank, place.world_size, place.local_rank)
    except SettingError as error:
        said = str(error)
    try:
        expected = _expected(*texts)
    except ValueError as error:
        assert str(error) in said, f"{environment}: {said or seen}; expected {str(error)!r}"
        return
    assert seen == expected, f"{environment}: rank, world size and local rank are {said or seen}; expected {expected}"
