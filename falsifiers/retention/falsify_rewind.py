"""Attacks on drifts and on setting checkpoints aside. Subjects: `storage.retention` and `storage.rewinding`."""

import itertools
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.checkpoint_files.saved import RUN, assert_same, manifest, names, place, tensors
from falsifiers.support.interruptions import ended_before
from reference_trainer.storage.checkpoints import read_checkpoint, save_checkpoint, saved_steps
from reference_trainer.storage.retention import checkpoint_name

OTHER = "ab"
"""A run whose checkpoints the id of the other one matches as a pattern."""


def _whole(directory: Path, when: str) -> list[int]:
    """Return the steps of the checkpoints in `directory`, after asserting that each is as it was saved."""
    steps = saved_steps(directory, RUN)
    for step in steps:
        read = read_checkpoint(directory / checkpoint_name(RUN, step))
        assert_same(f"{when}, step {step}", read.tensors, tensors(step))
    return steps


@given(
    steps=st.sets(st.integers(1, 12), min_size=1, max_size=4), start=st.none() | st.integers(0, 12), again=st.booleans()
)
@example(steps={2, 5, 9}, start=5, again=True)
def falsify_later_checkpoints_are_set_aside(subject: Any, steps: set[int], start: int | None, again: bool) -> None:
    best: dict[int, int] = {}
    with place() as directory:
        for number, step in enumerate(sorted(steps)):  # every second one is better than those before
            best[step] = step if number % 2 == 0 else max(best.values())
            save_checkpoint(directory, manifest(step, best=best[step]), tensors(step))
        save_checkpoint(directory, manifest(11, run=OTHER), tensors(11))
        (directory / f"{RUN}-step9.note").touch()
        when = f"rewound to {start} from {sorted(steps)}"
        later = sorted(step for step in steps if start is None or step > start)
        stays = sorted(steps - {*later})
        aside = subject.rewind(directory, RUN, start)
        assert _whole(directory, when) == stays, f"{when}, {saved_steps(directory, RUN)} are left; expected {stays}"
        for name, left in (("latest", stays[-1:]), ("best", [best[step] for step in stays[-1:]])):
            link = directory / f"{RUN}-{name}"
            seen = [link.resolve().name] if link.is_symlink() else []
            wanted = [checkpoint_name(RUN, step) for step in left]
            assert seen == wanted, f"{when}, {link.name} refers to {seen}; expected {wanted}, of its manifest"
        assert saved_steps(directory, OTHER) == [11], f"{when}, the checkpoint of another run is gone"
        assert (directory / f"{RUN}-step9.note").exists(), f"{when}, a file that is no checkpoint is gone"
        if not later:
            assert aside is None, f"{when}, {aside} is returned although nothing is later"
            return
        assert aside == directory / f"{RUN}-rewound-1", f"{when}, {aside} is returned"
        assert _whole(aside, when) == later, f"{when}, {names(aside)} are set aside; expected the steps {later}"
        assert subject.rewind(directory, RUN, start) is None, f"{when}, a second rewind finds something"
        if again:
            save_checkpoint(directory, manifest(later[-1]), tensors(later[-1]))
            second = subject.rewind(directory, RUN, start)
            assert _whole(second, when) == later[-1:] and _whole(aside, when) == later, f"{when}, then again: {second}"


def falsify_killed_rewind_is_completed(subject: Any) -> None:
    for moment in itertools.count(1):
        with place(1, 2, 3) as directory:
            ended = ended_before(moment, directory, partial(subject.rewind, directory, RUN, 1))
            assert ended in ("killed", "done"), f"killed before operation {moment}, the rewind ended with {ended}"
            asides = [path for path in directory.iterdir() if "-rewound-" in path.name]
            when = f"killed before operation {moment}"
            seen = sorted(step for folder in (directory, *asides) for step in _whole(folder, when))
            assert seen == [1, 2, 3], f"{when}, the checkpoints {seen} are there"
            again = subject.rewind(directory, RUN, 1)
            assert _whole(directory, when) == [1], f"{when}, then rewound: {saved_steps(directory, RUN)} are left"
            moved = sorted(step for folder in {*asides, *([again] if again else [])} for step in _whole(folder, when))
            assert moved == [2, 3], f"{when}, then rewound: {moved} are set aside; expected 2 and 3"
            if ended == "done":
                assert moment > 2, "the rewind of two checkpoints was killed before one operation only"
                return
