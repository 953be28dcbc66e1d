"""A result is found for the same task until a file that it depends on, or that was opened, changes."""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import SimpleNamespace

import pytest

from pv.engines.engine import Depends
from pv.engines.trial import Counterexample, Output, Reads, Trial, TrialStatus
from pv.results.reuse import opened_files
from pv.results.reuse.cache import FILE, MAX_STATES, ResultCache
from pv.results.reuse.dependencies import LARGE, Source
from pv.results.reuse.environment import differences, environment
from pv.results.reuse.opened_files import OpenedFilesLog
from pv.source.project import find_project
from tests.support.projects import write

TASK = {"kind": "property", "payload": {"examples": 10}}
TRIAL = Trial(
    falsifier="F",
    device="cpu",
    status=TrialStatus.REFUTED,
    mutant="m",
    detail="1 == 2",
    counterexample=Counterexample(arguments={"x": 1}, exact=True, error="AssertionError", frames=("a.py:1",)),
    reached=frozenset({"m:f"}),
    files=frozenset({"code.py", "data.txt"}),
    output=Output(head="said\n"),
)
READS = Reads(loaded={"code": "code.py"}, functions=frozenset({"code:f"}), asked=frozenset({"code"}))
CODE = """# a comment
NUMBER = 1
def f():
    return NUMBER
def g():
    return 2
"""
Begin = Callable[[], ResultCache]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("code.py", CODE), ("data.txt", "1\n")):
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (1_000_000_000, 1_000_000_000))
    time.sleep(0.01)  # a file that changed since the start of a validation is not trusted
    return tmp_path


@pytest.fixture
def begin(folder: Path) -> Iterator[Begin]:
    """Return a function that begins a validation: it opens a cache, which this fixture closes."""
    with ExitStack() as caches:
        yield lambda: caches.enter_context(closing(ResultCache(find_project(folder))))


def lookup(cache: ResultCache) -> Trial | None:
    return cache.lookup(cache.key(TASK))


def store(cache: ResultCache) -> None:
    cache.store(cache.key(TASK), "F", TRIAL, Source(trials=(replace(TRIAL, reads=READS),)))


def stored(begin: Begin) -> ResultCache:
    """Store the result of a task in one validation, and return the cache of the next."""
    with closing(begin()) as first:
        store(first)
    return begin()


def test_pipe_in_the_project_is_not_opened(folder: Path, begin: Begin) -> None:
    os.mkfifo(folder / "pipe")
    assert lookup(stored(begin)) == TRIAL


def test_large_file_that_is_replaced_makes_a_result_stale(folder: Path, begin: Begin) -> None:
    for number in range(2):
        (folder / "new.bin").touch()
        os.truncate(folder / "new.bin", LARGE)
        (folder / "new.bin").replace(folder / "data.txt")
        time.sleep(0.01)
        assert lookup(begin()) is None
        assert lookup(stored(begin)) == TRIAL, number


def test_cache_keeps_the_newest_states_of_a_result(folder: Path, begin: Begin) -> None:
    for number in range(MAX_STATES + 1):
        (folder / "data.txt").write_text(f"{number}\n")
        time.sleep(0.01)
        stored(begin)
    for number in (MAX_STATES, 3):
        (folder / "data.txt").write_text(f"{number}\n")
        assert lookup(begin()) == TRIAL
    (count,) = begin()._tables.run("SELECT count(*) FROM results")
    assert count == (MAX_STATES,)


def test_reused_report_keeps_the_state_of_its_results(folder: Path, begin: Begin) -> None:
    stored_states = []
    for number in range(1, MAX_STATES + 2):
        for state in (number, 0):
            (folder / "data.txt").write_text(f"{state}\n")
            cache = begin()
            key = cache.report_key("all")
            if cache.lookup_report(key) is None:
                stored_states.append(state)
                time.sleep(0.01)
                stored(begin)
                cache.store_report(key, "", cache._started)
    assert stored_states.count(0) == 1
    assert lookup(begin()) == TRIAL


