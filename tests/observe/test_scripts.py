"""Correct scripts in many styles, which no claim may accuse, and edits of them, which the right claim must find.

All scripts of a test run in forks of one process, so that torch is imported once a test.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pv.suites.training_run.claims import CLAIMS, judge
from pv.suites.training_run.run import read_folder
from tests.observe.edits import EDITS

pytest.importorskip("torch", reason="the scripts need torch")
HERE = Path(__file__).parent
SCRIPTS = sorted((HERE / "scripts").glob("*.py"))
HINTS_ALONE = {
    name
    for name in CLAIMS
    if name.startswith(("TR-GRAD-004", "TR-PARAM-002", "TR-PARAM-003", "TR-PARAM-006", "TR-WEIGHT-003"))
    or name in ("TR-WEIGHT-004", "TR-WEIGHT-005", "TR-WEIGHT-006", "TR-EVAL-003", "TR-EVAL-005", "TR-LOG-002")
}


def missing(text: str) -> list[str]:
    """Return the packages of the line `needs: ...` of a script that are not installed."""
    names = [line.removeprefix("needs:").split() for line in text.splitlines() if line.startswith("needs:")]
    return [name for words in names for name in words if find_spec(name) is None]


def run_scripts(folder: Path, scripts: Iterable[tuple[str, Path]], *, plain: bool) -> dict[str, int]:
    """Run scripts observed, and with `plain` also unobserved; return their exit statuses."""
    jobs = [
        {"name": name, "path": str(path), "ranks": 1 + ("\nranks: 2" in path.read_text())} for name, path in scripts
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1", "HF_HUB_OFFLINE": "1"}
    result = subprocess.run(
        [sys.executable, HERE / "fork_scripts.py"],
        input=json.dumps({"folder": str(folder), "plain": plain, "scripts": jobs}),
        capture_output=True,
        text=True,
        env=environment,
        cwd=HERE.parent.parent,
    )
    assert result.returncode == 0, result.stderr
    statuses: dict[str, int] = json.loads(result.stdout)
    return statuses


def findings(folder: Path, status: int) -> tuple[dict[str, str], list[str]]:
    """Return what the claims that a run falsifies have seen, and which parts of the observation failed."""
    run = read_folder(folder, complete=status == 0)
    assert run.steps >= 4, f"{folder}: only {run.steps} steps were observed"
    records = judge(run)
    return {name: f.seen for name, record in records.items() for f in record.findings if not f.hint}, run.troubles


def test_correct_scripts_are_not_accused_and_keep_their_weights(tmp_path: Path) -> None:
    scripts = [(path.stem, path) for path in SCRIPTS if not missing(path.read_text())]
    assert len(scripts) >= 40
    statuses = run_scripts(tmp_path, scripts, plain=True)
    wrong: dict[str, Any] = {}
    for name, path in scripts:
        falsified, troubles = findings(tmp_path / name / "trace", statuses[name])
        observed, plain = ((tmp_path / name / f"{kind}-0").read_text() for kind in ("output", "plain"))
        sums = [text.rpartition("sum ")[2] for text in (observed, plain) if "sum " in text]
        same = len(sums) == 2 and (sums[0] == sums[1] or "\ncompiles\n" in path.read_text())
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
    statuses = run_scripts(tmp_path, scripts, plain=False)
    wrong: dict[str, Any] = {}
    for name, _ in scripts:
        falsified, troubles = findings(tmp_path / name / "trace", statuses[name])
        if set(falsified) != {name.rpartition("-")[0]} or troubles:
            wrong[name] = (statuses[name], falsified, troubles)
    assert wrong == {}


def test_every_claim_that_can_be_falsified_has_an_edit() -> None:
    assert set(EDITS) == set(CLAIMS) - HINTS_ALONE
