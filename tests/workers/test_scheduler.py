"""The scheduler counts steps, names what runs, and refuses jobs once it is cancelled."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pv.engines.trial import Output, TrialStatus
from pv.workers.live import Reply, Task
from pv.workers.scheduler import Job, Progress, Scheduler
from pv.workers.tasks import Body


class FakePool:
    """Answers every task at once, in order, with `held`."""

    def __init__(self) -> None:
        self.pending: list[Task] = []

    def submit(self, task: Task) -> None:
        self.pending.append(task)

    def drop_pending(self) -> list[Task]:
        dropped, self.pending = self.pending, []
        return dropped

    def replies(self, on_start: Callable[[Task], None]) -> Iterator[tuple[Task, Reply]]:
        while self.pending:
            task = self.pending.pop(0)
            on_start(task)
            end = {"kind": "end", "status": "held", "detail": ""}
            yield task, Reply(
                records=(end,), status=0, stopped="", seconds=1.0, cpu_s=1.0, peak_mib=1, output=Output(),
                limit_s=task.limit_s, memory_mib=task.memory_mib,
            )  # fmt: skip


def job(key: str, directory: Path | None = None) -> Job[str]:
    body = Body(kind="property", root="/", roots=("/",), device="cpu")
    return Job(key=key, body=body, limit_s=1.0, claim=f"claim-{key}", label=f"label-{key}", directory=directory)


def scheduler(seen: list[Progress]) -> Scheduler[str]:
    pool: Any = FakePool()
    return Scheduler(pool, seen.append)


def test_every_job_gives_one_trial_under_its_key_and_claim(tmp_path: Path) -> None:
    made, directory = scheduler([]), tmp_path / "run"
    directory.mkdir()
    made.submit(job("a", directory))
    made.submit(job("b"))
    found = dict(made.trials())
    assert {key: (t.falsifier, t.status) for key, t in found.items()} == {
        "a": ("claim-a", TrialStatus.HELD),
        "b": ("claim-b", TrialStatus.HELD),
    }
    assert not directory.exists()


def test_jobs_submitted_meanwhile_run_too() -> None:
    made, keys = scheduler([]), []
    made.submit(job("a"))
    for key, _ in made.trials():
        keys.append(key)
        if key == "a":
            made.submit(job("b"))
    assert keys == ["a", "b"]


def test_progress_counts_jobs_and_names_the_running_ones() -> None:
    seen: list[Progress] = []
    made = scheduler(seen)
    made.submit(job("a"))
    list(made.trials())
    assert seen == [
        Progress(done=0, total=1, running=("label-a",)),
        Progress(done=1, total=1, running=()),
    ]


def test_after_count_only_the_caller_advances() -> None:
    seen: list[Progress] = []
    made = scheduler(seen)
    made.count(7)
    made.submit(job("a"))
    list(made.trials())
    assert [(p.done, p.total) for p in seen] == [(0, 7)]
    made.advance()
    assert (seen[-1].done, seen[-1].total) == (1, 7)


def test_cancel_returns_the_keys_of_pending_jobs_and_refuses_new_ones() -> None:
    made = scheduler([])
    made.submit(job("a"))
    made.submit(job("b"))
    assert made.cancel() == ["a", "b"]
    assert list(made.trials()) == []
    with pytest.raises(RuntimeError, match="cancelled"):
        made.submit(job("c"))
