"""Correct scripts in many styles, which no claim may accuse, and edits of them, which the right claim must find.

All scripts of a test run in forks of one process, so that torch is imported once a test. `PV_OBSERVE_PYTHON` names
another Python for this process, such as one of 3.9 with torch 2.1, which needs nothing of `pv`.
"""

import functools
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from pv.contract.load import load_file
from pv.contract.suites import OBSERVED, suites
from pv.observe import launch
from pv.suites.training_run.claims import CLAIMS, judge
from pv.suites.training_run.run import read_folder
from tests.observe.edits import EDITS

PYTHON = os.environ.get("PV_OBSERVE_PYTHON", sys.executable)


@functools.cache
def installed_version(package: str) -> str:
    """Return the version of a package, or of `python`, in the Python of the scripts; "" if it does not have it."""
    code = "import importlib.metadata as m, platform, sys; p = sys.argv[1]\n"
    code += "print(platform.python_version() if p == 'python' else m.version(p))"
    result = subprocess.run([PYTHON, "-c", code, package], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return result.stdout.strip()


def is_installed(requirement: str) -> bool:
    """Return whether the Python of the scripts meets a requirement, such as `lightning` or `torch>=2.6`."""
    wanted = Requirement(requirement)
    version = installed_version(wanted.name)
    return bool(version) and wanted.specifier.contains(version, prereleases=True)


if not is_installed("torch"):
    pytest.skip("the scripts need torch", allow_module_level=True)
HERE = Path(__file__).parent
SCRIPTS = sorted((HERE / "scripts").glob("*.py"))
CONTRACT = load_file(suites()[OBSERVED])[0]
assert CONTRACT is not None
HINTS_ALONE = {falsifier.id for falsifier in CONTRACT.falsifiers if falsifier.rule.endswith("(hint)")}


STEP = """
import importlib.util
assert importlib.util.find_spec("torch") is not None
import torch
assert all(hasattr(owner, name) for owner in (torch.Tensor, torch.nn.Module) for name in dir(owner))
p = torch.nn.Parameter(torch.ones(2))
p.grad = torch.ones(2)
torch.optim.SGD([p], lr=0.1).step()
"""


def needs(text: str) -> list[str]:
    """Return the requirements of the line `needs: ...` of a script."""
    return [name for line in text.splitlines() if line.startswith("needs:") for name in line.split()[1:]]


def missing(text: str) -> list[str]:
    """Return the requirements of a script that are not met."""
    return [name for name in needs(text) if not is_installed(name)]


def job(name: str, path: Path) -> dict[str, Any]:
    """Return how a script is run, as lines of its docstring say: `ranks: 2`, `cut: 10`, `runs: --stop 6 | --resume`."""
    values = dict(re.findall(r"^(ranks|cut|in_save|against|runs): (.*)$", path.read_text(), re.MULTILINE))
    runs = [shlex.split(arguments) for arguments in values.get("runs", "").split("|")]
    ranks, cut = int(values.get("ranks", 1)), int(values.get("cut", 0))
    libraries = [name for name in needs(path.read_text()) if not name.startswith("torch")]
    return {
        "name": name,
        "path": str(path),
        "ranks": ranks,
        "cut": cut,
        "in_save": "in_save" in values,
        "against": shlex.split(values.get("against", "")),
        "runs": runs,
        # Other scripts show that their libraries train as they do unobserved.
        "plain": not (cut and libraries),
        "heavy": bool(libraries),
    }


def run_scripts(folder: Path, scripts: Iterable[tuple[str, Path]], *, plain: bool) -> dict[str, int]:
    """Run scripts observed, and with `plain` also unobserved; return their exit statuses."""
    jobs = [job(name, path) for name, path in scripts]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1", "HF_HUB_OFFLINE": "1"}
    result = subprocess.run(
        [PYTHON, HERE / "fork_scripts.py"],
        input=json.dumps({"folder": str(folder), "plain": plain, "scripts": jobs}),
        capture_output=True,
        text=True,
        env=environment,
        cwd=HERE.parent.parent,
    )
    assert result.returncode == 0, result.stderr
    statuses: dict[str, int] = json.loads(result.stdout)
    return statuses


def findings(folder: Path, status: int, *, hints: bool = False) -> tuple[dict[str, str], list[str]]:
    """Return what the claims that a run falsifies, or hints at, have seen, and what could not be observed."""
    run = read_folder(folder, complete=status == 0)
    records = judge(run)
    shown = {name: [f.seen for f in record.findings if hints or not f.hint] for name, record in records.items()}
    troubles = run.troubles if run.steps >= 4 else [f"only {run.steps} steps were observed", *run.troubles]
    return {name: seen[-1] for name, seen in shown.items() if seen}, troubles


def test_a_process_that_looks_for_torch_before_it_imports_torch_is_observed(tmp_path: Path) -> None:
    subprocess.run([PYTHON, "-c", STEP], env={**os.environ, **launch.environment(tmp_path)}, check=True, cwd=tmp_path)
    (process,) = read_folder(tmp_path, complete=True).processes
    assert [window.at for window in process.windows[1]] == ["<string>:8"]  # a line of what `-c` runs


COMPLEX = """
import torch
p = torch.nn.Parameter(torch.ones(300, dtype=torch.complex64))
optimizer = torch.optim.SGD([p], lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    p.abs().sum().backward()
    optimizer.step()
"""

THREADS = """
import threading
import torch
barrier = threading.Barrier(2, timeout=60)

def train():
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(8):
        net(torch.ones(3, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        barrier.wait()

threads = [threading.Thread(target=train) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_complex_parameters_are_observed_without_warnings(tmp_path: Path) -> None:
    environment = {**os.environ, **launch.environment(tmp_path)}
    result = subprocess.run(
        [PYTHON, "-c", COMPLEX], env=environment, check=True, cwd=tmp_path, capture_output=True, text=True
    )
    run = read_folder(tmp_path, complete=True)
    assert (run.steps, run.troubles, result.stderr) == (3, [], "")


def test_trainings_in_several_threads_are_not_judged(tmp_path: Path) -> None:
    environment = {**os.environ, **launch.environment(tmp_path)}
    subprocess.run([PYTHON, "-c", THREADS], env=environment, check=True, cwd=tmp_path)
    run = read_folder(tmp_path, complete=True)
    assert run.steps <= 2 and not run.complete
    assert run.troubles == ["before step: RuntimeError: optimizers take steps in several threads of one process"]


def in_function(source: str) -> str:
    """Return a script whose statements, after its docstring, run in a function."""
    docstring, end, statements = source.partition('"""\n\n')
    return f"{docstring}{end}def main():\n{textwrap.indent(statements, '    ')}\n\nmain()\n"


def test_correct_scripts_are_not_accused_and_keep_their_weights(tmp_path: Path) -> None:
    scripts = [(path.stem, path) for path in SCRIPTS if not missing(path.read_text())]
    assert len(scripts) >= 40
    inside = tmp_path / "losses_and_looks_inside.py"
    inside.write_text(in_function((HERE / "scripts" / "losses_and_looks.py").read_text()))
    scripts.append((inside.stem, inside))
    statuses = run_scripts(tmp_path, scripts, plain=True)
    wrong: dict[str, Any] = {}
    for name, path in scripts:
        hints = "\nhints: none\n" in path.read_text()
        falsified, troubles = findings(tmp_path / name / "trace", statuses[name], hints=hints)
        outputs = [tmp_path / name / f"{kind}-0" for kind in ("output", "plain")]
        observed, plain = (output.read_text() if output.exists() else "" for output in outputs)
        sums = [text.rpartition("sum ")[2] for text in (observed, plain) if "sum " in text]
        same = len(sums) == 2 and (sums[0] == sums[1] or "\ncompiles\n" in path.read_text())
        same = same or not job(name, path)["plain"]
        if statuses[name] or falsified or troubles or not same:
            wrong[name] = (statuses[name], falsified, troubles, sums, observed[-2000:] if statuses[name] else "")
    assert wrong == {}


def test_edits_of_scripts_are_found_by_the_right_claim_alone(tmp_path: Path) -> None:
    scripts = []
    for claim, edits in EDITS.items():
        for number, (script, *texts) in enumerate(edits):
            source = (HERE / "scripts" / f"{script}.py").read_text()
            if missing(source):
                continue
            for old, new in zip(texts[::2], texts[1::2], strict=True):
                assert old in source, f"{claim}: {script} has no text {old!r}"
                source = source.replace(old, new)
            path = tmp_path / f"{claim}-{number}.py"
            path.write_text(source)
            scripts.append((path.stem, path))
    # Models and optimizers of a function no longer exist when the process ends.
    for name in ("TR-AVG-003-0", "TR-PARAM-006-0", "TR-PARAM-006-1", "TR-RANK-001-3"):
        path = tmp_path / f"{name}-.py"
        path.write_text(in_function((tmp_path / f"{name}.py").read_text()))
        scripts.append((path.stem, path))
    statuses = run_scripts(tmp_path, scripts, plain=False)
    wrong: dict[str, Any] = {}
    for name, _ in scripts:
        falsified, troubles = findings(tmp_path / name / "trace", statuses[name])
        if set(falsified) != {name.rstrip("-").rpartition("-")[0]} or troubles:
            wrong[name] = (statuses[name], falsified, troubles)
    assert wrong == {}


def test_every_claim_that_can_be_falsified_has_an_edit() -> None:
    assert set(EDITS) == set(CLAIMS) - HINTS_ALONE
