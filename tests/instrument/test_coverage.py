"""What a run and the processes that it started reached is noted, and when they may have done more."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pv.instrument.import_hook import ImportHook, Plan
from pv.instrument.process_trace import SETS, entries, trace_of
from tests.instrument.programs import SUBJECT, edit, ran, swap, value


def log_of(folder: Path, plan: Plan) -> tuple[frozenset[str], bool]:
    """What the parent reads once its children have ended; nothing was reached in the parent itself."""
    trace = trace_of(entries(plan.log))
    return trace.seen, trace.applied


def logged(folder: Path, **fields: Any) -> Plan:
    return edit("double", "2", "3", log=str(folder / "log.jsonl"), root=str(folder), covered=("subject",), **fields)


def test_a_probe_notes_each_function_that_ran_and_no_other(folder: Path) -> None:
    plan = logged(folder)
    program = "import subject\nlist(subject.lines(2)), subject.Counter().next, subject.decorated(1)\nshow(0)"
    assert value(plan, folder, program) == 0
    names = ("scaled", "scaled.inner", "default", "decorated", "double", "lines", "Counter.next")
    assert log_of(folder, plan) == ({f"subject:{name}" for name in names}, True)


@pytest.mark.parametrize(
    ("plan", "says"), [(swap("treble", "other:triple"), "subject has no 'treble'"), (edit("double", "2", "3"), "")]
)
def test_a_child_notes_that_a_mutant_could_not_be_planted(plan: Plan, says: str, folder: Path) -> None:
    plan = replace(plan, log=str(folder / "log.jsonl"), root=str(folder))
    ran(plan, folder, "-c", "import subject")
    trace = trace_of(entries(plan.log))
    assert (trace.broken, trace.applied) == (says, says == "")


def test_the_notes_of_children_that_end_together_stay_whole(folder: Path) -> None:
    many = "".join(f"def a_function_with_a_long_name_{k:04}():\n    pass\n" for k in range(1000))
    (folder / "subject.py").write_text(SUBJECT.partition("if __name__")[0] + many, encoding="utf-8")
    plan = logged(folder)
    program = (
        "import os, subject\n"
        "for function in list(vars(subject).values()):\n"
        "    if getattr(function, '__name__', '').startswith('a_function'):\n        function()\n"
        "children = []\n"
        "for _ in range(20):\n"
        "    children.append(os.fork())\n"
        "    if not children[-1]:\n        os._exit(0)\n"
        "for child in children:\n    os.waitpid(child, 0)\n"
        "show(0)"
    )
    assert value(plan, folder, program) == 0
    assert len(log_of(folder, plan)[0]) > 1000


def test_a_swap_is_probed_under_its_own_name(folder: Path) -> None:
    plan = swap("double", "other:triple", log=str(folder / "log.jsonl"), root=str(folder), covered=("subject", "other"))
    value(plan, folder, "import subject\nshow(subject.double(2))")
    seen, applied = log_of(folder, plan)
    assert ("other:triple" in seen, "subject:double" in seen, applied) == (True, False, True)
    assert ImportHook(plan).mutated_name == "other:triple"


START = "import os, subprocess, sys, subject\n{code}\nif __name__ == '__main__':\n    show(0)"
CHILD = "subprocess.run([sys.executable, '-c', 'import subject; subject.double(1)'])"
WAITS = "[sys.executable, '-c', 'import sys; sys.stdin.read()'], stdin=subprocess.PIPE"
KILLED = f"child = subprocess.Popen({WAITS})\nchild.kill()\nchild.wait()"
KILLS_ITSELF = "pid = os.fork()\nif pid == 0:\n    subject.double(1)\n    os.kill(os.getpid(), 9)\nos.waitpid(pid, 0)"
FORK = "pid = os.fork()\nif pid == 0:\n    subject.double(1)\n    os._exit(0)\nos.waitpid(pid, 0)"
SPAWN = """
import multiprocessing
if __name__ == '__main__':
    child = multiprocessing.get_context('spawn').Process(target=subject.double, args=(1,))
    child.start()
    child.join()
"""


def plan_of(folder: Path) -> Plan:
    return Plan(covered=("subject",), packages=("subject", "absent"), root=str(folder), log=str(folder / "log.jsonl"))


@pytest.mark.parametrize(
    ("code", "reached", "unsure"),
    [
        ("", False, ""),
        (CHILD, True, ""),
        (FORK, True, ""),
        (SPAWN, True, ""),
        (KILLS_ITSELF, True, ""),
        (KILLED, False, "a process that it started was killed, or is not Python"),
        ("subprocess.run(['true'])", False, "it started true"),
        ("os.system('true')", False, "it started os.system"),
    ],
)
def test_processes_tell_what_they_reached_or_are_noticed(folder: Path, code: str, reached: bool, unsure: str) -> None:
    """The program is a child itself: the worker has started it."""
    plan = plan_of(folder)
    assert value(plan, folder, START.format(code=code)) == 0
    records = entries(plan.log)
    worker = {**next(entry for entry in records if "seen" in entry and entry["id"] == records[0]["id"]), "id": ""}
    rest = [entry for entry in records if entry["id"] != records[0]["id"]]
    trace = trace_of([worker, *rest])
    assert ("subject:double" in trace.seen, trace.unsure) == (reached, unsure)


def test_modules_that_were_loaded_or_asked_for_are_named(folder: Path) -> None:
    plan = plan_of(folder)
    assert value(plan, folder, START.format(code="try:\n    import absent\nexcept ImportError:\n    pass")) == 0
    trace = trace_of(entries(plan.log))
    assert trace.loaded == {"subject": str(folder / "subject.py")}
    assert trace.asked == {"subject", "absent"}


def end(id_: str, **fields: Any) -> dict[str, Any]:
    usual = {"loaded": {}, "searched": {}, "applied": False, "broken": "", "started": 0, "foreign": ""}
    return {"id": id_, **dict.fromkeys(SETS, ()), **usual, **fields}


def test_traces_of_a_process_and_its_children_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pv.instrument.process_trace.at_import", {"m:at_import"})
    parent = end("", started=2, searched={"a": ["x"]}, files=["f"])
    children = [
        end("1", seen=["m:early"]),
        end("1", seen=["m:f"], searched={"a": ["y"], "b": ["z"]}, loaded={"m": "m.py"}, broken="why"),
        end("2", ran=["m:g"], applied=True, files=["h"]),
    ]
    trace = trace_of([parent, {"id": "1"}, {"id": "2"}, *children])
    assert (trace.seen, trace.ran, trace.files) == ({"m:f", "m:at_import"}, {"m:g", "m:at_import"}, {"f", "h"})
    assert (trace.searched, trace.loaded) == ({"a": {"x", "y"}, "b": {"z"}}, {"m": "m.py"})
    assert (trace.applied, trace.broken, trace.unsure) == (True, "why", "")
    alone = trace_of([parent, {"id": "1"}])
    assert (alone.seen, alone.unsure) == (set(), "a process that it started was killed, or is not Python")
    assert trace_of([{**parent, "started": 3}, {"id": "1"}, {"id": "2"}, *children]).unsure == alone.unsure
    assert trace_of([{**parent, "started": 1}, {"id": "1"}]).unsure == alone.unsure
    assert trace_of([end("", foreign="true")]).unsure == "it started true"
