"""Attacks on how processes find each other, their places and devices. Subjects: `pipeline.ranks`, `config.place`."""

import os
import re
import socket
import time
from contextlib import nullcontext
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.rank_runs.launched import launcher
from falsifiers.support.oracles import assert_refused
from falsifiers.support.ranks import run_ranks
from reference_trainer import SettingError
from reference_trainer.config.place import Place
from reference_trainer.errors import LostRankError, RankError

LEAVING_S = 5.0
"""How long the process that serves the store waits for others that do not leave."""


@given(ranks=st.integers(1, 3), runs=st.integers(1, 2), launched=st.booleans())
@example(ranks=3, runs=2, launched=False)
@example(ranks=2, runs=2, launched=True)
def falsify_processes_find_each_other(subject: Any, ranks: int, runs: int, launched: bool) -> None:
    """Rank 0, where it serves the store, leaves last, and soon after the others."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(unused.getsockname()[1])}
    environment, served = launcher() if launched else (address, nullcontext())

    def work(rank: int) -> tuple[list[Any], float]:
        seen = []
        for run in range(runs):
            with subject.connect_ranks(Place(rank=rank, world_size=ranks), environment, timeout_s=20) as agreeing:
                agreeing.start(torch.device("cpu"))
                seen.append(agreeing.all_gather_json([run, rank]))
                time.sleep(0.2 * rank)
        return seen, time.monotonic()

    expected = [[[run, rank] for rank in range(ranks)] for run in range(runs)]
    ended = run_ranks(ranks, work, limit_s=60, served=served)
    for rank, (seen, _) in enumerate(ended):
        assert seen == expected, f"rank {rank} of {ranks} gets {seen}; expected {expected}"
    first, *others = (left for _, left in ended)
    if others and not launched:
        after = first - max(others)
        assert -0.1 < after < LEAVING_S, f"rank 0, which serves {ranks} ranks, leaves {after:.2f} s after the last one"


def falsify_a_restarted_run_starts_afresh(subject: Any) -> None:
    environment, served = launcher()
    has_failed, fails = os.pipe()

    def work(number: int) -> str:
        restarts, rank = divmod(number, 2)
        counted = {**environment, "TORCHELASTIC_RESTART_COUNT": str(restarts)}
        if restarts:
            os.read(has_failed, 1)
        try:
            with subject.connect_ranks(Place(rank=rank, world_size=2), counted, timeout_s=20) as agreeing:
                if restarts == 0:
                    raise ValueError("planted")
                if rank:  # rank 0 waits for it meanwhile, so that it has time to read what the first attempt left
                    time.sleep(0.5)
                return str(agreeing.all_gather_json(rank))
        except (ValueError, RankError) as error:
            return str(error)
        finally:
            if not restarts:
                os.write(fails, b".")

    ended = run_ranks(4, work, limit_s=60, served=served)
    os.close(has_failed)
    os.close(fails)
    assert all("planted" in each for each in ended[:2]), f"where 2 ranks fail, they end with {ended[:2]}"
    assert ended[2:] == ["[0, 1]"] * 2, f"after a restart, 2 ranks end with {ended[2:]}; expected the values of both"


@given(port=st.sampled_from(["1", "65536", None]))
@example(port="1")
def falsify_address_without_a_store_is_named(subject: Any, port: str | None) -> None:
    environment = {"MASTER_ADDR": "127.0.0.1", **({} if port is None else {"MASTER_PORT": port})}
    joined, lost = subject.connect_ranks(Place(rank=1, world_size=2), environment, timeout_s=1), port == "1"
    kind, words = (LostRankError, "rank 1 cannot reach '127.0.0.1', port 1") if lost else (SettingError, "MASTER_PORT")
    assert_refused(f"{environment}", joined.__enter__, words, kind=kind)


def falsify_each_rank_has_a_device_of_its_own(subject: Any) -> None:
    available = torch.cuda.is_available()
    for size, local in ((1, 0), (2, 0), (2, 1), (3, 2)):
        place = Place(rank=local, world_size=size, local_rank=local)
        cases = {"cpu": "cpu", "cuda": f"cuda:{local}", "auto": f"cuda:{local}" if available else "cpu", "cuda:1": ""}
        for name, several in cases.items():
            expected, seen = several if size > 1 else name, ""
            try:
                seen = subject.local_device(name, place)
            except SettingError as error:
                assert "cuda:1" in str(error), f"{name!r} on {place} is refused: {error}"
            assert seen == expected, f"{name!r} on {place} is {seen or 'refused'}; expected {expected or 'a refusal'}"


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
        place = subject.read_place({"HOME": "/", **environment})
        seen = (place.rank, place.world_size, place.local_rank)
    except SettingError as error:
        said = str(error)
    try:
        expected = _expected(*texts)
    except ValueError as error:
        assert str(error) in said, f"{environment}: {said or seen}; expected {str(error)!r}"
        return
    assert seen == expected, f"{environment}: rank, world size and local rank are {said or seen}; expected {expected}"
