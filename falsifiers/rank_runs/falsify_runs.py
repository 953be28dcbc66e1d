"""Attacks on runs of two and three ranks: equal to one process, interrupted and resumed, failing and stopping together.

The subject is `pipeline.distill`, or has its names. Ranks connect as under `torchrun`, through the store of a launcher,
which this process serves.
"""

import io
import math
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from hypothesis import assume, example, given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn

from falsifiers.checkpoint_files.saved import assert_same, edited
from falsifiers.resume.runs import STEPS, TIMEOUT_S, Cut, Model, settings, small_distillation
from falsifiers.support.assertions import assert_equal
from falsifiers.support.ranks import RankError as Crashed
from falsifiers.support.ranks import run_ranks
from falsifiers.support.runs import (
    SMALL,
    acting,
    assert_same_lines,
    difference,
    file_digests,
    flip,
    lines,
    scratch,
    unchanged_files,
    without_times,
)
from reference_trainer import Action, Callback, Lines, MetricSum, Settings, TrainerError
from reference_trainer.storage.checkpoints import saved_steps

STRATEGIES = st.sampled_from(["ddp", "fsdp2"])


@dataclass(frozen=True, slots=True)
class RankEnd:
    """The end of a run on one rank.

    error: type and message of the exception, with which weights and result are empty; empty without an exception.
    lines: the printed lines.
    """

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
) -> list[RankEnd]:
    """Run a distillation on forked ranks, and return the end of every rank.

    chosen: the settings, or a function from a rank to its settings. announced: the world size, by default `ranks`.
    """
    size = announced or ranks
    place, served = launcher()

    def work(rank: int) -> RankEnd:
        variables = {**place, "WORLD_SIZE": str(size), "RANK": str(rank), "LOCAL_RANK": str(rank)}
        rank_settings = chosen(rank) if callable(chosen) else chosen
        return end_of_run(make, rank_settings, callbacks(rank), variables if size > 1 else {})

    return run_ranks(ranks, work, limit_s=limit_s, served=served)


def launcher() -> tuple[dict[str, str], AbstractContextManager[None]]:
    """Return the environment variables with which ranks find the store of a launcher, and a context that serves it."""
    listening = socket.create_server(("127.0.0.1", 0))
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(listening.getsockname()[1])}
    return {**address, "TORCHELASTIC_USE_AGENT_STORE": "True"}, _store(listening)


@contextmanager
def _store(listening: socket.socket) -> Iterator[None]:
    """Serve the store of a launcher.

    Enter the context after the ranks are forked: the thread of the store resolves addresses under a lock, which a fork
    could copy in the locked state.
    """
    host, port = listening.getsockname()
    options: Any = {"is_master": True, "wait_for_workers": False, "master_listen_fd": listening.detach()}
    server = dist.TCPStore(host, port, **options)  # type: ignore[attr-defined]  # public, but mypy sees no export
    yield
    del server


def end_of_run(
    make: Callable[..., Any], chosen: Settings, callbacks: Sequence[Callback], environment: dict[str, str]
) -> RankEnd:
    """Run a distillation, and return its end."""
    stream = io.StringIO()
    try:
        with make(chosen, callbacks=callbacks, lines=Lines(stream), environment=environment) as run, run:
            run.prepare()
            result = run.conclude(run.run())
    except (TrainerError, OSError, KeyboardInterrupt, Planted) as error:
        return RankEnd(f"{type(error).__name__}: {error}", {}, {}, stream.getvalue())
    weights = {name: value.detach().clone() for name, value in result.student.state_dict().items()}
    train = without_times(asdict(result.train))
    train["held_back"] = {name: (metric.sum, metric.count) for name, metric in result.held_back.items()}
    return RankEnd("", weights, train, stream.getvalue())


def assert_no_error(where: str, ends: Sequence[RankEnd]) -> None:
    """Assert that no rank ended with an error."""
    failed = [rank.error for rank in ends if rank.error]
    assert not failed, f"{where}: {failed[0]}; expected no error"


class Planted(Exception):
    """An error that a falsifier raises in one rank."""


def _assert_errors(where: str, ends: Sequence[RankEnd], *words: str) -> None:
    """Assert that every rank ends with an error with these words."""
    for number, end in enumerate(ends):
        missing = [word for word in words if word not in end.error]
        assert not missing, f"{where}: rank {number} ends with {end.error or 'a result'!r}; expected {missing}"