STEPPED = replace(
    READS,
    listed=frozenset({"listed"}),
    metadata=frozenset({"site", "new"}),
    searched={"searched": frozenset({"mod", "folder"})},
    looked=frozenset({"probed.txt", "data/probed", "data", "code.py"}),
)
UNSURE = replace(READS, unsure="it was killed")
DOCUMENTED = CODE.replace("def g():\n", 'def g():\n    "what g is"\n')
EDITS = [
    (READS, "code.py", CODE.replace("# a comment", "# another"), True),
    (READS, "code.py", CODE.replace("return 2", "return 3"), True),
    (READS, "code.py", CODE.replace("return NUMBER", "return -NUMBER"), False),
    (READS, "code.py", CODE.replace("NUMBER = 1", "NUMBER = 2"), False),
    (replace(READS, texts=frozenset({"code.py"})), "code.py", CODE.replace("# a", "# b"), False),
    (READS, "code.py", DOCUMENTED, True),
    (replace(READS, readers=frozenset({"click"})), "code.py", DOCUMENTED, False),
    (READS, "code/__init__.py", CODE, False),
    (READS, "data.txt", "2\n", False),
    (READS, "other.txt", "2\n", True),
    (STEPPED, "listed/new.txt", "", False),
    (STEPPED, "listed/new.pyc", "", True),
    (STEPPED, "listed/.cache/new.txt", "", True),
    (STEPPED, "site/tiny.dist-info", "", False),
    (STEPPED, "site/tiny.py", "", True),
    (STEPPED, "searched/mod.py", "", False),
    (STEPPED, "searched/mod/__init__.py", "", False),
    (STEPPED, "searched/mod/data.txt", "", False),
    (STEPPED, "searched/folder/__init__.py", "", False),
    (STEPPED, "searched/folder/data.txt", "", True),
    (STEPPED, "searched/other.py", "", True),
    (STEPPED, "searched/other/__init__.py", "", True),
    (STEPPED, "probed.txt", "longer", False),
    (STEPPED, "data/probed", "", False),
    (STEPPED, "data/other", "", True),
    (STEPPED, "code.py", CODE.replace("# a comment", "# a longer comment"), True),
    (STEPPED, "new/tiny.dist-info", "", False),
    (STEPPED, f"searched/mod{EXTENSION_SUFFIXES[0]}", "", False),
    (UNSURE, "other.txt", "2\n", False),
    (UNSURE, "empty/new.pyc", "", False),
    (UNSURE, "__pycache__/new.pyc", "", True),
    (UNSURE, ".cache/new.txt", "", True),
    (UNSURE, "evidence/c.cuda.json", "", True),
    (None, "other.txt", "2\n", False),
]


@pytest.mark.parametrize(("reads", "name", "text", "is_found"), EDITS, ids=[f"{name} {t}" for _, name, t, _ in EDITS])
def test_a_result_is_found_while_what_its_worker_used_is_the_same(
    folder: Path, begin: Begin, reads: Reads | None, name: str, text: str, is_found: bool
) -> None:
    files = dict.fromkeys(("listed/a", "site/a", "searched/a", "data/a", "empty/a", "evidence/a", "other.txt"), "1\n")
    files["searched/folder/a"] = "1\n"
    write(folder, files | {"probed.txt": "short", ".cache/.gitignore": "*\n", "__pycache__/a.pyc": ""})
    time.sleep(0.01)
    with closing(begin()) as first:
        first.store(first.key(TASK), "F", TRIAL, Source(trials=(replace(TRIAL, reads=reads),)))
    assert lookup(begin()) == TRIAL
    write(folder, {name: text})
    assert (lookup(begin()) == TRIAL) == is_found


@pytest.mark.parametrize("depends_on", Depends)
def test_an_engine_that_depends_on_whole_modules_is_asked_again_after_a_change_of_any_function(
    folder: Path, begin: Begin, depends_on: Depends
) -> None:
    with closing(begin()) as first:
        source = Source(trials=(replace(TRIAL, reads=READS),), depends_on=depends_on)
        first.store(first.key(TASK), "F", TRIAL, source)
    write(folder, {"code.py": CODE.replace("return 2", "return 3")})
    assert (lookup(begin()) is None) == (depends_on is Depends.MODULES)


def test_version_and_entry_points_of_a_package_are_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    seen = []
    for version, text in (("1", "[a]"), ("1", "[b]"), ("2", "[b]")):
        write(tmp_path, {f"tiny-{version}.dist-info/entry_points.txt": text})
        seen.append(environment())
    assert differences(seen[0], seen[1]) == differences(seen[1], seen[2]) == ["package tiny"]


def test_result_that_is_not_accepted_is_not_found(begin: Begin) -> None:
    cache = stored(begin)
    assert cache.lookup(cache.key(TASK), lambda trial: trial.status is TrialStatus.HELD) is None
    assert cache.hits == 0


def test_files_of_killed_mutants_of_older_versions_are_removed(folder: Path, begin: Begin) -> None:
    write(folder, {".pv_cache/mutants/shop.json": "{}"})
    with closing(sqlite3.connect(folder / FILE)) as database:
        database.execute("PRAGMA user_version = 6")
    assert lookup(stored(begin)) == TRIAL
    assert not (folder / ".pv_cache/mutants").exists()


