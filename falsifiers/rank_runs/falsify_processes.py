"""Attacks on the connection of processes, their ranks and devices, and the actions that they agree on."""

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
from falsifiers.support.assertions import assert_equal
from falsifiers.support.fake_cuda import getter
from falsifiers.support.oracles import assert_refused
from falsifiers.support.ranks import run_ranks
from reference_trainer import Action, SettingError
from reference_trainer.config.place import Place
from reference_trainer.errors import LostRankError, RankError

ACTIONS = st.sampled_from([Action.CONTINUE] * 4 + [Action.SKIP, Action.STOP])
STEPS = st.tuples(st.tuples(ACTIONS, ACTIONS, ACTIONS), st.sampled_from([None, None, 0, 1, 2]))
EPOCHS = st.lists(st.lists(STEPS, min_size=1, max_size=4), min_size=1, max_size=4)
"""By epoch and step: the actions that callbacks of three ranks return, and the rank with a request to stop, or None."""


class AcceleratorTensor(Tensor):
    """A CPU tensor that reports an accelerator as its device."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        attributes = {getter("device"): torch.device("xpu"), getter("is_cpu"): False}
        if func is Tensor.to:  # an independent copy, as on an accelerator
            assert (kwargs or {}).get("non_blocking"), "a step waits for the device to copy the flags"
            return args[0].as_subclass(Tensor).clone()
        return attributes[func] if func in attributes else super().__torch_function__(func, types, args, kwargs)


class Ranks:
    """The `Agreement` of every rank, called in turn in one process; a reduction sums the flags of all ranks."""

    def __init__(self, subject: Any, ranks: int, accelerator: bool) -> None:
        self.accelerator, self.summed = accelerator, torch.zeros(0, dtype=torch.int64)
        self.stop_rank: int | None = None
        parallel = SimpleNamespace(world_size=ranks, sum_counts=lambda flags: self.summed)
        self.members = [subject.Agreement(parallel, lambda rank=rank: self.stop_rank == rank) for rank in range(ranks)]

    def skips_of_step(self, actions: tuple[Action, ...], stop_rank: int | None) -> list[bool]:
        """Record the actions, exchange the flags, and return by rank whether it skips the step."""
        self.stop_rank = stop_rank
        for member, action in zip(self.members, actions, strict=False):
            result = member.record(action)
            assert result is Action.CONTINUE, f"record({action!r}) of one rank returns {result!r}; expected CONTINUE"
        self._sum()
        flags = self.summed.as_subclass(AcceleratorTensor) if self.accelerator else self.summed
        skips = [member.receive(flags) for member in self.members]
        self.summed.fill_(9)  # a later reduction may reuse the memory
        return skips

    def stop_requests(self) -> list[bool]:
        return [member.is_stop_requested() for member in self.members]

    def reduced(self, **options: bool) -> list[Action]:
        self._sum()
        return [member.reduce(Action.CONTINUE, **options) for member in self.members]

    def _sum(self) -> None:
        self.summed = torch.tensor([member.flags() for member in self.members], dtype=torch.int64).sum(0)


@given(epochs=EPOCHS, ranks=st.sampled_from([2, 3]), accelerator=st.booleans())
def falsify_answers_are_carried_out_in_their_epoch(subject: Any, epochs: Any, ranks: int, accelerator: bool) -> None:
    """All ranks skip the step after an action, on an accelerator one step later; a SKIP ends with its epoch.

    A request to stop is known at the same step. At the end of an epoch, all ranks agree on its strongest action.
    """
    run = Ranks(subject, ranks, accelerator)
    assert_equal("requests to stop before the first step", run.stop_requests(), [False] * ranks)
    assert_equal("actions before the first step", {member.actions for member in run.members}, {Action.CONTINUE})
    for epoch, steps in enumerate(epochs, start=1):
        decisions = [(Action.CONTINUE, None)] * accelerator  # by step; an accelerator reads flags a step later
        strongest = Action.CONTINUE
        for step, (actions, stop_rank) in enumerate(steps, start=1):
            strongest = max(strongest, *actions[:ranks])
            decisions.append((strongest, stop_rank if stop_rank is not None and stop_rank < ranks else None))
            skips = run.skips_of_step(actions, stop_rank)
            decision, requested = decisions[step - 1]
            place = "on an accelerator" if accelerator else "on the CPU"
            label = f"{ranks} ranks {place}, actions {epochs}: step {step} of epoch {epoch}"
            assert_equal(f"{label}: skipped after {decision!r}", skips, [decision is not Action.CONTINUE] * ranks)
            assert_equal(f"{label}: requests to stop", run.stop_requests(), [requested is not None] * ranks)
            if decision is not Action.CONTINUE:
                break
        reduced = {"within the epoch": run.reduced(), "at its end": run.reduced(between_epochs=True)}
        for when, actions in reduced.items():
            assert_equal(f"{ranks} ranks, actions {epochs}: reduced {when} {epoch}", actions, [strongest] * ranks)
        if strongest is Action.STOP:
            return


REQUEST = st.sampled_from([Action.CONTINUE, Action.LOG, Action.EVALUATE, Action.SAVE, Action.LOG | Action.SAVE])
REQUESTS = st.tuples(REQUEST, REQUEST, REQUEST)
WHEN = ["step", "step", "within", "between"]
"""Where the actions are exchanged: with a step, or by a reduction within or between epochs."""


@given(
    rounds=st.lists(st.tuples(REQUESTS, st.sampled_from(WHEN)), min_size=1, max_size=6),
    ranks=st.sampled_from([2, 3]),
    accelerator=st.booleans(),
)
def falsify_ranks_carry_out_what_one_asks_for(subject: Any, rounds: Any, ranks: int, accelerator: bool) -> None:
    """All ranks get a request once: in the next step, on an accelerator one step later, or in the next reduction."""
    run, pending = Ranks(subject, ranks, accelerator), Action.CONTINUE
    idle = ((Action.CONTINUE,) * 3, "step")
    for number, (actions, where) in enumerate([*rounds, idle, idle], start=1):
        requested = reduce(or_, actions[:ranks])
        label = f"{rounds} of {ranks} ranks{' on an accelerator' * accelerator}: round {number}"
        if where == "step":
            assert_equal(f"{label}, skipped", run.skips_of_step(actions, None), [False] * ranks)
            seen = {member.actions for member in run.members}
            expected, pending = (pending, requested) if accelerator else (requested, pending)
        else:
            for member, action in zip(run.members, actions, strict=False):
                member.record(action)
            seen = set(run.reduced(between_epochs=where == "between"))
            expected, pending = requested | pending, Action.CONTINUE
        assert_equal(f"{label}, actions of the ranks", seen, {expected})


LEAVE_TIMEOUT_S = 5.0
"""Longest time in seconds that the rank which serves the store waits for the exit of the other ranks."""


@given(ranks=st.integers(1, 3), runs=st.integers(1, 2), launched=st.booleans())
@example(ranks=3, runs=2, launched=False)
@example(ranks=2, runs=2, launched=True)
def falsify_processes_find_each_other(subject: Any, ranks: int, runs: int, launched: bool) -> None:
    """If rank 0 serves the store, it leaves after all other ranks, and without waiting for the timeout."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(unused.getsockname()[1])}
    environment, served = launcher() if launched else (address, nullcontext())

    def work(rank: int) -> tuple[list[Any], float]:
        seen = []
        for run in range(runs):
            with subject.connect_ranks(Place(rank=rank, world_size=ranks), environment, timeout_s=20) as coordination:
                coordination.start(torch.device("cpu"))
                seen.append(coordination.all_gather_json([run, rank]))
                time.sleep(0.2 * rank)
        return seen, time.monotonic()

    expected = [[[run, rank] for rank in range(ranks)] for run in range(runs)]
    results = run_ranks(ranks, work, limit_s=60, served=served)
    for rank, (seen, _) in enumerate(results):
        assert_equal(f"values that rank {rank} of {ranks} gathers in {runs} runs", seen, expected)
    first, *others = (left_at for _, left_at in results)
    if others and not launched:
        delay = first - max(others)
        assert -0.1 < delay < LEAVE_TIMEOUT_S, f"rank 0 of {ranks}, with the store, left {delay:.2f} s after the last"