def assert_same_end(where: str, seen: RankEnd, expected: RankEnd) -> None:
    """Assert equal bits of weights, and equal results."""
    assert_same(where, seen.weights, expected.weights)
    assert seen.result == expected.result, f"{where}: in the result {difference(seen.result, expected.result)}"


class Output(NamedTuple):
    """Logits and hidden states, in a tuple: FSDP2 finds tensors only in tuples, lists and dictionaries."""

    logits: Tensor
    hidden_states: list[Tensor]


class WithStates(Model):
    """A model that can return hidden states."""

    def forward(self, tokens: Tensor, output_hidden_states: bool = False) -> Any:
        logits = super().forward(tokens)
        states = self.embed(tokens)
        return Output(logits, [states[..., :3], states]) if output_hidden_states else logits


def matching(subject: Any) -> Any:
    """Return the distillation of models of two widths, whose hidden states are matched by a projection."""

    class Matching(small_distillation(subject)):  # the subject is any module
        def make_student(self) -> WithStates:
            return WithStates(5, seed=1)

        def make_teacher(self) -> Any:
            return WithStates(3, seed=2).eval()

    return Matching


PER_EPOCH = STEPS // 2
LATEST: dict[str, Any] = {"resume": Path("latest"), "force": True}


@given(
    ranks=st.sampled_from([2, 3]),
    strategy=st.sampled_from(["fsdp2", "ddp"]),
    cut=st.sampled_from([2, 1, 3]),
    matched=st.sampled_from([True, False]),
    skips=st.sampled_from([None, 0, 1]),
)
@example(ranks=3, strategy="ddp", cut=1, matched=False, skips=1)
def falsify_cut_ranks_end_like_uninterrupted_ones(
    subject: Any, ranks: int, strategy: str, cut: int, matched: bool, skips: int | None
) -> None:
    """skips: the rank whose callback skips the rest of the first epoch after step 1, or None.

    A run with FSDP2 has only one epoch, since its steps take several times as long as with DDP. The uninterrupted run
    saves nothing, so that its ranks exchange actions with the counts of a step, and not at a save.
    """
    epochs = 1 if strategy == "fsdp2" else 2
    assume(epochs == 2 or skips is None or cut == 1)  # a skip in the only epoch ends the run after step 1

    def callbacks(rank: int, *others: Callback) -> list[Callback]:
        return [*([acting(lambda: Action.SKIP, "on_log", 1)] if rank == skips else []), *others]

    with scratch() as directory:
        make = matching(subject) if matched else small_distillation(subject)
        options: dict[str, Any] = {"strategy": strategy, "epochs": epochs, "feature_layers": "0:0,1:1"}
        options |= {"feature_weight": 0.5 if matched else 0.0, "keep": 1}
        uninterrupted = launched(make, settings(directory, "uninterrupted", **options, save_every=0), ranks, callbacks)
        interrupted = launched(make, settings(directory, "cut", **options), ranks, lambda r: callbacks(r, Cut(cut)))
        assert_equal("errors of interrupted ranks", {end.error for end in interrupted}, {"KeyboardInterrupt: "})
        resumed = launched(make, settings(directory, "cut", **options, **LATEST), ranks, callbacks)
        when = f"{ranks} ranks with {strategy}, interrupted after step {cut}{', with projections' if matched else ''}"
        when += "" if skips is None else f", rank {skips} skips an epoch"
        assert_no_error(when, [*uninterrupted, *resumed])
        for number, end in enumerate((*uninterrupted, *resumed)):
            where = f"{when}, rank {number % ranks} of the {'resumed' if number >= ranks else 'uninterrupted'} run"
            assert_same_end(where, end, uninterrupted[0])
        assert_same_lines(when, directory, "cut", "uninterrupted")
        steps = saved_steps(directory / "cut" / "checkpoints", "student")
        assert len(steps) == 1, f"{when}: checkpoints of the steps {steps}; expected one, with keep 1"
        expected = epochs * PER_EPOCH - (0 if skips is None else PER_EPOCH - 1)
        assert_equal(f"{when}: number of steps", len(lines(directory, "uninterrupted")), expected)


REFUSED: dict[str, tuple[int, str, list[str]]] = {
    "fewer ranks": (2, "ddp", ["world_size was 3 and is 2"]),
    "one process": (1, "ddp", ["world_size was 3 and is 1", 'strategy was "ddp" and is "one process"']),
    "another strategy": (3, "fsdp2", ['strategy was "ddp" and is "fsdp2"']),
}
"""Number of ranks, strategy, and words of the refusal to resume from a checkpoint of three ranks with `ddp`."""


