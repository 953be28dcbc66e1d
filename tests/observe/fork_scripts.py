"""Run scripts in forks of one process that has imported torch: `python fork_scripts.py < jobs.json`.

Any Python from 3.9 on with torch from 2.1 on can run this file. Nothing of `pv` is on its path: the observer is loaded
from its folder alone, as in an observed process.

Jobs are `{"folder": F, "plain": bool, "scripts": [SCRIPT, ...]}`, and a script is `{"name": N, "path": P, "ranks": R,
"cut": K, "in_save": bool, "against": [ARG, ...], "runs": [[ARG, ...]], "plain": bool, "heavy": bool}`.
It runs observed in
`F/N/work`, with its trace in `F/N/trace` and its output in `F/N/output-RANK`, once with each list of arguments in
`runs`; where both `plain` are true, before the observer is installed, also without it, with its output in
`F/N/plain-RANK`. With a `cut` above 0 it runs uncut twice, is killed after this step, and runs with the arguments in
`runs`, as `pv check --cut K --resume ARGS` does; with `in_save` another run is killed inside a save. With
arguments in `against` it also runs with these, as `--against` does. Prints the exit statuses as JSON: `{N: status}`.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib.util
import json
import os
import shutil
import signal
import sys
import traceback
import types
from pathlib import Path

import torch
import torch._dynamo
import torch.utils.data  # scripts need these modules, and forks inherit them

OBSERVER = Path(__file__).resolve().parents[2] / "pv/observe"
LIMIT = 600
"""Seconds after which a script that hangs, such as one rank without the other, is killed."""


def load_observer() -> types.ModuleType:
    """Load the folder of the observer under the name that it has in an observed process; return its observer module."""
    place = OBSERVER / "__init__.py"
    spec = importlib.util.spec_from_file_location("_pv_observe", place, submodule_search_locations=[str(OBSERVER)])
    sys.modules["_pv_observe"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return importlib.import_module("_pv_observe.observer")


def child(
    script: dict,
    arguments: list[str],
    work: Path,
    output: Path,
    rank: int,
    trace: Path | None,
    cut: int | None,
    in_save: bool,
) -> None:
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
            observer = sys.modules["_pv_observe.observer"]
            observer.current.folder = observer.current.trace.folder = trace
            observer.current.options = observer.Options(comparing=cut is not None, cut=cut or 0, cut_in_save=in_save)
        sys.argv = [script["path"], *arguments]
        sys.path.insert(0, str(Path(script["path"]).parent))
        # Not by runpy, which deletes the names of the script before its trace is finished.
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        main.__file__ = script["path"]
        exec(compile(Path(script["path"]).read_bytes(), script["path"], "exec"), vars(main))
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
    """Run a script as often as it asks for; return the largest exit status."""
    observed, trace = kind == "output", folder / "trace"
    if not script["cut"] and not script["against"]:
        return max(
            run_once(script, arguments, folder, kind, trace if observed else None, fresh=not number)
            for number, arguments in enumerate(script["runs"])
        )
    status = run_once(script, [], folder, kind, trace if observed else None, 0, fresh=True)
    if not observed:
        return status
    run_once(script, [], folder, "again", trace / "again", 0, fresh=True)
    if script["against"]:
        other = run_once(script, script["against"], folder, "against", trace / "against/1", 0, fresh=True)
        (trace / "against/1/status").write_text(str(other))
        status = max(status, other)
    if script["cut"]:
        (arguments,) = script["runs"]
        for kind in ("cut", "save") if script["in_save"] else ("cut",):
            run_once(script, [], folder, kind, trace / kind / "1", script["cut"], fresh=True, in_save=kind == "save")
            resumed = run_once(script, arguments, folder, f"{kind}-resumed", trace / kind / "2", 0, fresh=False)
            (trace / kind / "2/status").write_text(str(resumed))
            status = max(status, resumed)
    return status


def run_once(
    script: dict,
    arguments: list[str],
    folder: Path,
    kind: str,
    trace: Path | None,
    cut: int | None = None,
    *,
    fresh: bool,
    in_save: bool = False,
) -> int:
    """Run a script on all its ranks, in a fresh folder or the last one; return the largest exit status."""
    work = folder / "work"
    if fresh:
        shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    if trace is not None:
        trace.mkdir(parents=True, exist_ok=True)
    children = []
    for rank in range(script["ranks"]):
        pid = os.fork()
        if pid == 0:
            child(script, arguments, work, folder / f"{kind}-{rank}", rank, trace, cut, in_save)
        children.append(pid)
    return max(abs(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])) for pid in children)


def run_all(scripts: list[dict], folder: Path, kind: str) -> dict[str, int]:
    """Run scripts one after the other. What a script imports is imported here before it, so that forks inherit it.

    Scripts with few imports come first: the fork of a small process takes less time.
    """
    imports = {}
    for script in scripts:
        tree = ast.parse(Path(script["path"]).read_text())
        tree.body = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
        imports[script["name"]] = tree
    statuses = {}
    for script in sorted(scripts, key=lambda script: script["heavy"]):
        with contextlib.suppress(ImportError):  # the run of the script shows the error
            exec(compile(imports[script["name"]], script["path"], "exec"), {})
        gc.freeze()  # a collection in a fork would write to, and so copy, what it has inherited
        statuses[script["name"]] = run(script, folder / script["name"], kind)
    return statuses


def main() -> None:
    """Run all jobs."""
    jobs = json.load(sys.stdin)
    torch.set_num_threads(1)
    folder = Path(jobs["folder"])
    # In a fork: here, nothing but torch may be imported before the observer.
    if jobs["plain"] and (pid := os.fork()) == 0:
        run_all([script for script in jobs["scripts"] if script["plain"]], folder, "plain")
        os._exit(0)
    if jobs["plain"]:
        os.waitpid(pid, 0)
    observer = load_observer()
    observer.install(folder)
    statuses = run_all(jobs["scripts"], folder, "output")
    observer.current.steps = 0  # this process has trained nothing
    print(json.dumps(statuses))


if __name__ == "__main__":
    main()
