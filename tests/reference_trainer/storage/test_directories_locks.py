"""The lock of an output directory, where locking fails and where the directory is removed meanwhile."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from reference_trainer.errors import OutputError
from tests.reference_trainer.storage.test_directories import claimed, refusal


@settings(max_examples=9, deadline=None)
@given(
    number=st.sampled_from([errno.ENOLCK, errno.ENOTSUP, errno.EWOULDBLOCK]), came=st.sampled_from(["", "new", "out"])
)
def test_files_of_others_are_kept(number: int, came: str) -> None:
    """A claim that cannot lock removes the directories that it created, except those that contain a file by then.

    Nor does it remove those locked by another run, which may not have written its first file yet.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "new", "out")
        file = next((Path(p, "another's") for p in (path, path.parent) if p.name == came), None)

        def locked(*arguments: int) -> None:
            if file:
                file.touch()
            raise OSError(number, os.strerror(number))

        said = refusal(path, flock=locked)
        left = [str(p.relative_to(directory)) for p in sorted(Path(directory).rglob("*"))]
    kept = path if number == errno.EWOULDBLOCK else file
    expected = sorted({*_beneath(directory, kept), *_beneath(directory, file)})
    case = f"where locking fails with {os.strerror(number)!r} and {came or 'no directory'} contains a file"
    assert said is not None and str(path) in said, f"{case}, the claim is refused with {said}"
    assert left == expected, f"{case}, {left} are left; expected {expected}"


def _beneath(directory: str, path: Path | None) -> list[str]:
    """Return the path and its parents below `directory`."""
    parts = path.relative_to(directory).parts if path else ()
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]


@settings(max_examples=9, deadline=None)
@given(third=st.booleans())
def test_removed_directory_is_not_claimed(third: bool) -> None:
    """A run removes its directory on exit, between another run's check and lock: the other is refused.

    Its lock is on a directory without a name; a third run may have created and locked a new one.
    """
    with tempfile.TemporaryDirectory() as directory, ExitStack() as first, ExitStack() as last:
        path = Path(directory, "new", "out")
        first.enter_context(claimed(path))

        def locked(*arguments: int) -> None:
            first.close()
            if third:
                last.enter_context(claimed(path))
            fcntl.flock(*arguments)

        seen: OSError | None = None
        try:
            with claimed(path, flock=locked):
                pass
        except OSError as error:
            seen = error
        there = path.is_dir()
    case = f"the directory was removed before it was locked{', and created again by a third run' if third else ''}"
    assert seen is not None, f"{case}: the claim is granted"
    assert type(seen) is OutputError and "start again" in str(seen), f"{case}: refused with {seen!r}"
    assert there == third, f"{case}: afterwards it {'exists' if there else 'does not exist'}"