@pytest.mark.parametrize(
    ("name", "reads", "is_stored"),
    [("code.py", READS, False), ("data.txt", READS, False), ("other.txt", READS, True), ("other.txt", UNSURE, False)],
)
def test_result_is_not_stored_if_a_file_changed_while_the_validation_ran(
    folder: Path, begin: Begin, name: str, reads: Reads, is_stored: bool
) -> None:
    first = begin()
    (folder / name).write_text("2\n")
    first.store(first.key(TASK), "F", TRIAL, Source(trials=(replace(TRIAL, reads=reads),)))
    assert (lookup(first) == TRIAL) == is_stored


@pytest.mark.parametrize("variable", ["MY_OPTION", "OMP_NUM_THREADS"])
def test_result_is_not_reused_if_an_environment_variable_changed(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    stored(begin)
    monkeypatch.setenv(variable, "7")
    again = begin()
    assert lookup(again) is None
    newest = again.newest("F")
    assert newest is not None and (newest.environment, newest.changed) == ([f"variable {variable}"], [])


def test_variables_of_terminals_and_ci_are_ignored(folder: Path, begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(begin)
    for name in ("GITHUB_SHA", "CI_JOB_ID", "BUILD_NUMBER", "TERM", "TMUX_PANE", "PYTEST_XDIST_WORKER"):
        monkeypatch.setenv(name, "another")
    monkeypatch.setenv("TMPDIR", str(folder))
    assert lookup(begin()) == TRIAL


def test_result_is_deleted_after_thirty_days(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(begin)
    now = begin()._started / 1e9
    monkeypatch.setattr("time.time", lambda: now + 29 * 86_400)
    assert lookup(begin()) == TRIAL
    monkeypatch.setattr("time.time", lambda: now + 31 * 86_400)
    forgotten = begin()
    assert lookup(forgotten) is None
    assert forgotten._outside_dependencies() == []


def test_damaged_row_is_reported_and_not_reused(begin: Begin) -> None:
    again = stored(begin)
    again._tables.run("UPDATE results SET trial = ?", b"damaged")
    assert lookup(again) is None
    assert "is damaged" in again.problem


def test_damaged_file_is_reported_and_nothing_is_stored(folder: Path, begin: Begin) -> None:
    (folder / FILE).parent.mkdir()
    (folder / FILE).write_text("no database\n" * 100)
    broken = stored(begin)
    assert lookup(broken) is None
    assert broken.problem == f"no result is reused or stored: {folder / FILE}: file is not a database; delete the file"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write(tmp_path, dict.fromkeys(("data/one.txt", "data/two.txt", "three.txt", ".hidden/four.txt"), "1\n"))
    return tmp_path


@pytest.fixture
def log(tree: Path) -> Iterator[OpenedFilesLog]:
    with closing(OpenedFilesLog(find_project(tree))) as log:
        yield log


def test_file_that_was_only_written_does_not_count_as_opened(tree: Path, log: OpenedFilesLog) -> None:
    with (tree / "three.txt").open("a") as file:
        file.write("2\n")
    (tree / "data/new.txt").write_text("2\n")
    assert log.opened_since() == set()


def test_file_counts_for_the_tasks_that_ran_when_it_was_opened(tree: Path, log: OpenedFilesLog) -> None:
    (tree / "three.txt").read_text()  # no task runs: libraries of all tasks may have read it
    log.begin("first")
    log.begin("beside")
    (tree / "data/one.txt").read_text()
    first = log.opened_since(log.end("first"))
    log.begin("last")
    (tree / "data/two.txt").read_text()
    last, beside = log.opened_since(log.end("last")), log.opened_since(log.end("beside"))
    assert first == {"three.txt", "data/one.txt"}
    assert last == {"three.txt", "data/two.txt"}
    assert beside == log.opened_since() == {"three.txt", "data/one.txt", "data/two.txt"}


def test_file_counts_for_all_tasks_if_a_task_begins_again(tree: Path, log: OpenedFilesLog) -> None:
    log.begin("lost")
    (tree / "data/one.txt").read_text()
    log.begin("lost")
    log.end("lost")
    log.begin("next")
    assert log.opened_since(log.end("next")) == {"data/one.txt"}


@pytest.mark.parametrize("libc", [SimpleNamespace(inotify_init1=lambda flags: -1), SimpleNamespace()])
def test_every_file_counts_as_opened_without_inotify(tree: Path, monkeypatch: pytest.MonkeyPatch, libc: object) -> None:
    monkeypatch.setattr(opened_files, "_libc", libc)
    log = OpenedFilesLog(find_project(tree))
    assert log.opened_since() == {
        ".hidden/four.txt",
        "data/one.txt",
        "data/two.txt",
        "three.txt",
    }
