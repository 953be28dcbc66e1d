"""Distillations on ranks that meet as under `torchrun`: through the store of a launcher, which this process serves."""

import io
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.resume.runs import Model, own
from falsifiers.support.ranks import run_ranks
from falsifiers.support.runs import difference, without_times
from reference_trainer import Callback, Lines, Settings

STRATEGIES = st.sampled_from(["ddp", "fsdp2"])


@dataclass(frozen=True, slots=True)
class Ended:
    """What a rank has at the end. error: type and message of what it raised; then there is no result."""

    error: str
    weights: dict[str, Tensor]
    result: dict[str, Any]
    lines: str


def launched(
    make: Callable[..., Any],
    chosen: Settings | Callable[[int], Settings],
    ranks: int,
    callbacks: Callable[[int], Sequence[Callback]] = lambda rank: (),
    limit_s: float = 60.0,
    announced: int | None = None,
) -> list[Ended]:
    """Run a distillation on forked ranks, and return what each one ends with.

    chosen: the settings, or of each rank. announced: the world size, if it is another number than that of `ranks`.
    """
    size = announced or ranks
    place, served = launcher()

    def work(rank: int) -> Ended:
        own = {"WORLD_SIZE": str(size), "RANK": str(rank), "LOCAL_RANK": str(rank)}
        mine = chosen(rank) if callable(chosen) else chosen
        return ended(make, mine, callbacks(rank), {**place, **own} if size > 1 else {})

    return run_ranks(ranks, work, limit_s=limit_s, served=served)


def launcher() -> tuple[dict[str, str], AbstractContextManager[None]]:
    """Return the variables by which ranks reach the store of a launcher, and the context that serves it."""
    listening = socket.create_server(("127.0.0.1", 0))
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(listening.getsockname()[1])}
    return {**address, "TORCHELASTIC_USE_AGENT_STORE": "True"}, _store(listening)


@contextmanager
def _store(listening: socket.socket) -> Iterator[None]:
    """Serve the store of a launcher. Its thread resolves addresses, under a lock that a fork would keep for ever."""
    host, port = listening.getsockname()
    options: Any = {"is_master": True, "wait_for_workers": False, "master_listen_fd": listening.detach()}
    server = dist.TCPStore(host, port, **options)
    yield
    del server


def ended(
    make: Callable[..., Any], chosen: Settings, callbacks: Sequence[Callback], environment: dict[str, str]
) -> Ended:
    """Run a distillation, and return what it ends with."""
    stream = io.StringIO()
    try:
        with make(chosen, callbacks=callbacks, lines=Lines(stream), environment=environment) as run, run:
            run.prepare()
            result = run.conclude(run.run())
    except (KeyboardInterrupt, Exception) as error:
        if not _expected(error):
            raise
        return Ended(f"{type(error).__name__}: {error}", {}, {}, stream.getvalue())
    weights = {name: each.detach().clone() for name, each in result.student.state_dict().items()}
    train = without_times(asdict(result.train))
    train["held_back"] = {name: (each.sum, each.count) for name, each in result.held_back.items()}
    return Ended("", weights, train, stream.getvalue())


def assert_no_error(where: str, several: Sequence[Ended]) -> None:
    """Assert that no rank raised."""
    failed = [each.error for each in several if each.error]
    assert not failed, f"{where}: {failed[0]}"


def _expected(error: BaseException) -> bool:
    from reference_trainer import TrainerError

    return isinstance(error, TrainerError | OSError | KeyboardInterrupt | Planted)


class Planted(Exception):
    """An error that a falsifier raises in one rank."""


def assert_same_end(where: str, seen: Ended, expected: Ended) -> None:
    """Assert equal bits of weights, and equal results."""
    assert seen.weights.keys() == expected.weights.keys(), f"{where} has the tensors {sorted(seen.weights)}"
    wrong = [name for name, each in expected.weights.items() if not torch.equal(seen.weights[name], each)]
    assert not wrong, f"{where}: {wrong} differ"
    assert seen.result == expected.result, f"{where}: in the result {difference(seen.result, expected.result)}"


class Output(NamedTuple):
    """Logits and hidden states. FSDP2 looks for tensors in tuples, lists and dictionaries only."""

    logits: Tensor
    hidden_states: list[Tensor]


class WithStates(Model):
    """A model whose hidden states can be matched."""

    def forward(self, tokens: Tensor, output_hidden_states: bool = False) -> Any:
        logits = super().forward(tokens)
        states = self.embed(tokens)
        return Output(logits, [states[..., :3], states]) if output_hidden_states else logits


def matching(subject: Any) -> Any:
    """Return the distillation of models of two widths, whose hidden states are matched by a projection."""

    class Matching(own(subject)):  # the subject is any module
        def make_student(self) -> WithStates:
            return WithStates(5, seed=1)

        def make_teacher(self) -> Any:
            return WithStates(3, seed=2).eval()

    return Matching
