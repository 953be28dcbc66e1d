"""Attacks on runs of two and three ranks: equal to one process, cut and resumed. The subject is `pipeline.distill`."""

import math
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.checkpoint_files.saved import edited
from falsifiers.rank_runs.launched import STRATEGIES, Ended, assert_no_error, assert_same_end, launched, matching
from falsifiers.resume.runs import STEPS, TIMEOUT_S, Cut, Model, own, settings
from falsifiers.support.runs import SMALL, acting, assert_same_lines, file_digests, flip, lines, scratch
from reference_trainer import Action, Callback, Settings

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
def falsify_cut_ranks_end_like_straight_ones(
    subject: Any, ranks: int, strategy: str, cut: int, matched: bool, skips: int | None
) -> None:
    """skips: the rank that skips the rest of the first epoch after step 1, if one does.

    A step with FSDP2 takes several times that of DDP, so its run has one epoch, and two ranks in the simplest example.
    The straight run saves nothing: its ranks agree on answers with the counts of a step, not when they save.
    """
    epochs = 1 if strategy == "fsdp2" else 2

    def callbacks(rank: int, *others: Callback) -> list[Callback]:
        return [*([acting(lambda: Action.SKIP, "on_log", 1)] if rank == skips else []), *others]

    with scratch() as directory:
        make = matching(subject) if matched else own(subject)
        given = {"strategy": strategy, "feature_weight": 0.5 if matched else 0.0, "feature_layers": "0:0,1:1"}
        given["epochs"] = epochs
        straight = launched(make, settings(directory, "straight", **given, save_every=0), ranks, callbacks)
        left = launched(make, settings(directory, "cut", **given), ranks, lambda rank: callbacks(rank, Cut(cut)))
        assert {each.error for each in left} == {"KeyboardInterrupt: "}, f"interrupted ranks end with {left}"
        resumed = launched(make, settings(directory, "cut", **given, **LATEST), ranks, callbacks)
        when = f"{ranks} ranks with {strategy}, cut after step {cut}{', with projections' if matched else ''}"
        when += "" if skips is None else f", rank {skips} skips an epoch"
        assert_no_error(when, [*straight, *resumed])
        for rank, each in enumerate((*straight, *resumed)):
            where = f"{when}, rank {rank % ranks} of the {'resumed' if rank >= ranks else 'straight'} run"
            assert_same_end(where, each, straight[0])
        assert_same_lines(when, directory, "cut", "straight")
        taken = len(lines(directory, "straight"))
        expected = epochs * PER_EPOCH - (0 if skips is None else PER_EPOCH - 1)
        assert taken == expected, f"{when}: {taken} steps are taken; expected {expected}"


OTHERS: dict[str, tuple[int, str, list[str]]] = {
    "fewer ranks": (2, "ddp", ["world_size was 3 and is 2"]),
    "one process": (1, "ddp", ["world_size was 3 and is 1", 'strategy was "ddp" and is "one process"']),
    "another strategy": (3, "fsdp2", ['strategy was "ddp" and is "fsdp2"']),
}
"""Ranks, strategy and words of the refusal, for a checkpoint of three ranks with `ddp`."""


def falsify_other_ranks_are_refused(subject: Any) -> None:
    with scratch() as directory:
        make = own(subject)
        launched(make, settings(directory, "out", max_steps=1), 3)
        before = file_digests(directory)
        for kind, (ranks, strategy, words) in OTHERS.items():
            ended = launched(make, settings(directory, "out", strategy=strategy, **LATEST), ranks)
            for rank, each in enumerate(ended):
                missing = [word for word in words if word not in each.error]
                assert not missing, f"{kind}, rank {rank}: the refusal lacks {missing}: {each.error or 'it resumed'}"
            changed = sorted(set(before.items()) ^ set(file_digests(directory).items()))
            assert not changed, f"{kind}: the run was refused, and changed {changed}"


