"""Attacks on how a claim locks its directory. The subject is `reference_trainer.files`, or has its names."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.falsify_claims import claimed, refusal


@given(
    number=st.sampled_from([errno.ENOLCK, errno.ENOTSUP, errno.EWOULDBLOCK]), came=st.sampled_from(["", "new", "out"])
)
def falsify_what_others_put_into_a_folder_stays(subject: Any, number: int, came: str) -> None:
    """A claim that can't lock removes the folders that it made, but none into which a file has come meanwhile.

    Nor any that another run has locked: that one may not have put its first file there.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "new", "out")
        file = next((Path(p, "another's") for p in (path, path.parent) if p.name == came), None)

        def locked(*arguments: int) -> None:
            if file:
                file.touch()
            raise OSError(number, os.strerror(number))

        with mock.patch.object(fcntl, "flock", locked):
            said = refusal(subject, path)
        left = [str(p.relative_to(directory)) for p in sorted(Path(directory).rglob("*"))]
    kept = path if number == errno.EWOULDBLOCK else file
    expected = sorted({*_beneath(directory, kept), *_beneath(directory, file)})
    case = f"where locking fails with {os.strerror(number)!r} and {came or 'no folder'} has got a file"
    assert said is not None and str(path) in said, f"{case}, the claim is refused with {said}"
    assert left == expected, f"{case}, {left} are left; expected {expected}"


def _beneath(directory: str, path: Path | None) -> list[str]:
    """The path and the folders that it needs."""
    parts = path.relative_to(directory).parts if path else ()
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]


@given(third=st.booleans())
def falsify_a_removed_directory_is_not_claimed(subject: Any, third: bool) -> None:
    """A run that leaves removes its directory between another's look and its lock: the other is refused.

    The lock is on what has no name any more; a third run may have made the place anew, and has it.
    """
    really = fcntl.flock
    with tempfile.TemporaryDirectory() as directory, ExitStack() as first, ExitStack() as last:
        path = Path(directory, "new", "out")
        first.enter_context(claimed(subject, path))

        def locked(*arguments: int) -> None:
            mock.patch.stopall()
            first.close()
            if third:
                last.enter_context(claimed(subject, path))
            really(*arguments)

        mock.patch.object(fcntl, "flock", locked).start()
        seen: OSError | None = None
        try:
            with claimed(subject, path):
                pass
        except OSError as error:
            seen = error
        finally:
            mock.patch.stopall()
        there = path.is_dir()
    case = f"its run removed a directory before it was locked{', and a third has made it anew' if third else ''}"
    assert seen is not None, f"{case}: it is claimed all the same"
    assert type(seen) is subject.OutputError and "start again" in str(seen), f"{case}: refused with {seen!r}"
    assert there == third, f"{case}: afterwards it is {'there' if there else 'gone'}"
