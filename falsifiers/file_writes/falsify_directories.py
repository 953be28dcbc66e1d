"""Attacks on the files in an output directory before and after a run has it.

The subject is `reference_trainer.storage.directories`, or has its names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.interruptions import Interrupted
from falsifiers.support.scratch import scratch

USES = ["nothing", "a file", "an exception"]


def claimed(subject: Any, path: Path, *, force: bool = False) -> Any:
    return subject.exclusive_directory(path, force=force, bytes_needed=1)


def refusal(subject: Any, path: Path, *, force: bool = False) -> str | None:
    """Return the message of a refused claim; None if it is granted."""
    try:
        with claimed(subject, path, force=force):
            return None
    except OSError as error:
        return str(error)


@given(other=st.sampled_from(["", ".model.partial", ".x.12.partial.txt"]))
def falsify_stale_partial_files_are_removed(subject: Any, other: str) -> None:
    stale = [".config.json.7.partial", ".model.safetensors.12.partial"]
    with scratch() as directory:
        path = directory / "out"
        path.mkdir()
        for name in [*stale, *filter(None, [other])]:
            (path / name).write_bytes(b"half")
        said = refusal(subject, path)
        left = sorted(p.name for p in path.iterdir()) if path.exists() else []
    expected = sorted([*stale, other]) if other else []
    seen = f"{stale} and {other!r} existed: refused with {said}; files afterwards: {left}"
    assert (said is not None) == bool(other) and left == expected, seen


@given(levels=st.integers(0, 2), made=st.integers(0, 2), use=st.sampled_from(USES))
def falsify_unused_directories_are_removed(subject: Any, levels: int, made: int, use: str) -> None:
    with scratch() as directory:
        path = Path(directory, *"abc"[:levels], "out")
        there = [*reversed(path.parents), path][len(directory.parents) + 1 :][: min(made, levels + 1)]
        for each in there:
            each.mkdir()
        try:
            with claimed(subject, path) as granted:
                if use == "a file":
                    (granted / "result").touch()
                if use == "an exception":
                    raise Interrupted
        except Interrupted:
            pass
        left = sorted(p for p in directory.rglob("*"))
        chain = [p for p in (path, *path.parents) if p.is_relative_to(directory) and p != directory]
        expected = sorted([*chain, path / "result"] if use == "a file" else there)
        assert left == expected, (
            f"with {len(there)} directories there before and {use} put into {path.relative_to(directory)}, "
            f"{[str(p.relative_to(directory)) for p in left]} is left; expected "
            f"{[str(p.relative_to(directory)) for p in expected]}"
        )


def falsify_force_accepts_nonempty_directory(subject: Any) -> None:
    there = "model"
    with scratch() as directory:
        Path(directory, there).write_bytes(b"old")
        said = refusal(subject, directory)
        assert said is not None, f"a directory that holds {there!r} is accepted without --force"
        said = refusal(subject, directory, force=True)
        assert said is None, f"with --force, a directory that holds {there!r} is refused: {said}"
        left = {p.name: p.read_bytes() for p in directory.iterdir()}
        assert left == {there: b"old"}, f"a forced claim of a directory that holds {there!r} left {left}"