@given(strategy=STRATEGIES, rank=st.integers(1, 2), damaged=st.booleans())
@example(strategy="fsdp2", rank=2, damaged=True)
@example(strategy="ddp", rank=1, damaged=False)
def falsify_unequal_checkpoints_are_refused(subject: Any, strategy: str, rank: int, damaged: bool) -> None:
    """One rank has a disk of its own, where a file of the checkpoint is damaged, or its manifest is another."""
    with scratch() as directory:
        make = own(subject)
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
        for number, each in enumerate(launched(make, chosen, 3)):
            where = f"{strategy}, rank {rank} reads another checkpoint: rank {number}"
            assert expected in each.error, f"{where} ends with {each.error!r}; expected {expected!r}"


UNTRAINED = 1e-30
"""A learning rate that changes no weight."""


class Noting(Model):
    """A model with a buffer of the rank that made it, and one that says whether it computes under autocast."""

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
    class Drawing(own(subject)):  # made for the subject
        def make_student(self) -> nn.Module:
            return Noting(self.place.rank)

    with scratch() as directory:
        chosen = settings(directory, "out", strategy=strategy, dtype=dtype, lr=UNTRAINED, max_steps=1, save_every=0)
        seen = launched(Drawing, chosen, ranks)
    where = f"{strategy}, {dtype}, {ranks} ranks"
    assert_no_error(where, seen)
    expected = {name: each for name, each in Noting(0).state_dict().items() if name not in ("forwards", "autocast")}
    for rank, each in enumerate(seen):
        wrong = [name for name in expected if not torch.equal(each.weights[name], expected[name])]
        assert not wrong, f"{where}: {wrong} on rank {rank} are not those that rank 0 made"
        autocast = bool(each.weights["autocast"])
        assert autocast is (dtype == "bfloat16"), f"{where}: rank {rank} computes under autocast: {autocast}"


SAME = 1e-12
"""Relative, in float64: only the order of sums differs. AdamW amplifies it from step to step, by less than 100."""
UNEVEN = bytes(range(100)) * 2 + b"some text" * 3
"""Its last batch is short, and the batches are no multiple of the ranks."""


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
        where = f"{ranks} ranks with {strategy}, {accumulate} batches each a step"
        assert_no_error(where, [*several, *alone])
        _assert_same_steps(where, lines(directory, "several"), lines(directory, "alone"))
        for rank, each in enumerate(several):
            _assert_close(f"{where}, held-back text on rank {rank}", _flat(each), _flat(alone[0]), 100 * SAME)
            assert each.result["tokens"] == alone[0].result["tokens"], f"{where}, rank {rank}: {each.result['tokens']}"


def _settings(directory: Path, out: str, accumulate: int, strategy: str, matched: bool) -> Settings:
    given = {**SMALL, "data": directory / "text", "teacher_cache": directory / "cache", "dtype": "float64"}
    given |= {"out": directory / out, "log_every": 1, "rank_timeout": TIMEOUT_S, "warmup": 0, "lr": 0.001, "epochs": 2}
    given |= {"accumulate": accumulate, "strategy": strategy, "batch_size": 4, "save_every": 0, "length": 8}
    if matched:  # with projections to another width, whose gradients are clipped with those of the student
        given |= {"feature_weight": 0.5, "teacher_width": 32, "feature_distance": "l2", "clip": 0.5}
    return Settings(**given)


def _flat(ended: Ended) -> dict[str, float]:
    return {name: total / count for name, (total, count) in ended.result["held_back"].items()}


def _assert_same_steps(where: str, seen: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert len(seen) == len(expected), f"{where}: {len(seen)} steps; expected {len(expected)}"
    for step, (ours, theirs) in enumerate(zip(seen, expected, strict=True), start=1):
        allowed = SAME if step == 1 else 100 * SAME
        _assert_close(f"{where}, step {step}", ours["metrics"], theirs["metrics"], allowed)


def _assert_close(where: str, seen: dict[str, float], expected: dict[str, float], allowed: float) -> None:
    assert seen.keys() == expected.keys(), f"{where}: the metrics are {sorted(seen)}; expected {sorted(expected)}"
    for name, value in expected.items():
        assert math.isclose(seen[name], value, rel_tol=allowed, abs_tol=allowed), (
            f"{where}: {name} is {seen[name]!r}; one process has {value!r}"
        )
