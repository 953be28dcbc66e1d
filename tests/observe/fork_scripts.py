"""Run scripts in forks of one process that has imported torch: `python fork_scripts.py < jobs.json`.

Jobs are `{"folder": F, "plain": bool, "scripts": [{"name": N, "path": P, "ranks": R}]}`. Every script runs observed in
`F/N/work`, with its trace in `F/N/trace` and its output in `F/N/output-RANK`; with `plain`, before the observer is
installed, also without it, with its output in `F/N/plain-RANK`. Prints the exit statuses as JSON: `{N: status}`.
"""

from __future__ import annotations

import ast
import json
import os
import runpy
import shutil
import signal
import sys
import traceback
from pathlib import Path

import torch
import torch._dynamo
import torch.utils.data  # scripts need these modules, and forks inherit them

LIMIT = 120
"""Seconds after which a script that hangs, such as one rank without the other, is killed."""


def child(script: dict, work: Path, output: Path, rank: int, trace: Path | None) -> None:
    """Run a script as `python PATH` does, with its output in a file, then end this process."""
    code = 1
    try:
        signal.alarm(LIMIT)
        file = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.chdir(work)
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(script["ranks"]))
        if trace is not None:
            from pv.observe import observer

            observer.current.folder = observer.current.trace.folder = trace
        sys.argv = [script["path"]]
        sys.path.insert(0, str(Path(script["path"]).parent))
        runpy.run_path(script["path"], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        if trace is not None:
            observer.current.finish()
        sys.stdout.flush()
        os._exit(code)


def run(script: dict, folder: Path, kind: str) -> int:
    """Run a script on all its ranks; return the largest exit status."""
    work, trace = folder / "work", folder / "trace"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    trace.mkdir(exist_ok=True)
    children = []
    for rank in range(script["ranks"]):
        pid = os.fork()
        if pid == 0:
            child(script, work, folder / f"{kind}-{rank}", rank, trace if kind == "output" else None)
        children.append(pid)
    return max(abs(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])) for pid in children)


def run_all(scripts: list[dict], folder: Path, kind: str) -> dict[str, int]:
    """Run scripts one after the other. What they import is imported here first, so that forks inherit it."""
    for script in scripts:
        tree = ast.parse(Path(script["path"]).read_text())
        tree.body = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
        exec(compile(tree, script["path"], "exec"), {})
    return {script["name"]: run(script, folder / script["name"], kind) for script in scripts}


def main() -> None:
    """Run all jobs."""
    jobs = json.load(sys.stdin)
    torch.set_num_threads(1)
    folder = Path(jobs["folder"])
    # In a fork: here, nothing but torch may be imported before the observer.
    if jobs["plain"] and (pid := os.fork()) == 0:
        run_all(jobs["scripts"], folder, "plain")
        os._exit(0)
    if jobs["plain"]:
        os.waitpid(pid, 0)
    from pv.observe import observer

    observer.install(folder)
    statuses = run_all(jobs["scripts"], folder, "output")
    observer.current.steps = 0  # this process has trained nothing
    print(json.dumps(statuses))


if __name__ == "__main__":
    main()
