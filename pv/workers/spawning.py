"""Starts each task in a new interpreter, at about a second each."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from pv.workers import tree
from pv.workers.launch import Ended, Launcher, Started, environment


class SpawnLauncher:
    """Starts a new interpreter for every task, in its own process group."""

    loading = False

    def __init__(self, work: Path, note: str) -> None:
        self.work, self.note = work, note
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.fresh: list[Started | Ended] = []

    def ready(self) -> Launcher:
        return self

    def start(self, task: dict[str, Any], evidence_fd: int, output_fd: int) -> None:
        file = self.work / f"{uuid.uuid4().hex}.json"
        file.write_text(json.dumps(task), encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pv.workers.worker", str(evidence_fd), str(output_fd), str(file)],
            pass_fds=[evidence_fd, output_fd],
            stdin=subprocess.DEVNULL,
            env=environment(""),
            start_new_session=True,
        )
        self.processes[task["id"]] = process
        self.fresh.append(Started(task["id"], process.pid))

    def fileno(self) -> int | None:
        return None

    def events(self) -> list[Started | Ended]:
        found, self.fresh = self.fresh, []
        for task, process in list(self.processes.items()):
            code = process.poll()
            if code is not None:
                del self.processes[task]
                _kill_group(process.pid)
                found.append(Ended(task, -code if code < 0 else code << 8))
        return found

    def kill(self, task: str) -> None:
        process = self.processes.get(task)
        if process is not None:
            tree.kill_tree(process.pid)
            _kill_group(process.pid)

    def close(self) -> None:
        for task, process in list(self.processes.items()):
            self.kill(task)
            process.wait()


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, 9)
    except (ProcessLookupError, PermissionError):
        pass
