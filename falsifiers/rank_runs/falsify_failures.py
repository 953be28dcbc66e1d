"""Attacks on ranks that fail, stop or differ: all of them end, and say why. The subject is `pipeline.distill`."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from falsifiers.rank_runs.launched import STRATEGIES, Planted, assert_no_error, launched
from falsifiers.resume.runs import STEPS, TIMEOUT_S, own, settings
from falsifiers.support.ranks import RankError as Crashed
from falsifiers.support.runs import SMALL, acting, file_digests, scratch
from reference_trainer import MetricSum, Settings

WORDS = "planted in one rank"


def _raise(*_: Any) -> Any:
    raise Planted(WORDS)


PLACES = ("make_batches", "make_student", "make_teacher", "a batch", "a callback", "save")
"""Where a rank fails: before it is connected with others, beside them, between two steps, and after the last."""


@given(place=st.sampled_from(PLACES), strategy=STRATEGIES, rank=st.integers(0, 2))
def falsify_failure_of_one_rank_ends_all(subject: Any, place: str, strategy: str, rank: int) -> None:
    rank = 0 if place == "save" else rank  # which rank 0 alone does
    base = own(subject)

    class Failing(base):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            if self.place.rank == rank and hasattr(base, place):
                setattr(self, place, _raise)

        def make_batches(self) -> Any:
            batches = super().make_batches()
            if place == "a batch" and self.place.rank == rank:
                batches.batch = _raise
            return batches

    with scratch() as directory:
        chosen = settings(directory, "out", strategy=strategy, max_steps=3, save_every=0)
        since = time.monotonic()
        ended = launched(
            Failing,
            chosen,
            3,
            lambda r: [acting(_raise, step=2)] if place == "a callback" and r == rank else (),
            limit_s=120,
        )
        waited = time.monotonic() - since
    where = f"{strategy}, rank {rank} of 3 fails in {place}"
    for number, each in enumerate(ended):
        expected = f"Planted: {WORDS}" if number == rank else f"RankError: rank {rank}: {WORDS}"
        assert each.error.startswith(expected), f"{where}: rank {number} raised {each.error!r}; expected {expected!r}"
    assert waited < TIMEOUT_S, f"{where}: the ranks end after {waited:.0f} s, when they give up waiting"


@given(ranks=st.integers(1, 3))
def falsify_missing_rank_ends_all(subject: Any, ranks: int) -> None:
    """Where one more rank is announced than comes, the others end with its number when they have waited for it."""
    with scratch() as directory:
        chosen = settings(directory, "out", rank_timeout=2)
        ended = launched(own(subject), chosen, ranks, limit_s=30, announced=ranks + 1)
    expected = f"rank {ranks} did not connect within 2 s"
    for number, each in enumerate(ended):
        assert each.error.endswith(expected), f"{ranks} of {ranks + 1} ranks: rank {number} raised {each.error!r}"


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@given(strategy=STRATEGIES, rank=st.integers(0, 2))
def falsify_killed_rank_ends_all(subject: Any, strategy: str, rank: int) -> None:
    with scratch() as directory:

        class Noting(own(subject)):  # made for the subject
            def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
                try:
                    return super().__exit__(kind, error, trace)
                except BaseException as last:
                    (directory / f"rank{self.place.rank}").write_text(type(last).__name__)
                    raise

        since = time.monotonic()
        with suppress(Crashed):  # that of the killed rank
            chosen = settings(directory, "out", strategy=strategy)
            launched(Noting, chosen, 3, lambda r: [acting(_kill, step=2)] if r == rank else ())
        where, waited = f"{strategy}, rank {rank} of 3 is killed after step 2", time.monotonic() - since
        for other in {0, 1, 2} - {rank}:
            note = directory / f"rank{other}"
            ended = note.read_text() if note.exists() else "no error"
            assert ended == "LostRankError", f"{where}: rank {other} ended with {ended}"
        assert waited < TIMEOUT_S, f"{where}: the others end after {waited:.0f} s, when they give up waiting"
        steps = sorted(path.name for path in (directory / "out" / "checkpoints").glob("student-step*"))
        whole = [f"student-step{step}" for step in (1, 2)]  # the second may have been in the making
        assert steps in (whole[:1], whole), f"{where}: {steps} are saved"


@given(strategy=STRATEGIES, ranks=st.sampled_from([2, 3]), step=st.integers(1, STEPS - 2), save_every=st.integers(1, 4))
def falsify_stop_of_one_rank_stops_all_after_one_step(
    subject: Any, strategy: str, ranks: int, step: int, save_every: int
) -> None:
    asked = list[None]()  # of this process, which is a fork
    callback = acting(lambda: asked.append(None), step=step)

    class Asking(own(subject)):  # made for the subject
        @contextmanager
        def stop_requests(self) -> Iterator[Callable[[], bool]]:
            yield lambda: bool(asked) and self.place.rank == ranks - 1

    with scratch() as directory:
        chosen = settings(directory, "out", strategy=strategy, save_every=save_every, keep=1)
        ended = launched(Asking, chosen, ranks, lambda rank: [callback])
        where = f"{ranks} ranks with {strategy}, the last is asked to stop after step {step}"
        for rank, each in enumerate(ended):
            assert each.error.startswith("StopRequestedError"), f"{where}: rank {rank} ended with {each.error!r}"
        steps = [path.name for path in (directory / "out" / "checkpoints").glob("student-step*")]
        assert steps == [f"student-step{step + 1}"], f"{where}: {steps} are saved; expected step {step + 1}"


DIFFER = {
    "text": (0, "data_sha256 was"),
    "teacher": (1, "teacher_sha256 was"),
    "batch size": (2, "batch_size was 4 and is 2"),
    "evaluation": (0, "accuracy of evaluate was"),
}
"""What differs, on which rank, and what the refusal says."""


def falsify_ranks_that_differ_are_refused(subject: Any) -> None:
    with scratch() as directory:
        for differs, (rank, words) in DIFFER.items():
            where = f"rank {rank} of 3 has another {differs}"
            make, chosen = _differing(subject, differs, rank), partial(_chosen, directory, differs, rank)
            try:
                ended = launched(make, chosen, 3)
            except Crashed as error:  # gloo ends a process whose collectives do not fit those of others
                raise AssertionError(f"{where}; {error}") from error
            for number, each in enumerate(ended):
                missing = [word for word in (words, f"rank {rank or 1} differs from rank 0") if word not in each.error]
                assert not missing, f"{where}; rank {number} ended with {each.error or 'a result'}"


def _chosen(directory: Path, differs: str, rank: int, number: int) -> Settings:
    """Return the settings of one process, with a text of its own; the teacher is trained once for all cases."""
    text = directory / f"text{number}"
    text.write_bytes(bytes(range(100)) + (b"other" if differs == "text" and number == rank else b""))
    others: dict[str, Any] = {"batch_size": 2} if differs == "batch size" and number == rank else {}
    given = {**SMALL, "data": text, "teacher_cache": directory / "cache", "out": directory / differs}
    return Settings(**{**given, "rank_timeout": TIMEOUT_S, "eval_every": 1, **others})


def _differing(subject: Any, differs: str, rank: int) -> Any:
    class Own(subject.Distillation):  # the subject is any module
        def make_teacher(self) -> Any:
            teacher = super().make_teacher()
            with torch.no_grad():
                next(teacher.parameters()).add_(differs == "teacher" and self.place.rank == rank)
            return teacher

        def evaluate(self) -> dict[str, Any]:
            return {"accuracy": MetricSum(3.0, 9 + (differs == "evaluation" and self.place.rank == rank))}

    return Own


@given(ranks=st.sampled_from([2, 3]), strategy=STRATEGIES, cached=st.booleans())
def falsify_only_rank_0_writes(subject: Any, ranks: int, strategy: str, cached: bool) -> None:
    with scratch() as directory:
        (directory / "text").write_bytes(bytes(range(100)))
        if not cached:
            (directory / "cache0").write_text("no directory")
        given = {**SMALL, "data": directory / "text", "out": directory / "out", "strategy": strategy}
        given |= {"save_every": 1, "log_every": 1, "rank_timeout": TIMEOUT_S}

        def chosen(rank: int) -> Settings:
            return Settings(**given, teacher_cache=directory / f"cache{rank}")

        ended = launched(subject.Distillation, chosen, ranks)
        where = f"{ranks} ranks with {strategy}"
        assert_no_error(where, ended)
        _assert_one_writer(where, ended)
        made = [each for each in file_digests(directory) if each.startswith("cache") and not each.startswith("cache0")]
        assert not made, f"{where}: other ranks than 0 made a teacher: {made}"
        files = sorted(each for each in file_digests(directory) if each.startswith("out/"))
        expected = _files(ranks if strategy == "fsdp2" else 1, -(-3 // ranks))
        assert files == expected, f"{where}: the files are {files}; expected {expected}"
        _assert_divided(where, directory / "out" / "checkpoints" / "student-step1", ended[0].weights)


def _assert_divided(where: str, path: Path, weights: dict[str, Tensor]) -> None:
    """Assert that the files of a checkpoint have each row of a parameter once, and none more than its part."""
    files = [load_file(each) for each in sorted(path.glob("rank-*.safetensors"))]
    for name, parameter in weights.items():
        rows = [len(tensors[f"student.{name}"]) for tensors in files if f"student.{name}" in tensors]
        divided = sum(rows) == len(parameter) and max(rows) <= -(-len(parameter) // len(files))
        assert divided, f"{where}: {name} of {len(parameter)} rows has {rows} in {len(files)} files"


def _assert_one_writer(where: str, ended: Sequence[Any]) -> None:
    for rank, each in enumerate(ended):
        lines = each.lines.splitlines()
        trained = sum("training one" in line for line in lines)
        assert bool(lines) == (rank == 0), f"{where}: rank {rank} wrote {len(lines)} lines: {lines[:2]}"
        assert trained == (rank == 0), f"{where}: rank {rank} trained {trained} teachers"
        wrong = [n for n, w in ended[0].weights.items() if not torch.equal(w, each.weights[n])]
        assert not wrong, f"{where}: after the run {wrong} of rank {rank} differ from rank 0's"


def _files(shards: int, steps: int) -> list[str]:
    files = ["checkpoints", "checkpoints/student-latest", "config.json", "manifest.json", "metrics.jsonl"]
    for path in (f"checkpoints/student-step{step}" for step in range(1, steps + 1)):
        files += [path, f"{path}/manifest.json", *(f"{path}/rank-{n:05d}.safetensors" for n in range(shards))]
    return sorted(f"out/{each}" for each in [*files, "model.safetensors"])
