"""Distillations on ranks that meet as under `torchrun`: through the store of a launcher, which this process serves."""

from __future__ import annotations

import io
import json
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.support.histories import without_times
from falsifiers.support.ranks import run_ranks
from reference_trainer import Callback, Lines, Settings
from reference_trainer.distillation.protocols import Batch

V, STEPS = 11, 6
"""Tokens, and the steps of a run: two epochs of seven batches, three a step."""
STRATEGIES = st.sampled_from(["ddp", "fsdp2"])
TIMEOUT_S = 30
"""How long a rank waits for others; a right subject never needs it, even on busy cores."""


class Model(nn.Module):
    """A model with dropout, layers that are sharded one by one, and a buffer that counts its forwards."""

    def __init__(self, width: int, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed, self.drop = nn.Embedding(V, width), nn.Dropout(0.3)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.head = nn.Linear(width, V)
        self.register_buffer("forwards", torch.tensor(0))

    def forward(self, tokens: Tensor) -> Tensor:
        self.forwards += self.training
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + self.drop(torch.tanh(layer(x)))
        logits: Tensor = self.head(x)
        return logits


class Noisy:
    """Batches with a token of their own and noise from the default generator."""

    batches = 7

    def batch(self, epoch: int, position: int) -> Batch:
        tokens = torch.randint(V, (2, 5))
        tokens[:, 0] = position
        return Batch(tokens=tokens, labels=tokens)


@dataclass(frozen=True, slots=True)
class Ended:
    """What a rank has at the end. error: type and message of what it raised; then there is no result."""

    error: str
    weights: dict[str, Tensor]
    result: dict[str, Any]
    lines: str


@contextmanager
def scratch() -> Iterator[Path]:
    """A new directory."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name).resolve()


def settings(directory: Path, out: str, **others: Any) -> Settings:
    """Return the settings of a run of `STEPS` steps that logs and saves every one."""
    given = {"epochs": 2, "accumulate": 3, "log_every": 1, "save_every": 1, "lr": 0.1, "warmup": 2, "device": "cpu"}
    given |= {"temperature": 2.0, "ce_weight": 0.3, "kd_weight": 0.7, "temperature_end": 1.0, "kd_weight_end": 0.2}
    return Settings(**{**given, "rank_timeout": TIMEOUT_S, "out": directory / out, **others})


def own(subject: Any) -> Any:
    """Return the distillation of `Model`."""

    class Own(subject.Distillation):  # the subject is any module
        vocab_size = V

        def make_batches(self) -> Noisy:
            return Noisy()

        def make_student(self) -> nn.Module:
            return Model(5, seed=1)

        def make_teacher(self) -> nn.Module:
            return Model(3, seed=2).eval()

        def evaluate(self) -> dict[str, Any]:
            return {}

        def save(self, directory: Path, manifest: dict[str, Any]) -> None:
            (directory / "manifest.json").write_text(json.dumps(manifest))

    return Own


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


class Cut(Callback):
    """Callback that interrupts the run after a step, on every rank."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, context: Any) -> None:
        if context.step == self.step:
            raise KeyboardInterrupt
