"""Attacks on claims of an output directory: two at once, and directories that cannot be claimed.

The subject is `reference_trainer.storage.directories`, or has its names.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.file_writes.falsify_directories import claimed, refusal
from falsifiers.support.scratch import scratch
from reference_trainer.errors import OutputError


@given(force=st.booleans(), there=st.booleans())
def falsify_second_claim_is_refused(subject: Any, force: bool, there: bool) -> None:
    with scratch() as directory:
        path = directory / "out"
        if there:
            path.mkdir()
        with claimed(subject, path, force=force):
            said = refusal(subject, path, force=force)
            assert said is not None, "two claims of one directory are granted at the same time"
            assert str(path) in said, f"the second claim is refused without its path: {said}"
        said = refusal(subject, path, force=force)
        assert said is None, f"the first claim has ended, and the next one is refused: {said}"


def _file(path: Path) -> Path:
    path.touch()
    return path


UNFIT: dict[str, Callable[[Path], Path]] = {
    "a file": _file,
    "a path below a file": lambda path: _file(path) / "out",
    "a file system without permission": lambda path: Path("/sys/out"),
    "a directory that is not writable": lambda path: Path("/proc/self"),
}


@given(kind=st.sampled_from(sorted(UNFIT)))
def falsify_unfit_directories_are_refused(subject: Any, kind: str) -> None:
    with scratch() as root:
        path = UNFIT[kind](root / "place")
        before, seen = sorted(root.rglob("*")), None
        try:
            with claimed(subject, path):
                pass
        except OSError as error:
            seen = error
        after = sorted(root.rglob("*"))
    assert isinstance(seen, OutputError) and str(path) in str(seen), f"{kind} is refused with {seen!r}"
    assert after == before, f"{kind} is refused, and these are left: {sorted(set(after) ^ set(before))}"