def falsify_other_ranks_are_refused(subject: Any) -> None:
    with scratch() as directory:
        make = small_distillation(subject)
        launched(make, settings(directory, "out", max_steps=1), 3)
        for kind, (ranks, strategy, words) in REFUSED.items():
            with unchanged_files(directory, kind):
                ends = launched(make, settings(directory, "out", strategy=strategy, **LATEST), ranks)
            _assert_errors(kind, ends, *words)


@given(strategy=STRATEGIES, rank=st.integers(1, 2), damaged=st.booleans())
@example(strategy="fsdp2", rank=2, damaged=True)
@example(strategy="ddp", rank=1, damaged=False)
def falsify_unequal_checkpoints_are_refused(subject: Any, strategy: str, rank: int, damaged: bool) -> None:
    """One rank reads its own copy of the checkpoint, with a damaged file or a changed manifest."""
    with scratch() as directory:
        make = small_distillation(subject)
        launched(make, settings(directory / "shared", "out", strategy=strategy, max_steps=1), 3)
        shutil.copytree(directory / "shared", directory / "own", symlinks=True)
        path = directory / "own" / "out" / "checkpoints" / "student-step1"
        file = path / f"rank-{rank if strategy == 'fsdp2' else 0:05d}.safetensors"
        if damaged:
            flip(file)
        else:
            edited(path / "manifest.json", lambda tree: tree["state"]["train"].update(tokens=1))

        def chosen(number: int) -> Settings:
            os.chdir(directory / ("own" if number == rank else "shared"))
            return settings(Path(), "out", strategy=strategy, **LATEST)

        expected = file.name if damaged else f"rank {rank} differs from rank 0: manifest_sha256 was"
        _assert_errors(f"{strategy}, rank {rank} with a changed checkpoint", launched(make, chosen, 3), expected)


SMALLEST_RATE = 1e-30
"""A learning rate that changes no weight."""


class ModelOfRank(Model):
    """A model with two buffers: the rank that created it, and whether its forward is under autocast."""

    def __init__(self, rank: int) -> None:
        super().__init__(5, seed=rank + 1)
        self.register_buffer("scale", torch.full((3,), float(rank)))
        self.register_buffer("autocast", torch.tensor(0))

    def forward(self, tokens: Tensor) -> Tensor:
        self.autocast.fill_(int(torch.is_autocast_enabled("cpu")))
        return super().forward(tokens)


@given(strategy=STRATEGIES, ranks=st.integers(2, 3), dtype=st.sampled_from(["float32", "bfloat16"]))
@example(strategy="fsdp2", ranks=2, dtype="bfloat16")
def falsify_ranks_begin_with_the_student_of_rank_0(subject: Any, strategy: str, ranks: int, dtype: str) -> None:
    class StudentOfRank(small_distillation(subject)):  # made for the subject
        def make_student(self) -> nn.Module:
            return ModelOfRank(self.place.rank)

    with scratch() as directory:
        chosen = settings(directory, "out", strategy=strategy, dtype=dtype, lr=SMALLEST_RATE, max_steps=1, save_every=0)
        seen = launched(StudentOfRank, chosen, ranks)
    where = f"{strategy}, {dtype}, {ranks} ranks"
    assert_no_error(where, seen)
    first = ModelOfRank(0).state_dict()
    for rank, end in enumerate(seen):
        autocast = bool(end.weights["autocast"])
        assert autocast is (dtype == "bfloat16"), f"{where}: autocast on rank {rank}: {autocast}; not {dtype}"
        computed = {name: end.weights[name] for name in ("forwards", "autocast")}
        assert_same(f"{where}, rank {rank} with the student of rank 0", end.weights, {**first, **computed})


ROUNDING = 1e-12
"""Relative difference in float64 from another order of sums. AdamW amplifies it over the steps, by less than 100."""
UNEVEN = bytes(range(100)) * 2 + b"some text" * 3
"""A text with an incomplete last batch, and a number of batches that is no multiple of the number of ranks."""


