"""Options of the form NAME=VALUE, and reports that are written to files."""

import gc
from pathlib import Path

import pytest

from pv.commands import terminal
from pv.errors import UsageError


def test_pairs_are_split_at_the_first_sign() -> None:
    assert terminal.pairs(["a=m:f", "b=n"]) == {"a": "m:f", "b": "n"}
    for wrong in ("a", "a=", "=m"):
        with pytest.raises(UsageError, match="write it as CONTRACT=module"):
            terminal.pairs([wrong])


def test_output_has_a_known_format_and_an_existing_folder(tmp_path: Path) -> None:
    assert terminal.output(f"json={tmp_path}/a=b", ["json"]) == ("json", tmp_path / "a=b")
    with pytest.raises(UsageError, match=r"unknown format 'xml' \(choose from json, text\)"):
        terminal.output("xml=a", ["json", "text"])
    with pytest.raises(UsageError, match="there is no folder"):
        terminal.output(f"json={tmp_path}/no/a", ["json"])
    with pytest.raises(UsageError, match="write it as FORMAT=FILE"):
        terminal.output("json=", ["json"])


def test_report_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    terminal.write(tmp_path / "a", "é")
    assert (tmp_path / "a").read_bytes() == "é".encode()
    with pytest.raises(UsageError, match="cannot write the report to"):
        terminal.write(tmp_path, "text")


def test_garbage_collection_resumes_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "freeze", lambda: None)
    with pytest.raises(RuntimeError), terminal.uncollected():
        assert not gc.isenabled()
        raise RuntimeError
    assert gc.isenabled()


def test_the_folder_is_named_from_the_root_of_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    assert terminal.folder() == "a/b"
    for elsewhere in (tmp_path / "a" / "b", tmp_path / "c"):
        monkeypatch.setenv("GITHUB_WORKSPACE", str(elsewhere))
        assert terminal.folder() == ""
    monkeypatch.delenv("GITHUB_WORKSPACE")
    assert terminal.folder() == ""


def test_color_is_for_terminals_only() -> None:
    assert terminal.screen()["color"] is False
