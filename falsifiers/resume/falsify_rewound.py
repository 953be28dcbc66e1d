"""Attacks on runs that go on from an earlier step. The subject is `pipeline.distill`, or has its names."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.resume.runs import STEPS, assert_same_end, ended, settings
from falsifiers.support.scratch import scratch
from falsifiers.support.small_runs import found
from reference_trainer import CheckpointError
from reference_trainer.storage.checkpoint_files import read_checkpoint, saved_steps


@given(step=st.none() | st.integers(1, STEPS), limit=st.integers(2, STEPS))
def falsify_rewound_run_ends_like_the_straight_one(subject: Any, step: int | None, limit: int) -> None:
    with scratch() as directory:
        start = None if step is None else min(step, limit)
        straight = ended(subject, settings(directory, "straight", keep=0))
        ended(subject, settings(directory, "cut", max_steps=limit, keep=0))
        place = directory / "cut" / "checkpoints"
        later = found(place)
        resume = {} if start is None else {"resume": place / f"student-step{start}"}
        cut = ended(subject, settings(directory, "cut", rewind=True, force=True, keep=0, **resume))
        when = f"rewound from {limit} to {start}"
        assert_same_end(when, directory, ("cut", cut), ("straight", straight))
        assert saved_steps(place, "student") == list(range(1, STEPS + 1)), f"{when}: {saved_steps(place, 'student')}"
        aside = place / "student-rewound-1"
        expected = list(range((start or 0) + 1, limit + 1))
        assert saved_steps(aside, "student") == expected, f"{when}, {saved_steps(aside, 'student')} are set aside"
        for each in expected:
            read_checkpoint(aside / f"student-step{each}")
        moved = {name: content for name, content in found(aside).items() if "/" in name}
        assert moved.items() <= later.items(), f"{when}, files were changed when they were set aside"


def _damage(place: Path) -> None:
    (place / "student-step1" / "rank-00000.safetensors").write_bytes(b"")


CASES: dict[str, tuple[Callable[[Path], object], dict[str, Any], str]] = {
    "another seed": (lambda place: None, {"seed": 5}, "seed was 0 and is 5"),
    "a missing step": (lambda place: shutil.rmtree(place / "student-step1"), {}, "student-step1"),
    "a damaged step": (_damage, {}, "student-step1"),
}


def falsify_refused_rewind_moves_nothing(subject: Any) -> None:
    for kind, (change, others, words) in CASES.items():
        with scratch() as directory:
            ended(subject, settings(directory, "out", max_steps=3, keep=0))
            place = directory / "out" / "checkpoints"
            change(place)
            before, said = found(directory), ""
            chosen = settings(
                directory, "out", resume=place / "student-step1", rewind=True, force=True, keep=0, **others
            )
            try:
                ended(subject, chosen)
            except (CheckpointError, OSError) as error:
                said = str(error)
            assert words in said, f"{kind}: the run ends with {said!r}; expected a refusal with {words!r}"
            changed = sorted(set(before.items()) ^ set(found(directory).items()))
            assert not changed, f"{kind}: the run was refused, and changed {changed}"
