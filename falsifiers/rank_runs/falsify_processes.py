"""Attacks on how processes find each other."""

import os
import re
import socket
import time
from contextlib import nullcontext
from functools import reduce
from operator import or_
from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.rank_runs.falsify_runs import launcher
from falsifiers.support.fake_cuda import getter
from falsifiers.support.oracles import assert_refused
from falsifiers.support.ranks import run_ranks
from reference_trainer import Action, SettingError
from reference_trainer.config.place import Place
from reference_trainer.errors import LostRankError, RankError

ANSWERS = st.sampled_from([Action.CONTINUE] * 4 + [Action.SKIP, Action.STOP])
STEPS = st.tuples(st.tuples(ANSWERS, ANSWERS, ANSWERS), st.sampled_from([None, None, 0, 1, 2]))
EPOCHS = st.lists(st.lists(STEPS, min_size=1, max_size=4), min_size=1, max_size=4)
"""Before each step of each epoch: the answers of three ranks, and the rank that is asked to stop, if one is."""


class Elsewhere(Tensor):
    """A tensor that is said to be on an accelerator; its memory is on the CPU."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answers = {getter("device"): torch.device("xpu"), getter("is_cpu"): False}
        if func is Tensor.to:  # a copy, which later changes of the original do not reach
            assert (kwargs or {}).get("non_blocking"), "a step waits for the device to copy the flags"
            return args[0].as_subclass(Tensor).clone()
        return answers[func] if func in answers else super().__torch_function__(func, types, args, kwargs)


class Ranks:
    """Ranks that call the same methods in turn; each reduction has the flags that all of them had before it."""

    def __init__(self, subject: Any, ranks: int, accelerator: bool) -> None:
        self.accelerator, self.summed = accelerator, torch.zeros(0, dtype=torch.int64)
        self.asked: int | None = None
        parallel = SimpleNamespace(world_size=ranks, sum_counts=lambda flags: self.summed)
        self.members = [subject.Agreement(parallel, lambda rank=rank: self.asked == rank) for rank in range(ranks)]

    def leave_out(self, answers: tuple[Action, ...], asked: int | None) -> list[bool]:
        self.asked = asked
        for member, answer in zip(self.members, answers, strict=False):
            carried_out = member.record(answer)
            assert carried_out is Action.CONTINUE, f"a rank carries out {carried_out} before it has asked the others"
        self._sum()
        flags = self.summed.as_subclass(Elsewhere) if self.accelerator else self.summed
        left = [member.receive(flags) for member in self.members]
        self.summed.fill_(9)  # memory that a later reduction uses again
        return left

    def leaving(self) -> list[bool]:
        return [member.is_stop_requested() for member in self.members]

    def agreed(self, **where: bool) -> list[Action]:
        self._sum()
        return [member.reduce(Action.CONTINUE, **where) for member in self.members]

    def _sum(self) -> None:
        self.summed = torch.tensor([member.flags() for member in self.members], dtype=torch.int64).sum(0)


@given(epochs=EPOCHS, ranks=st.sampled_from([2, 3]), accelerator=st.booleans())
def falsify_answers_are_carried_out_in_their_epoch(subject: Any, epochs: Any, ranks: int, accelerator: bool) -> None:
    """All ranks leave out the step after an answer, on an accelerator the next one; a SKIP ends with its epoch.

    A request to stop is known as early; the same answer is agreed on again within an epoch.
    """
    run = Ranks(subject, ranks, accelerator)
    assert not any(run.leaving()), "before a step, ranks are asked to stop"
    assert {member.actions for member in run.members} == {Action.CONTINUE}, "before a step, ranks have an answer"
    for epoch, steps in enumerate(epochs, start=1):
        decisions = [(Action.CONTINUE, None)] * accelerator  # before each step: an accelerator's is read a step later
        strongest = Action.CONTINUE
        for step, (answers, asked) in enumerate(steps, start=1):
            strongest = max(strongest, *answers[:ranks])
            decisions.append((strongest, asked if asked is not None and asked < ranks else None))
            left = run.leave_out(answers, asked)
            due, requested = decisions[step - 1]
            place = "on an accelerator" if accelerator else "on the CPU"
            label = f"answers {epochs} of {ranks} ranks {place}: step {step} of epoch {epoch}"
            assert left == [due is not Action.CONTINUE] * ranks, f"{label} is left out: {left}; expected for {due!r}"
            leaving = run.leaving()
            assert all(leaves is (requested is not None) for leaves in leaving), f"{label}: leaving {leaving}"
            if due is not Action.CONTINUE:
                break
        within, ended = run.agreed(), run.agreed(between_epochs=True)
        assert within == ended == [strongest] * ranks, f"epoch {epoch} of {epochs}: {within}, then {ended}"
        if strongest is Action.STOP:
            return


ASKS = [Action.LOG, Action.EVALUATE, Action.SAVE]
ASKING = st.tuples(*[st.sampled_from([Action.CONTINUE, *ASKS, Action.LOG | Action.SAVE])] * 3)


@given(
    rounds=st.lists(st.tuples(ASKING, st.sampled_from(["step", "step", "within", "between"])), min_size=1, max_size=6),
    ranks=st.sampled_from([2, 3]),
    accelerator=st.booleans(),
)
def falsify_ranks_carry_out_what_one_asks_for(subject: Any, rounds: Any, ranks: int, accelerator: bool) -> None:
    """Ranks learn of events together and once: in the next step, on an accelerator one later, or when they agree."""
    run, waiting = Ranks(subject, ranks, accelerator), Action.CONTINUE
    none = ((Action.CONTINUE,) * 3, "step")
    for number, (answers, where) in enumerate([*rounds, none, none], start=1):
        sent = reduce(or_, answers[:ranks])
        if where == "step":
            left = run.leave_out(answers, None)
            assert not any(left), f"{rounds}: round {number} is left out"
            seen = {member.actions for member in run.members}
            expected, waiting = (waiting, sent) if accelerator else (sent, waiting)
        else:
            for member, answer in zip(run.members, answers, strict=False):
                member.record(answer)
            seen = set(run.agreed(between_epochs=where == "between"))
            expected, waiting = sent | waiting, Action.CONTINUE
        assert seen == {expected}, f"{rounds} of {ranks} ranks: round {number} brings {seen}; expected {expected!r}"


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


@given(machines=st.lists(st.integers(1, 3), min_size=2, max_size=3).filter(lambda sizes: sum(sizes) <= 5))
@example(machines=[2, 2])
@example(machines=[1, 2])
def falsify_ranks_of_a_machine_share_what_its_first_rank_does(subject: Any, machines: list[int]) -> None:
    """machines: the number of ranks of each; their ranks follow each other, as launchers number them."""
    places = [(machine, local) for machine, size in enumerate(machines) for local in range(size)]
    environment, served = launcher()

    def work(rank: int) -> tuple[Any, list[int]]:
        asked: list[int] = []

        def once() -> str:
            asked.append(rank)
            return f"machine {places[rank][0]}"

        place = Place(rank=rank, world_size=len(places), local_rank=places[rank][1])
        with subject.connect_ranks(place, environment, timeout_s=20) as ranks:
            return ranks.on_each_machine(once), asked

    for rank, (seen, asked) in enumerate(run_ranks(len(places), work, limit_s=60, served=served)):
        machine, local = places[rank]
        expected = f"machine {machine}", [rank] if local == 0 else []
        assert (seen, asked) == expected, f"rank {rank} of {machines}: {(seen, asked)}; expected {expected}"


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
    assert all("planted" in text for text in ended[:2]), f"where 2 ranks fail, they end with {ended[:2]}"
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
    reason, seen = "", None
    try:
        place = subject.read_place({"HOME": "/", **environment})
        seen = (place.rank, place.world_size, place.local_rank)
    except SettingError as error:
        reason = str(error)
    try:
        expected = _expected(*texts)
    except ValueError as error:
        assert str(error) in reason, f"{environment}: {reason or seen}; expected {str(error)!r}"
        return
    assert seen == expected, f"{environment}: rank, world size and local rank are {reason or seen}; expected {expected}"
