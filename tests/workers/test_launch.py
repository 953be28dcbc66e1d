"""How workers are started: fork servers, systems without them, the suites that they import, and what they use."""

import contextlib
import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import pv
from pv.errors import WorkerLost
from pv.workers import launch, tree, worker
from pv.workers.launch import ForkLauncher, Launcher, SpawnLauncher
from pv.workers.pool import PoolCache
from pv.workers.running_task import Task
from pv.workers.tasks import Body
from pv.workers.tree import Usage
from tests.support.processes import python
from tests.support.projects import Project


def test_tasks_are_spawned_if_the_system_supports_no_fork_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "supports_fork_server", lambda: False)
    launcher = launch.start_launcher([], tmp_path).ready()
    assert isinstance(launcher, SpawnLauncher)
    assert launcher.note == "tasks are spawned: this system has no subreapers or no /proc"


def test_time_limit_of_the_fork_server_excludes_waiting_for_a_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "START_LIMIT_S", 0.001)
    monkeypatch.setattr(tree, "usage", lambda pid: Usage(private_bytes=0, cpu_s=0.0, active=True))
    with contextlib.closing(launch.start_launcher([], tmp_path).ready()) as launcher:
        assert isinstance(launcher, ForkLauncher)


@pytest.mark.parametrize(
    ("code", "cpu_s", "text"),
    [
        (
            "import time\ntime.sleep(600)",
            0.0,
            "it waited for more than 0.001 s, without computing; 0.0 s of CPU time in",
        ),
        ("import time\ntime.sleep(600)", 3.0, "it computed for more than 0.001 s; 3.0 s of CPU time in"),
        ("import os\nprint('so far', flush=True)\nos._exit(3)", 0.0, "it ended with exit code 3; 0.0 s of CPU time in"),
        (
            "import os\nos.kill(os.getpid(), 9)",
            0.0,
            "it was killed by signal 9 (SIGKILL), perhaps by the kernel for lack of memory",
        ),
        ("import os\nos.kill(os.getpid(), 35)", 0.0, "it was killed by signal 35; 0.0 s of CPU time in"),
    ],
)
def test_failed_start_of_fork_server_quotes_reason_and_output(
    code: str, cpu_s: float, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loaded_first.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    ends = "sleep" not in code
    monkeypatch.setattr(launch, "START_LIMIT_S", launch.START_LIMIT_S if ends else 0.001)
    monkeypatch.setattr(tree, "usage", lambda pid: Usage(private_bytes=0, cpu_s=cpu_s, active=ends))
    (folder := tmp_path / "work").mkdir()
    with pytest.raises(WorkerLost) as lost:
        launch.start_launcher(["loaded_first"], folder).ready()
    message = str(lost.value)
    assert message.startswith(f"the fork server did not start: {text}")
    assert "to load loaded_first; `--spawn` runs without it; " in message
    assert message.endswith("its output:\nso far" if "so far" in code else "it printed nothing")


def test_spawned_workers_return_the_same_results(project: Project) -> None:
    project("small")
    report = pv.validate(spawn=True, only=["C-LIMIT", "C-COMMAND"])
    assert report.exit_code == 0
    assert report.contracts[0].killed == {"limit-ignored", "limit-forgotten", "epoch-lost"}
    assert report.notes == ("tasks are spawned, as requested",)


def test_spawned_worker_that_ends_without_a_result_has_its_exit_status(project: Project) -> None:
    project("hostile")
    report = pv.validate(spawn=True, only=["segfault", "close-everything"])
    reasons = {result.falsifier.id: result.reason for result in report.contracts[0].results if result.trial}
    assert reasons["segfault"].startswith("killed by signal 11 (SIGSEGV)")
    assert reasons["close-everything"].startswith("the worker ended without a result (exit status ")


def test_pools_of_the_same_modules_share_a_server(marked: Callable[[], list[int]]) -> None:
    with PoolCache(1) as pools:
        for preload, servers in ((["json"], 1), (["json"], 1), (["csv"], 2)):
            with pools.pool(preload) as pool:
                body = Body(kind="device", root=".", roots=(), device="cuda")
                pool.submit(Task(key="", body=body, limit_s=60, memory_mib=4096))  # which starts its fork server
                ((_, reply),) = pool.replies()
            assert reply.last("end") is not None
            assert len(marked()) == servers, f"after {preload}"
    assert marked() == []


def test_closing_one_of_two_servers_keeps_the_process_a_subreaper(tmp_path: Path) -> None:
    def start(name: str) -> "contextlib.closing[Launcher]":
        (folder := tmp_path / name).mkdir()
        return contextlib.closing(launch.start_launcher([], folder))

    before = tree.is_subreaper()
    first = start("first").__enter__()
    with start("second"):
        first.close()
        first.close()  # again, as after a failed start
        assert tree.supports_fork_server() and tree.is_subreaper()
    assert tree.is_subreaper() == before
    with tree.subreaper():  # the process is a subreaper before
        start("third").__enter__().close()
        assert tree.is_subreaper()


def test_children_of_all_living_threads_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def iterdir(folder: Path) -> Iterator[Path]:
        yield folder / "0"  # a thread that has ended
        yield from threads(folder)

    threads = Path.iterdir
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        monkeypatch.setattr(Path, "iterdir", iterdir)
        assert process.pid in tree.children(os.getpid())
        process.kill()


SCRIPT = """
from pv.workers.worker import _prefer_suites
_prefer_suites([{root!r}])
import pv.suites.mine
print(pv.suites.mine.__file__)
"""


def test_suites_of_a_root_take_precedence_over_installed_suites(tmp_path: Path) -> None:
    folder = tmp_path / "pv" / "suites"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text("")
    ended = python("-c", SCRIPT.format(root=str(tmp_path)))
    assert ended.stdout.strip() == str(folder / "mine.py"), ended.stderr


def test_thread_that_computes_makes_a_waiting_process_active() -> None:
    script = "import threading; print(flush=True); threading.Thread(target=any, args=(iter(int, 1),)).start()"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as computing:
        assert computing.stdout is not None and computing.stdout.readline()
        while not tree.usage(computing.pid).active or tree.usage(computing.pid).cpu_s == 0.0:
            assert computing.poll() is None
        computing.kill()


def test_cpu_time_of_a_tree_includes_processes_that_have_ended() -> None:
    child = "import time\nwhile time.process_time() < 0.5: pass"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}]); print(flush=True); input()"
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], **pipes) as parent:
        assert parent.stdout is not None and parent.stdout.readline()
        assert tree.usage(parent.pid).cpu_s > 0.4, "its child computed for 0.5 s"
        parent.kill()


def test_memory_that_processes_share_is_not_private() -> None:
    before = tree.usage(os.getpid()).private_bytes
    with mmap.mmap(-1, 32 << 20) as shared:
        shared[:: mmap.PAGESIZE] = bytes(len(shared) // mmap.PAGESIZE)
        assert tree.usage(os.getpid()).private_bytes - before < 16 << 20, "32 MiB are shared"


def test_workers_do_not_inherit_the_override_of_float32_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1")
    assert "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE" not in launch.environment("")


def test_fork_server_loads_libraries_without_initialising_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = "pathlib.Path(__file__).with_name('seen').write_text(os.environ['PYTORCH_NVML_BASED_CUDA_CHECK'])"
    (tmp_path / "asking.py").write_text(f"import os, pathlib\n{write}\n")
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    server = launch.start_launcher(["asking"], tmp_path / "work")
    server.ready()
    server.close()
    assert (tmp_path / "seen").read_text() == "1"


def test_gpu_that_forks_cannot_use_is_absent_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    answer = worker._device("cuda")
    assert not answer["present"] and "--spawn" in answer["detail"]
