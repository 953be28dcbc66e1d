"""Subject and test are imported once for many tasks, unless their import does what a fork cannot inherit."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pv.instrument.import_hook import Plan
from pv.workers.pool import Pool
from pv.workers.running_task import Reply, Task
from pv.workers.tasks import ALWAYS_LOADED, MEMORY_MIB, Body
from tests.support.projects import write

SHAREABLE = {
    "plain": "calls = []\ndef double(number):\n    return number * 2\n",
    "reads": "import pathlib\nTEXT = pathlib.Path(__file__).read_text()\nSTATE = {}\n",
}
NOT_SHAREABLE = {
    "prints": "print('loaded')\n",
    "opens": "import os\nfile = open(os.devnull)\n",
    "writes": "import pathlib\npathlib.Path('written').write_text('x')\n",
    "starts_thread": "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n",
    "seeds": "import random\nrandom.seed(1)\n",
    "makes_generator": "import random\nrandom_numbers = random.Random()\n",
    "asks_pid": "import os\nPID = os.getpid()\n",
    "asks_temporary_folder": "import tempfile\nFOLDER = tempfile.gettempdir()\n",
    "handles_signal": "import signal\nsignal.signal(signal.SIGUSR1, signal.SIG_IGN)\n",
    "starts_process": "import subprocess\nsubprocess.run(['true'])\n",
    "opens_socket": "import socket\nsocket.socket().close()\n",
    "changes_folder": "import os\nos.chdir('..')\n",
    "shares_memory": "import mmap\nmemory = mmap.mmap(-1, 8)\n",
}
TEST = """
import os
from hypothesis import given, strategies

@given(strategies.just(3))
def falsify(subject, number):
    calls = vars(subject).setdefault("calls", [])
    assert not calls, "another task has run in this process"
    calls.append(number)
    assert getattr(subject, "double", lambda number: 6)(number) == 6
    print("parent", os.getppid())
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    write(root, {f"{name}.py": text for name, text in {**SHAREABLE, **NOT_SHAREABLE}.items()})
    write(root, {"falsify_it.py": TEST})
    return root


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool([*ALWAYS_LOADED], 2) as pool:
        yield pool


def _body(root: Path, subject: str) -> Body:
    test = {"module": "falsify_it", "file": str(root / "falsify_it.py"), "name": "falsify"}
    return Body(
        kind="property",
        root=str(root),
        roots=(str(root),),
        device="cpu",
        payload={"test": {**test, "parameters": ["subject", "number"]}, "examples": 5, "seed": 0, "replay": ""},
        subject=subject,
        subject_file=str(root / f"{subject}.py"),
        packages=(subject, "falsify_it"),
        plan=Plan(covered=(subject,)),
        modules=subject,
    )


def _replies(pool: Pool, *bodies: Body) -> list[Reply]:
    """Run tasks one after another, and return their replies."""
    replies = []
    for body in bodies:
        pool.submit(Task(key=None, body=body, limit_s=60, memory_mib=MEMORY_MIB))
        replies += [reply for _, reply in pool.replies()]
    return replies


def _statuses(replies: list[Reply]) -> list[str]:
    return [(reply.last("end") or {"status": reply.output.text})["status"] for reply in replies]


def _parents(replies: list[Reply]) -> set[str]:
    return {line for reply in replies for line in reply.output.text.splitlines() if line.startswith("parent")}


@pytest.mark.parametrize("subject", SHAREABLE)
def test_tasks_share_imported_modules_and_no_state(subject: str, pool: Pool, root: Path) -> None:
    replies = _replies(pool, *3 * [_body(root, subject)])
    assert _statuses(replies) == ["held"] * 3
    assert len(_parents(replies)) == 1
    ends = [reply.last("end") or {} for reply in replies]
    assert all(end["reads"] == ends[0]["reads"] and end["reached"] == ends[0]["reached"] for end in ends)
    assert _parents(replies) != _parents(_replies(pool, replace(_body(root, subject), modules="")))


@pytest.mark.parametrize("subject", NOT_SHAREABLE)
def test_modules_are_imported_anew_if_their_import_has_effects(subject: str, pool: Pool, root: Path) -> None:
    replies = _replies(pool, *2 * [_body(root, subject)])
    assert _statuses(replies) == ["held"] * 2
    assert _parents(replies) == _parents(_replies(pool, replace(_body(root, subject), modules="")))


@pytest.mark.parametrize("first", ["clean", "mutant"])
def test_a_mutant_is_killed_in_shared_modules(first: str, pool: Pool, root: Path) -> None:
    clean = replace(_body(root, "plain"), modules=f"{first} first")
    plan = replace(clean.plan, module="plain", name="double", find="2", replace="3")
    mutant = replace(clean, plan=plan)
    tasks = [clean, mutant, clean] if first == "clean" else [mutant, clean, mutant]
    replies = _replies(pool, *tasks)
    assert _statuses(replies) == ["held" if task is clean else "refuted" for task in tasks]
    assert all(
        (reply.last("end") or {})["mutant_reached"]
        for reply, task in zip(replies, tasks, strict=True)
        if task is mutant
    )