@given(
    ranks=st.sampled_from([2, 3]),
    strategy=st.sampled_from(["fsdp2", "ddp"]),
    accumulate=st.sampled_from([2, 1]),
    matched=st.sampled_from([True, False]),
)
@example(ranks=3, strategy="ddp", accumulate=1, matched=True)
def falsify_ranks_train_as_one_process(subject: Any, ranks: int, strategy: str, accumulate: int, matched: bool) -> None:
    with scratch() as directory:
        (directory / "text").write_bytes(UNEVEN)
        several = launched(subject.Distillation, _settings(directory, "several", accumulate, strategy, matched), ranks)
        alone = launched(subject.Distillation, _settings(directory, "alone", accumulate * ranks, strategy, matched), 1)
        where = f"{ranks} ranks with {strategy}, accumulate {accumulate}, features {matched}"
        assert_no_error(where, [*several, *alone])
        _assert_same_steps(where, lines(directory, "several"), lines(directory, "alone"))
        expected = _held_back_means(alone[0])
        for rank, end in enumerate(several):
            _assert_close(f"{where}, held-back text on rank {rank}", _held_back_means(end), expected, 100 * ROUNDING)
            assert_equal(f"{where}, tokens on rank {rank}", end.result["tokens"], alone[0].result["tokens"])


def _settings(directory: Path, out: str, accumulate: int, strategy: str, matched: bool) -> Settings:
    options = {**SMALL, "data": directory / "text", "teacher_cache": directory / "cache", "dtype": "float64"}
    options |= {"out": directory / out, "log_every": 1, "rank_timeout": TIMEOUT_S, "warmup": 0, "lr": 0.001}
    options |= {"epochs": 2, "accumulate": accumulate, "strategy": strategy}
    if matched:  # another width needs projections; gradients of projections and student are clipped together
        options |= {"feature_weight": 0.5, "teacher_width": 32, "feature_distance": "l2", "clip": 0.5}
    return Settings(**options)


def _held_back_means(end: RankEnd) -> dict[str, float]:
    return {name: total / count for name, (total, count) in end.result["held_back"].items()}


