"""Attacks on paths in a manifest. The subject is `pipeline.distill`, or has its name."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.small_runs import run, small

NOT_UTF_8 = [b"\xff", b"caf\xe9", b"%FF\xff \\xff", b"\xed\xa0\x80", b"\xf0\x9f"]
"""Latin-1, an encoded surrogate, a character cut off, and one beside what looks like its own escape."""


@given(part=st.sampled_from(["data", "out", "teacher_cache", "trace"]), name=st.sampled_from(NOT_UTF_8))
def falsify_manifest_holds_paths_that_are_not_utf_8(subject: Any, part: str, name: bytes) -> None:
    """The run writes its model, and the manifest is Unicode JSON from which the bytes of the path can be read back.

    A path of ordinary characters stays a string, so that the two forms cannot be confused.
    """
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(os.fsdecode(os.fsencode(temporary) + b"/" + name))
        settings = small(Path(temporary), **{"out": Path(temporary, "out"), part: path})
        if part == "data":
            Path(temporary, "text").rename(path)
        run(subject, settings)
        text = (settings.out / "manifest.json").read_bytes().decode("utf-8")
        written = json.loads(text)["settings"]
    try:
        json.dumps(written, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise AssertionError(f"the manifest holds characters that are not Unicode: {written[part]!r}") from error
    seen, expected = written[part], {"percent_encoded": quote_from_bytes(os.fsencode(path))}
    assert seen == expected, f"for the {part} path {os.fsencode(path)!r} the manifest has {seen!r}; expected {expected}"
    others = {each: written[each] for each in ("data", "out", "teacher_cache") if each != part}
    expected_others = {each: str(getattr(settings, each)) for each in others}
    assert others == expected_others, f"the manifest has {others} for the other paths; expected {expected_others}"
