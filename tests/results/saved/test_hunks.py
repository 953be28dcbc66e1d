"""The changed lines are those of `git diff`, whatever the lines themselves look like."""

import subprocess
from pathlib import Path

import pytest

from pv.results.saved.hunks import Hunk, changed, line_now, parse

OLD = "one\n-- two\nthree\nfour\n"
NEW = "one\n++ 2\n@@ -1 +1 @@\nthree\n"


@pytest.fixture
def hunks(tmp_path: Path) -> dict[str, tuple[Hunk, ...]]:
    for name, text in (("old", OLD), ("new", NEW)):
        (tmp_path / name).write_text(text)
    words = ["git", "diff", "--no-index", "--unified=0", "--no-prefix", "old", "new"]
    return parse(subprocess.run(words, cwd=tmp_path, capture_output=True, text=True).stdout)


def test_hunks_are_read_by_their_counts(hunks: dict[str, tuple[Hunk, ...]]) -> None:
    first, second = hunks["new"]
    assert first == Hunk(old=2, removed=1, new=2, added=2)
    assert second == Hunk(old=4, removed=1, new=4, added=0)


def test_a_function_is_met_by_the_lines_that_changed_in_it(hunks: dict[str, tuple[Hunk, ...]]) -> None:
    assert list(changed(hunks, "new", 3, 4)) == [3, 4]
    assert list(changed(hunks, "new", 1, 1)) == list(changed(hunks, "other", 1, 9)) == []


def test_a_removed_line_is_found_where_it_was(hunks: dict[str, tuple[Hunk, ...]]) -> None:
    assert [line_now(hunks, "new", line) for line in (1, 2, 3, 4)] == [None, 2, None, 4]