def _assert_same_steps(where: str, seen: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert_equal(f"{where}: number of steps", len(seen), len(expected))
    for step, (ours, theirs) in enumerate(zip(seen, expected, strict=True), start=1):
        allowed = ROUNDING if step == 1 else 100 * ROUNDING
        _assert_close(f"{where}, step {step}", ours["metrics"], theirs["metrics"], allowed)


def _assert_close(where: str, seen: dict[str, float], expected: dict[str, float], allowed: float) -> None:
    assert_equal(f"{where}: metrics", seen.keys(), expected.keys())
    for name, value in expected.items():
        is_close = math.isclose(seen[name], value, rel_tol=allowed, abs_tol=allowed)
        assert is_close, f"{where}: {name} is {seen[name]!r}; expected {value!r}, as in one process"


WORDS = "planted in one rank"


def _raise(*_: Any) -> Any:
    raise Planted(WORDS)


PLACES = ("make_batches", "make_student", "make_teacher", "a batch", "a callback", "save")
"""Where a rank fails: before and after the ranks are connected, in a step, between steps, and after the last step."""


@given(place=st.sampled_from(PLACES), strategy=STRATEGIES, rank=st.integers(0, 2))
@example(place="a batch", strategy="fsdp2", rank=0)  # first, where a rank that says nothing is noticed at once
@example(place="make_student", strategy="fsdp2", rank=2)
@example(place="make_teacher", strategy="ddp", rank=1)
@example(place="save", strategy="fsdp2", rank=0)
@example(place="a callback", strategy="ddp", rank=2)
def falsify_failure_of_one_rank_ends_all(subject: Any, place: str, strategy: str, rank: int) -> None:
    rank = 0 if place == "save" else rank  # only rank 0 saves

    class Failing(small_distillation(subject)):  # made for the subject
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            if self.place.rank == rank and hasattr(type(self), place):
                setattr(self, place, _raise)

        def make_batches(self) -> Any:
            batches = super().make_batches()
            if place == "a batch" and self.place.rank == rank:
                batches.batch = _raise
            return batches

    with scratch() as directory:
        chosen = settings(directory, "out", strategy=strategy, max_steps=3, save_every=0)
        callbacks = [[acting(_raise, step=2)] if place == "a callback" and r == rank else [] for r in range(3)]
        start = time.monotonic()
        ends = launched(Failing, chosen, 3, callbacks.__getitem__, limit_s=120)
        elapsed_s = time.monotonic() - start
    where = f"{strategy}, rank {rank} of 3 fails in {place}"
    for number, end in enumerate(ends):
        expected = f"Planted: {WORDS}" if number == rank else f"RankError: rank {rank}: {WORDS}"
        assert end.error.startswith(expected), f"{where}: rank {number} raised {end.error!r}; expected {expected!r}"
    assert elapsed_s < TIMEOUT_S, f"{where}: the ranks end after {elapsed_s:.0f} s; timeout {TIMEOUT_S} s"


@given(ranks=st.integers(1, 3))
def falsify_missing_rank_ends_all(subject: Any, ranks: int) -> None:
    """The world size is ranks + 1, so one rank is missing; the error names it after the timeout."""
    with scratch() as directory:
        chosen = settings(directory, "out", rank_timeout=2)
        ends = launched(small_distillation(subject), chosen, ranks, limit_s=30, announced=ranks + 1)
    _assert_errors(f"{ranks} of {ranks + 1} ranks", ends, f"rank {ranks} did not connect within 2 s")


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@given(strategy=STRATEGIES, rank=st.integers(0, 2))
def falsify_killed_rank_ends_all(subject: Any, strategy: str, rank: int) -> None:
    with scratch() as directory:

        class RecordingError(small_distillation(subject)):  # made for the subject
            def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
                try:
                    return super().__exit__(kind, error, trace)
                except BaseException as raised:
                    (directory / f"rank{self.place.rank}").write_text(type(raised).__name__)
                    raise

        start = time.monotonic()
        with suppress(Crashed):  # the killed rank crashes
            chosen = settings(directory, "out", strategy=strategy)
            launched(RecordingError, chosen, 3, lambda r: [acting(_kill, step=2)] if r == rank else ())
        where, elapsed_s = f"{strategy}, rank {rank} of 3 is killed after step 2", time.monotonic() - start
        for other in {0, 1, 2} - {rank}:
            file = directory / f"rank{other}"
            error_type = file.read_text() if file.exists() else "no error"
            assert_equal(f"{where}: error of rank {other}", error_type, "LostRankError")
        assert elapsed_s < TIMEOUT_S, f"{where}: the others end after {elapsed_s:.0f} s; timeout {TIMEOUT_S} s"
        steps = sorted(path.name for path in (directory / "out" / "checkpoints").glob("student-step*"))
        complete = [f"student-step{step}" for step in (1, 2)]  # the second save may have been interrupted
        assert steps in (complete[:1], complete), f"{where}: checkpoints {steps}; expected {complete} or the first"


@given(strategy=STRATEGIES, ranks=st.sampled_from([2, 3]), step=st.integers(1, STEPS), save_every=st.integers(1, 4))
@example(strategy="ddp", ranks=2, step=STEPS, save_every=1)
def falsify_stop_of_one_rank_stops_all_after_one_step(
    subject: Any, strategy: str, ranks: int, step: int, save_every: int
) -> None:
    requests = list[None]()  # every rank is a fork with a list of its own
    callback = acting(lambda: requests.append(None), step=step)

    class StopRequested(small_distillation(subject)):  # made for the subject
        @contextmanager
        def stop_requests(self) -> Iterator[Callable[[], bool]]:
            yield lambda: bool(requests) and self.place.rank == ranks - 1

    with scratch() as directory:
        chosen = settings(directory, "out", strategy=strategy, save_every=save_every, keep=1)
        ends = launched(StopRequested, chosen, ranks, lambda rank: [callback])
        where = f"{ranks} ranks with {strategy}, request to stop on the last after step {step}"
        _assert_errors(where, ends, "StopRequestedError")
        steps = [path.name for path in (directory / "out" / "checkpoints").glob("student-step*")]
        assert_equal(f"{where}: checkpoints", steps, [f"student-step{min(step + 1, STEPS)}"])


DIFFERENCES = {
    "text": (0, "data_sha256 was"),
    "teacher": (1, "teacher_sha256 was"),
    "batch size": (2, "batch_size was 4 and is 2"),
    "evaluation": (0, "accuracy of evaluate was"),
}
"""By difference: the rank that differs, and words of the refusal."""


def falsify_ranks_that_differ_are_refused(subject: Any) -> None:
    with scratch() as directory:
        for differs, (rank, words) in DIFFERENCES.items():
            where = f"rank {rank} of 3 has another {differs}"
            make, chosen = _differing(subject, differs, rank), partial(_chosen, directory, differs, rank)
            try:
                ends = launched(make, chosen, 3)
            except Crashed as error:  # gloo aborts a process whose collectives differ from the other ranks
                raise AssertionError(f"{where}; {error}") from error
            _assert_errors(where, ends, words, f"rank {rank or 1} differs from rank 0")


def _chosen(directory: Path, differs: str, rank: int, number: int) -> Settings:
    """Return the settings of the process `number`, which has its own text file; all share the cache of the teacher."""
    text, is_other = directory / f"text{number}", number == rank
    text.write_bytes(bytes(range(100)) + (b"other" if differs == "text" and is_other else b""))
    options = {**SMALL, "data": text, "teacher_cache": directory / "cache", "out": directory / differs}
    options |= {"batch_size": 2} if differs == "batch size" and is_other else {}
    return Settings(**options, rank_timeout=TIMEOUT_S, eval_every=1)


def _differing(subject: Any, differs: str, rank: int) -> Any:
    class Differing(subject.Distillation):  # the subject is any module
        def make_teacher(self) -> Any:
            teacher = super().make_teacher()
            with torch.no_grad():
                next(teacher.parameters()).add_(differs == "teacher" and self.place.rank == rank)
            return teacher

        def evaluate(self) -> dict[str, Any]:
            return {"accuracy": MetricSum(3.0, 9 + (differs == "evaluation" and self.place.rank == rank))}

    return Differing


@given(ranks=st.sampled_from([2, 3]), strategy=STRATEGIES, cached=st.booleans())
@example(ranks=3, strategy="fsdp2", cached=True)
def falsify_only_rank_0_writes(subject: Any, ranks: int, strategy: str, cached: bool) -> None:
    with scratch() as directory:
        (directory / "text").write_bytes(bytes(range(100)))
        if not cached:
            (directory / "cache0").write_text("no directory")
        options = {**SMALL, "data": directory / "text", "out": directory / "out", "strategy": strategy}
        options |= {"save_every": 1, "log_every": 1, "rank_timeout": TIMEOUT_S, "trace": directory / "trace"}
        ends = launched(
            subject.Distillation, lambda rank: Settings(**options, teacher_cache=directory / f"cache{rank}"), ranks
        )
        where = f"{ranks} ranks with {strategy}"
        assert_no_error(where, ends)
        _assert_one_writer(where, ends)
        begins = (directory / "trace").read_text().count('"on_train_begin"')
        assert_equal(f"{where}: runs in the trace, which only rank 0 writes", begins, 1)
        paths = list(file_digests(directory))
        teachers = [path for path in paths if path.startswith("cache") and not path.startswith("cache0")]
        assert not teachers, f"{where}: other ranks than 0 cached a teacher: {teachers}"
        files = sorted(path for path in paths if path.startswith("out/"))
        expected = _files(ranks if strategy == "fsdp2" else 1, -(-3 // ranks))
        assert_equal(f"{where}: files", files, expected)
        _assert_divided(where, directory / "out" / "checkpoints" / "student-step1", ends[0].weights)


def _assert_divided(where: str, path: Path, weights: dict[str, Tensor]) -> None:
    """Assert that the files of a checkpoint have every row of a parameter once, and no file more than its share."""
    files = [load_file(file) for file in sorted(path.glob("rank-*.safetensors"))]
    for name, parameter in weights.items():
        rows = [len(tensors[f"student.{name}"]) for tensors in files if f"student.{name}" in tensors]
        is_divided = sum(rows) == len(parameter) and max(rows) <= -(-len(parameter) // len(files))
        assert is_divided, f"{where}: rows of {name} by file: {rows}; expected {len(parameter)} in {len(files)} files"


def _assert_one_writer(where: str, ends: Sequence[RankEnd]) -> None:
    for rank, end in enumerate(ends):
        lines = end.lines.splitlines()
        trainings = sum("training a teacher" in line for line in lines)
        assert bool(lines) == (rank == 0), f"{where}: lines of rank {rank}: {lines[:2]}; only rank 0 writes"
        assert trainings == (rank == 0), f"{where}: rank {rank} trained {trainings} teachers; expected {int(rank == 0)}"
        assert_same(f"{where}: final weights of rank {rank} and rank 0", end.weights, ends[0].weights)


def _files(shards: int, steps: int) -> list[str]:
    files = ["checkpoints", "checkpoints/student-latest", "config.json", "manifest.json", "metrics.jsonl"]
    for path in (f"checkpoints/student-step{step}" for step in range(1, steps + 1)):
        files += [path, f"{path}/manifest.json", *(f"{path}/rank-{n:05d}.safetensors" for n in range(shards))]
    return sorted(f"out/{file}" for file in [*files, "model.safetensors"])
