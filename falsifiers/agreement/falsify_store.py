"""Attacks on agreements through a store. The subject is `reference_trainer.pipeline.ranks`; its ranks are threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import MappingProxyType
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


def at_once(subject: Any, ranks: int, work: Callable[[Any], Any], timeout_s: int = 5) -> tuple[list[Any], Any]:
    """Return what work(rank) returns or raises on each rank, run at once in threads that share a store, and that."""
    store, ended = dist.HashStore(), dict[int, Any]()

    def run(rank: int) -> None:
        try:
            ended[rank] = work(subject.Ranks(Place(rank=rank, world_size=ranks), store, timeout_s))
        except Exception as error:  # compared by the caller
            ended[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(ranks)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE_S)
    missing = [rank for rank in range(ranks) if rank not in ended]
    assert not missing, f"the ranks {missing} of {ranks} wait for ever"
    return [ended[rank] for rank in range(ranks)], store


@given(ranks=st.integers(1, 3), rounds=st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1, max_size=4))
def falsify_every_rank_gets_every_value(subject: Any, ranks: int, rounds: list[tuple[Any, ...]]) -> None:
    """Values come in the order of ranks, those of rank 0 are decisions that it alone makes; old ones are deleted."""
    called: list[int] = []

    def work(agreeing: Any) -> list[Any]:
        seen = []
        for values in rounds:
            seen.append(agreeing.exchanged(values[agreeing.rank]))
            seen.append(agreeing.decided(lambda values=values: called.append(agreeing.rank) or values[0]))
            seen.append(agreeing.together(lambda values=values: values[agreeing.rank]))
        return seen

    ended, store = at_once(subject, ranks, work)
    for rank, each in enumerate(ended):
        expected = [one for values in rounds for one in (list(values[:ranks]), values[0], values[rank])]
        assert each == expected, f"rank {rank} of {ranks} gets {each!r}; expected {expected}"
    assert called == [0] * len(rounds), f"decisions are made on the ranks {called}"
    kept = store.num_keys()
    assert kept <= ranks, f"after {len(rounds)} rounds of {ranks} ranks, the store has {kept} keys"


@given(ranks=st.integers(1, 3), failing=st.sets(st.integers(0, 2)), decided=st.booleans())
@example(ranks=3, failing={1, 2}, decided=False)
@example(ranks=3, failing={0}, decided=True)
@example(ranks=2, failing={0, 1}, decided=False)
def falsify_an_error_of_one_rank_is_one_of_all(subject: Any, ranks: int, failing: set[int], decided: bool) -> None:
    failing = {rank for rank in failing if rank < ranks}
    of_note = failing & {0} if decided else failing  # rank 0 alone decides

    def work(agreeing: Any) -> str:
        def mine() -> str:
            if agreeing.rank in failing:
                raise Planted(f"in  rank\n{agreeing.rank}")
            return f"of {agreeing.rank}"

        return str(agreeing.decided(mine) if decided else agreeing.together(mine))

    for rank, each in enumerate(at_once(subject, ranks, work)[0]):
        where = f"{sorted(failing)} of {ranks} ranks fail{' in a decision' if decided else ''}: rank {rank}"
        if rank in of_note:
            assert isinstance(each, Planted), f"{where} ends with {each!r}"
        elif of_note:
            expected = f"rank {min(of_note)}: in rank {min(of_note)}"
            assert isinstance(each, RankError) and str(each) == expected, f"{where} ends with {each!r}; {expected}"
        else:
            assert each == f"of {0 if decided else rank}", f"{where} gets {each!r}"


@given(ranks=st.integers(2, 3), values=st.lists(st.fixed_dictionaries({"a": VALUES, "b": VALUES}), min_size=3))
def falsify_differences_are_named_on_all_ranks(subject: Any, ranks: int, values: list[dict[str, Any]]) -> None:
    given = values[:ranks]
    other = next((rank for rank in range(ranks) if given[rank] != given[0]), None)
    for rank, each in enumerate(at_once(subject, ranks, lambda r: r.check_equal(MappingProxyType(given[r.rank])))[0]):
        where = f"of the values {given}, rank {rank}"
        if other is None:
            assert each is None, f"{where} raises {each!r}"
            continue
        assert isinstance(each, RankError), f"{where} accepts a difference: {each!r}"
        assert f"rank {other} differs from rank 0: " in str(each), f"{where} raises {each!r}"
        changed = [name for name in ("a", "b") if given[0][name] != given[other][name]]
        assert [name for name in ("a", "b") if f"{name} was" in str(each)] == changed, f"{where} raises {each!r}"


def _from(path: str, error: str) -> Callable[[], None]:
    """Return a function that raises an error in a file of that path."""
    return lambda: exec(compile(f"raise {error}", path, "exec"))


def _planted(error: BaseException) -> Callable[[], None]:
    def raises() -> None:
        raise error

    return raises


ERRORS: dict[str, tuple[Callable[[], None], str]] = {
    "an error": (_planted(Planted("in  two\nlines")), "error"),
    "an error without words": (_planted(Planted()), "error"),
    "an interrupt": (_planted(KeyboardInterrupt()), "interrupt"),
    "a backend's error": (_planted(dist.DistBackendError("reset")), "lost"),
    "a collective's error": (_from("/x/torch/distributed/c10d.py", "RuntimeError('reset')"), "lost"),
    "a collective's error in a backward": (_from("/x/torch/autograd/graph.py", "RuntimeError('reset')"), "lost"),
    "an error of the same kind elsewhere": (_from("/x/torch/nn/linear.py", "RuntimeError('shape')"), "error"),
    "another kind in the same place": (_from("/x/torch/distributed/c10d.py", "NotImplementedError('no')"), "error"),
    "another kind in a backward": (_from("/x/torch/autograd/graph.py", "ValueError('no')"), "error"),
    "a request to stop": (_planted(StopRequestedError("stop")), "all"),
    "an error of all": (_planted(RankError("rank 7: why")), "all"),
}
"""What a rank raises, and its kind: lost is the end of a connection, all is what every rank raises by itself."""


def _said(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


@given(kinds=st.lists(st.sampled_from(list(ERRORS)), min_size=2, max_size=3))
@example(kinds=["an interrupt", "an interrupt"])
@example(kinds=["an interrupt", "a backend's error"])
@example(kinds=["a backend's error", "an interrupt"])
@example(kinds=["a backend's error", "an error", "an error"])
@example(kinds=["an error", "an interrupt", "a collective's error"])
@example(kinds=["a request to stop", "an error", "an error without words"])
def falsify_first_failure_is_that_of_all(subject: Any, kinds: list[str]) -> None:
    """Ranks that fail one after the other raise RankError with the first message.

    Interrupts of several, errors after a lost connection, and what all ranks raise stay what they are; a lost
    connection without a cause is a LostRankError.
    """
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


@given(failing=st.integers(0, 2))
def falsify_a_failure_ends_the_wait_of_others(subject: Any, failing: int) -> None:
    def work(agreeing: Any) -> Any:
        with agreeing.failing_together():
            if agreeing.rank == failing:
                raise Planted("why")
            return agreeing.exchanged(None)

    for rank, each in enumerate(at_once(subject, 3, work)[0]):
        expected = "why" if rank == failing else f"rank {failing}: why"
        assert str(each) == expected, f"rank {failing} of 3 fails; rank {rank} ends with {each!r}"


class Counted:
    """A store that counts how often it is asked whether keys are there."""

    def __init__(self) -> None:
        self.store, self.looks = dist.HashStore(), 0

    def check(self, keys: list[str]) -> bool:
        self.looks += 1
        return bool(self.store.check(keys))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


def falsify_a_rank_that_waits_looks_rarely(subject: Any) -> None:
    store, values = Counted(), list[Any]()
    waiting, late = (subject.Ranks(Place(rank=rank, world_size=2), store, 5) for rank in range(2))
    thread = threading.Thread(target=lambda: values.append(waiting.exchanged("here")), daemon=True)
    began = time.monotonic()
    thread.start()
    time.sleep(0.3)
    late.exchanged("late")
    thread.join(PATIENCE_S)
    waited = time.monotonic() - began
    assert values == [["here", "late"]], f"the rank that waits gets {values}"
    assert store.looks < 10 + 1000 * waited, f"within {waited:.2f} s, a rank that waits looks {store.looks} times"


@given(present=st.sets(st.integers(0, 2), min_size=1))
@example(present={0, 1, 2})
@example(present={1})
def falsify_ranks_that_do_not_connect_are_named(subject: Any, present: set[int]) -> None:
    """The others raise LostRankError with the numbers of the missing, and so do those that connect too late."""

    def work(agreeing: Any) -> Any:
        return agreeing.meet() if agreeing.rank in present else "absent"

    missing = [rank for rank in range(3) if rank not in present]
    ended, store = at_once(subject, 3, work, timeout_s=1 if missing else 5)
    words = f"rank {', '.join(map(str, missing))} did not connect within 1 s"
    for rank in sorted(present):
        seen = ended[rank]
        if not missing:
            assert seen is None, f"all ranks are there; rank {rank} raises {seen!r}"
            continue
        assert isinstance(seen, RankError), f"{sorted(present)} of 3 ranks are there; rank {rank} ends with {seen!r}"
        assert words in str(seen), f"{sorted(present)} of 3 ranks are there; rank {rank} ends with {seen!r}"
    if len(missing) > 1:  # with one alone, all are there in the end
        seen = _caught(subject.Ranks(Place(rank=missing[0], world_size=3), store, 5).meet)
        expected = f"rank {min(present)}: {words}"
        assert str(seen) == expected, f"{sorted(present)} of 3 ranks are there; one that comes late ends with {seen!r}"
    alone = at_once(subject, 1, lambda agreeing: agreeing.meet())[0]
    assert alone == [None], f"one process meets {alone}"