@given(machines=st.lists(st.integers(1, 3), min_size=2, max_size=3).filter(lambda sizes: sum(sizes) <= 5))
@example(machines=[2, 2])
@example(machines=[1, 2])
def falsify_ranks_of_a_machine_share_what_its_first_rank_does(subject: Any, machines: list[int]) -> None:
    """machines: number of ranks by machine; ranks are numbered machine by machine, as launchers do."""
    places = [(machine, local) for machine, size in enumerate(machines) for local in range(size)]
    environment, served = launcher()

    def work(rank: int) -> tuple[Any, list[int]]:
        calls: list[int] = []

        def work_of_machine() -> str:
            calls.append(rank)
            return f"machine {places[rank][0]}"

        place = Place(rank=rank, world_size=len(places), local_rank=places[rank][1])
        with subject.connect_ranks(place, environment, timeout_s=20) as ranks:
            return ranks.on_each_machine(work_of_machine), calls

    for rank, result_and_calls in enumerate(run_ranks(len(places), work, limit_s=60, served=served)):
        machine, local = places[rank]
        expected = f"machine {machine}", [rank] if local == 0 else []
        assert_equal(f"rank {rank} of machines with {machines} ranks: result, calls", result_and_calls, expected)


def falsify_a_restarted_run_starts_afresh(subject: Any) -> None:
    environment, served = launcher()
    failures_read, failures_write = os.pipe()

    def work(process: int) -> str:
        restarts, rank = divmod(process, 2)
        variables = {**environment, "TORCHELASTIC_RESTART_COUNT": str(restarts)}
        if restarts:
            os.read(failures_read, 1)  # wait until a rank of the first attempt has failed
        try:
            with subject.connect_ranks(Place(rank=rank, world_size=2), variables, timeout_s=20) as coordination:
                if restarts == 0:
                    raise ValueError("planted")
                if rank:  # rank 0 waits for rank 1, and has time to read messages of the first attempt
                    time.sleep(0.5)
                return str(coordination.all_gather_json(rank))
        except (ValueError, RankError) as error:
            return str(error)
        finally:
            if not restarts:
                os.write(failures_write, b".")

    results = run_ranks(4, work, limit_s=60, served=served)
    os.close(failures_read)
    os.close(failures_write)
    assert all("planted" in text for text in results[:2]), f"ranks of the first attempt end with {results[:2]}"
    assert_equal("values that 2 ranks gather after a restart", results[2:], ["[0, 1]"] * 2)


