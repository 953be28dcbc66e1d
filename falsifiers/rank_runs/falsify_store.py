"""Attacks on agreements through a store. The subject is `reference_trainer.pipeline.ranks`; its ranks are threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from hypothesis import example, given
from hypothesis import strategies as st

from reference_trainer import StopRequestedError
from reference_trainer.config.place import Place
from reference_trainer.errors import LostRankError, RankError

PATIENCE_S = 20.0
VALUES = st.none() | st.integers(0, 3) | st.text(max_size=2) | st.lists(st.booleans(), max_size=2)


class Planted(Exception):
    """An error that a falsifier raises in one rank."""


def _from(path: str, error: str) -> Callable[[], None]:
    """Return a function that raises an error in a file of that path."""
    return lambda: exec(compile(f"raise {error}", path, "exec"))


def _planted(error: BaseException) -> Callable[[], None]:
    def raises() -> None:
        raise error

    return raises


ERRORS: dict[str, tuple[Callable[[], None], str]] = {
    "an error": (_planted(Planted("in  two\nlines")), "error"),
    "an interrupt": (_planted(KeyboardInterrupt()), "interrupt"),
    "a backend's error": (_planted(dist.DistBackendError("reset")), "lost"),
    "a collective's error": (_from("/x/torch/distributed/c10d.py", "RuntimeError('reset')"), "lost"),
    "a request to stop": (_planted(StopRequestedError("stop")), "all"),
    "an error of all": (_planted(RankError("rank 7: why")), "all"),
}
"""What a rank raises, and its kind: lost is the end of a connection, all is what every rank raises by itself."""


def _said(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


@given(kinds=st.lists(st.sampled_from(list(ERRORS)), min_size=2, max_size=3))
@example(kinds=["an interrupt", "an interrupt"])
@example(kinds=["a backend's error", "an interrupt"])
@example(kinds=["a backend's error", "an error", "an error"])
@example(kinds=["an error", "an interrupt", "a collective's error"])
@example(kinds=["a request to stop", "an error", "an error"])
def falsify_first_failure_is_that_of_all(subject: Any, kinds: list[str]) -> None:
    store, first = dist.HashStore(), None
    for rank, name in enumerate(kinds):
        act, kind = ERRORS[name]
        given, seen = _caught(act), None
        agreeing = subject.Ranks(Place(rank=rank, world_size=len(kinds)), store, 5)
        try:
            with agreeing.failing_together():
                act()
        except BaseException as error:
            seen = error
        own: tuple[type, str] = (type(given), str(given))
        if kind == "lost":
            own = (LostRankError, f"lost another rank: {_said(given)}")
        alike = first is not None and ("interrupt" == kind == first[1] or (first[1] == "lost" and kind != "interrupt"))
        if kind != "all":
            expected = own if first is None or alike else (RankError, first[0])
            first = first or (f"rank {rank}: {_said(given)}", kind)
        else:
            expected = own
        assert (type(seen), str(seen)) == expected, f"{kinds}: rank {rank} raises {seen!r}; expected {expected}"


def _caught(act: Callable[[], None]) -> BaseException:
    try:
        act()
    except BaseException as error:
        return error
    raise AssertionError("nothing is raised")
