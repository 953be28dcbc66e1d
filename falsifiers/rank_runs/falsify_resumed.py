"""Attacks on runs of two and three ranks that are cut and resumed. The subject is `pipeline.distill`."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.checkpoint_files.manifests import edited
from falsifiers.rank_runs.launched import STEPS, Cut, Ended, launched, own, settings
from falsifiers.rank_runs.matched import matching
from falsifiers.support.histories import assert_same_lines, difference
from falsifiers.support.small_runs import found
from reference_trainer import Settings

STRATEGIES = st.sampled_from(["ddp", "fsdp2"])
LATEST: dict[str, Any] = {"resume": Path("latest"), "force": True}


@given(ranks=st.sampled_from([3, 2]), strategy=STRATEGIES, cut=st.integers(1, STEPS - 1), matched=st.booleans())
@example(ranks=3, strategy="fsdp2", cut=2, matched=True)
@example(ranks=3, strategy="ddp", cut=1, matched=True)
def falsify_cut_ranks_end_like_straight_ones(subject: Any, ranks: int, strategy: str, cut: int, matched: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory, make = Path(name).resolve(), matching(subject) if matched else own(subject)
        given = {"strategy": strategy, "feature_weight": 0.5 if matched else 0.0, "feature_layers": "0:0,1:1"}
        straight = launched(make, settings(directory, "straight", **given), ranks)
        launched(make, settings(directory, "cut", **given), ranks, lambda rank: [Cut(cut)])
        resumed = launched(make, settings(directory, "cut", **given, **LATEST), ranks)
        when = f"{ranks} ranks with {strategy}, cut after step {cut}{', with projections' if matched else ''}"
        expected = straight[0]
        for rank, each in enumerate((*straight, *resumed)):
            where = f"{when}, rank {rank % ranks} of the {'resumed' if rank >= ranks else 'straight'} run"
            assert not each.error, f"{where} raised {each.error}"
            _assert_same(where, each, expected)
        assert_same_lines(when, directory, "cut", "straight")


def _assert_same(where: str, seen: Ended, expected: Ended) -> None:
    assert seen.weights.keys() == expected.weights.keys(), f"{where} has the tensors {sorted(seen.weights)}"
    wrong = [name for name, each in expected.weights.items() if not torch.equal(seen.weights[name], each)]
    largest = max(
        (float((seen.weights[n].double() - expected.weights[n].double()).abs().max()) for n in wrong), default=0
    )
    assert not wrong, f"{where}: {wrong} differ from rank 0 of the straight run, by up to {largest:.3g}"
    assert seen.result == expected.result, f"{where}: in the result {difference(seen.result, expected.result)}"


OTHERS: dict[str, tuple[int, str, list[str]]] = {
    "fewer ranks": (2, "ddp", ["world_size was 3 and is 2"]),
    "one process": (1, "ddp", ["world_size was 3 and is 1", 'strategy was "ddp" and is "one process"']),
    "another strategy": (3, "fsdp2", ['strategy was "ddp" and is "fsdp2"']),
}
"""Ranks, strategy and words of the refusal, for a checkpoint of three ranks with `ddp`."""


@given(kind=st.sampled_from(list(OTHERS)))
def falsify_other_ranks_are_refused(subject: Any, kind: str) -> None:
    ranks, strategy, words = OTHERS[kind]
    with tempfile.TemporaryDirectory() as name:
        directory, make = Path(name).resolve(), own(subject)
        launched(make, settings(directory, "out", max_steps=1), 3)
        before = found(directory)
        ended = launched(make, settings(directory, "out", strategy=strategy, **LATEST), ranks)
        for rank, each in enumerate(ended):
            missing = [word for word in words if word not in each.error]
            assert not missing, f"{kind}, rank {rank}: the refusal lacks {missing}: {each.error or 'it was resumed'}"
        changed = sorted(set(before.items()) ^ set(found(directory).items()))
        assert not changed, f"{kind}: the run was refused, and changed {changed}"


@given(strategy=STRATEGIES, rank=st.integers(0, 2))
def falsify_damaged_shard_is_refused_on_every_rank(subject: Any, strategy: str, rank: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory, make = Path(name).resolve(), own(subject)
        launched(make, settings(directory, "out", strategy=strategy, max_steps=1), 3)
        path = directory / "out" / "checkpoints" / "student-step1"
        expected = [f"rank-{n:05d}.safetensors" for n in (range(3) if strategy == "fsdp2" else [0])]
        files = sorted(json.loads((path / "manifest.json").read_text())["files"])
        assert files == expected, f"{strategy}: the checkpoint of 3 ranks has the files {files}; expected {expected}"
        damaged = path / files[rank % len(files)]
        damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
        for number, each in enumerate(launched(make, settings(directory, "out", strategy=strategy, **LATEST), 3)):
            assert damaged.name in each.error, f"{strategy}: {damaged.name} is damaged, rank {number}: {each.error}"


@given(strategy=STRATEGIES, rank=st.integers(1, 2))
def falsify_ranks_with_other_checkpoints_are_refused(subject: Any, strategy: str, rank: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory, make = Path(name).resolve(), own(subject)
        launched(make, settings(directory / "shared", "out", strategy=strategy, max_steps=1), 3)
        shutil.copytree(directory / "shared", directory / "own", symlinks=True)
        manifest = directory / "own" / "out" / "checkpoints" / "student-step1" / "manifest.json"
        edited(manifest, lambda tree: tree["state"]["train"].update(tokens=1))

        def chosen(number: int) -> Settings:
            os.chdir(directory / ("own" if number == rank else "shared"))
            return settings(Path(), "out", strategy=strategy, **LATEST)

        expected = f"rank {rank} differs from rank 0: manifest_sha256 was"
        for number, each in enumerate(launched(make, chosen, 3)):
            assert expected in each.error, f"{strategy}: rank {rank} reads another checkpoint, {number}: {each.error}"