@given(port=st.sampled_from(["1", "65536", None]))
@example(port="1")
def falsify_address_without_a_store_is_named(subject: Any, port: str | None) -> None:
    environment = {"MASTER_ADDR": "127.0.0.1", **({} if port is None else {"MASTER_PORT": port})}
    connection = subject.connect_ranks(Place(rank=1, world_size=2), environment, timeout_s=1)
    lost = LostRankError, "rank 1 cannot reach '127.0.0.1', port 1"
    kind, words = lost if port == "1" else (SettingError, "MASTER_PORT")
    assert_refused(f"{environment}", connection.__enter__, words, kind=kind)


def falsify_each_rank_has_a_device_of_its_own(subject: Any) -> None:
    available = torch.cuda.is_available()
    for size, local in ((1, 0), (2, 0), (2, 1), (3, 2)):
        place = Place(rank=local, world_size=size, local_rank=local)
        cases = {"cpu": "cpu", "cuda": f"cuda:{local}", "auto": f"cuda:{local}" if available else "cpu", "cuda:1": ""}
        for name, device in cases.items():
            expected, seen = device if size > 1 else name, ""
            try:
                seen = subject.local_device(name, place)
            except SettingError as error:
                assert "cuda:1" in str(error), f"{name!r} on {place} is refused without the name cuda:1: {error}"
            assert seen == expected, f"{name!r} on {place} is {seen or 'refused'}; expected {expected or 'a refusal'}"


NUMBERS = st.integers(-1, 4).map(str) | st.sampled_from(["", "1.0", " 1", "one", "\u0661", str(10**6), str(10**6 + 1)])
NAMES = ("WORLD_SIZE", "RANK", "LOCAL_RANK")
ENVIRONMENTS = st.tuples(*(st.none() | NUMBERS for _ in NAMES))
"""The value of each variable; None if it is not set."""


def _number(name: str, text: str | None, least: int, most: int) -> int:
    """Return the value of the variable, or raise `ValueError` with the words that the refusal must have."""
    if re.fullmatch("[0-9]+", text or "") and least <= int(text or "") <= most:
        return int(text or "")
    raise ValueError(
        f"invalid value {text or ''!r} for the variable {name}: expected an integer from {least} to {most}"
    )


def _expected(size: str | None, rank: str | None, local: str | None) -> tuple[int, int, int]:
    """Return rank, world size and local rank of these variables, or raise `ValueError`."""
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
