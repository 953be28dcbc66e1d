"""What processes leave for their worker, and when it is said that they may have done more."""

from pathlib import Path

import pytest

from pv.instrument.import_hook import Plan
from pv.instrument.processes import entries, gather
from tests.instrument.programs import value

START = "import os, subprocess, sys, subject\n{code}\nif __name__ == '__main__':\n    show(0)"
CHILD = "subprocess.run([sys.executable, '-c', 'import subject; subject.double(1)'])"
KILLED = "subprocess.run([sys.executable, '-c', 'import os, signal; os.kill(os.getpid(), signal.SIGKILL)'])"
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
    ("code", "unsure"),
    [
        ("", ""),
        (CHILD, ""),
        (FORK, ""),
        (SPAWN, ""),
        (KILLED, "a process that it started was killed, or is no Python"),
        ("subprocess.run(['true'])", "it started true"),
        ("os.system('true')", "it started os.system"),
    ],
)
def test_processes_that_tell_nothing_are_noticed(folder: Path, code: str, unsure: str) -> None:
    """The program is a child itself: its own start is that of the worker."""
    plan = plan_of(folder)
    assert value(plan, folder, START.format(code=code)) == 0
    found = entries(plan.log)
    worker = {**next(entry for entry in found if "seen" in entry and entry["id"] == found[0]["id"]), "id": ""}
    rest = [entry for entry in found if entry["id"] != found[0]["id"]]
    assert gather([worker, *rest]).unsure == unsure


def test_modules_that_were_loaded_or_asked_for_are_named(folder: Path) -> None:
    plan = plan_of(folder)
    assert value(plan, folder, START.format(code="try:\n    import absent\nexcept ImportError:\n    pass")) == 0
    found = gather(entries(plan.log))
    assert found.loaded == {"subject": str(folder / "subject.py")}
    assert found.asked == {"subject", "absent"}
