"""Attacks on runs of two and three ranks that are cut and resumed. The subject is `pipeline.distill`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.checkpoint_files.manifests import edited
from falsifiers.rank_runs.launched import STRATEGIES, assert_no_error, assert_same_end, launched
from falsifiers.rank_runs.matched import matching
from falsifiers.resume.runs import STEPS, Cut, own, settings
from falsifiers.support.histories import assert_same_lines, lines
from falsifiers.support.scratch import flip, scratch
from falsifiers.support.small_runs import found
from reference_trainer import Action, Callback, Settings

LATEST: dict[str, Any] = {"resume": Path("latest"), "force": True}


class Skipping(Callback):
    """Callback that skips the rest of the epoch when step 1 is logged."""

    def on_log(self, context: Any) -> Action | None:
        return Action.SKIP if context.step == 1 else None


@given(
    ranks=st.sampled_from([3, 2]),
    strategy=STRATEGIES,
    cut=st.integers(1, STEPS // 2),
    matched=st.booleans(),
    skips=st.sampled_from([1, 0, None]),
)
@example(ranks=3, strategy="fsdp2", cut=2, matched=True, skips=None)
def falsify_cut_ranks_end_like_straight_ones(
    subject: Any, ranks: int, strategy: str, cut: int, matched: bool, skips: int | None
) -> None:
    """skips: the rank that skips the rest of the first epoch after step 1, if one does."""

    def callbacks(rank: int, *others: Callback) -> list[Callback]:
        return [*([Skipping()] if rank == skips else []), *others]

    with scratch() as directory:
        make = matching(subject) if matched else own(subject)
        given = {"strategy": strategy, "feature_weight": 0.5 if matched else 0.0, "feature_layers": "0:0,1:1"}
        straight = launched(make, settings(directory, "straight", **given), ranks, callbacks)
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
        assert taken == (STEPS if skips is None else STEPS // 2 + 1), f"{when}: {taken} steps are taken"


OTHERS: dict[str, tuple[int, str, list[str]]] = {
    "fewer ranks": (2, "ddp", ["world_size was 3 and is 2"]),
    "one process": (1, "ddp", ["world_size was 3 and is 1", 'strategy was "ddp" and is "one process"']),
    "another strategy": (3, "fsdp2", ['strategy was "ddp" and is "fsdp2"']),
}
"""Ranks, strategy and words of the refusal, for a checkpoint of three ranks with `ddp`."""


@given(kind=st.sampled_from(list(OTHERS)))
def falsify_other_ranks_are_refused(subject: Any, kind: str) -> None:
    ranks, strategy, words = OTHERS[kind]
    with scratch() as directory:
        make = own(subject)
        launched(make, settings(directory, "out", max_steps=1), 3)
        before = found(directory)
        ended = launched(make, settings(directory, "out", strategy=strategy, **LATEST), ranks)
        for rank, each in enumerate(ended):
            missing = [word for word in words if word not in each.error]
            assert not missing, f"{kind}, rank {rank}: the refusal lacks {missing}: {each.error or 'it was resumed'}"
        changed = sorted(set(before.items()) ^ set(found(directory).items()))
        assert not changed, f"{kind}: the run was refused, and changed {changed}"


@given(strategy=STRATEGIES, rank=st.integers(1, 2), damaged=st.booleans())
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
