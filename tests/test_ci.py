"""What continuous integration runs: hooks, the rehearsal for a GPU, the nightly workflow, names in benchmarks."""

import ast
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pv.cli import main
from pv.mutation import summary
from pv.mutation.judge import MutantStatus
from tests.commands.small import edit
from tests.mutation.handmade import result
from tests.support.projects import Project

ROOT = Path(__file__).parents[1]
HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
PRE_COMMIT = shutil.which("pre-commit")


def test_hooks_run_commands_that_exist() -> None:
    assert sorted(HOOKS) == ["pv-lint", "pv-validate"]
    for hook in HOOKS.values():
        program, command = hook["entry"].split()
        assert program == "pv" and command in main.commands


@pytest.mark.skipif(PRE_COMMIT is None, reason="pre-commit is not installed")
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="pre-commit reads hooks from a git repository")
def test_pre_commit_validates_until_a_contract_fails(project: Project) -> None:
    folder = project("small")
    assert hooked(folder, "pv-validate").returncode == 0
    edit(folder / "counting.py", "return whole", "return None and whole")
    failed = hooked(folder, "pv-validate")
    assert failed.returncode == 1
    assert "FAIL  counting" in failed.stdout


def hooked(folder: Path, hook: str) -> "subprocess.CompletedProcess[str]":
    """Run a hook of this repository on all files of a folder."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in (["git", "init", "-q"], ["git", "add", "-A"]):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return subprocess.run(
        [str(PRE_COMMIT), "try-repo", str(ROOT), hook, "--all-files", "--hook-stage", "manual", "--verbose"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path, "PRE_COMMIT_HOME": str(folder.parent / "pre-commit")},
    )


def recorded() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (ROOT / "evidence").iterdir()}


def test_rehearsal_records_claims_on_a_fake_gpu_and_nothing_in_the_project() -> None:
    """The claims: a fused update, a window of micro-batches, and a library that sets a variable for CUDA."""
    before = recorded()
    environment = {**os.environ, "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""}
    named = ["F-UPDATE-ADAMW-001", "F-ACCUMULATION-002", "F-DISTILL-PIPELINE-007"]
    command = [str(ROOT / ".ci/gpu"), "--rehearse", *(word for name in named for word in ("--only", name))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [line.split(" (")[0] for line in done.stdout.splitlines() if line.startswith("== ")]
    assert steps == ["== packages", "== device", "== dry run for cuda", "== claims", "== evidence"]
    assert "4 tasks for cuda in 3 contracts, none was run; exit 0" in done.stdout
    assert "0 fail, 0 undecided, 3 pass" in done.stdout and "3 results for cuda are recorded" in done.stdout
    assert recorded() == before


def test_packages_that_are_missing_are_named_all_at_once(tmp_path: Path) -> None:
    metadata = (
        "Metadata-Version: 2.1\nName: one\nVersion: 1.0\nRequires-Dist: two>=3\nRequires-Dist: three; extra == 'x'\n"
    )
    (tmp_path / "one-1.0.dist-info").mkdir()
    (tmp_path / "one-1.0.dist-info/METADATA").write_text(metadata)
    for project, named in {
        '["one", "four"]': ["four: missing, needed by this project", "two: missing, needed by one"],
        '["one>=2"]': ["one: 1.0 is installed, this project needs >=2", "two: missing, needed by one"],
        '["one[x]"]': ["three: missing, needed by one", "two: missing, needed by one"],
        '["pytest", "one; python_version < \'3\'"]': [],
    }.items():
        (tmp_path / "pyproject.toml").write_text(f"[project]\ndependencies = {project}\n")
        command = [sys.executable, str(ROOT / ".ci/requirements.py"), str(tmp_path / "pyproject.toml")]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=600
        )
        lines = done.stderr.splitlines()
        assert (lines[:-1], done.returncode) == (named, 1 if named else 0), f"{project}: {lines}"


def test_pull_requests_run_every_step_of_the_script_that_contributors_run() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())
    assert "pull_request" in workflow[True], "the key `on` is true in YAML 1.1"
    (job,) = workflow["jobs"].values()
    assert job["steps"][-1]["run"] == ".ci/run ${{ matrix.step }}"
    steps = {*job["strategy"]["matrix"]["step"], "contracts"}
    contracts = yaml.safe_load((ROOT / ".github/workflows/contracts.yml").read_text())
    assert any(step.get("name") == "pv validate" for step in contracts["jobs"]["validate"]["steps"])
    refused = subprocess.run([str(ROOT / ".ci/run"), "test"], capture_output=True, text=True)
    assert refused.returncode == 2
    assert refused.stderr == f"unknown step 'test' (choose from {', '.join(sorted(steps))}; none for all)\n"


JOBS = yaml.safe_load((Path(__file__).parents[1] / ".github/workflows/mutation.yml").read_text())["jobs"]
SHARDS = JOBS["shard"]["strategy"]["matrix"]["shard"]
PV = r"""#!/bin/sh
[ "$1 $3 $4" = "mutate --format json" ] || exit 3
sed "s/\"id\": \"c\"/\"id\": \"$(basename "$2" .yaml)\"/" result.json
exit 1
"""


def step(job: str, folder: Path, shard: int = 0) -> int:
    """Run the script of a job on the contracts in a folder, and return its exit code."""
    (script,) = [entry["run"] for entry in JOBS[job]["steps"] if "run" in entry and "name" in entry]
    # GitHub puts these into the environment of a step; `pv` on the path is a stand-in.
    variables = {"SHARD": str(shard), "SHARDS": str(len(SHARDS)), "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    environment = {**os.environ, **variables, "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(["bash", "-e", "-c", script], cwd=folder, env=environment, timeout=600).returncode


def ten_contracts(folder: Path) -> None:
    """Write ten contracts with a mutation scope and one without, and a `pv` that finds a problem in each."""
    (folder / "contracts").mkdir()
    for index in range(10):
        (folder / f"contracts/c{index}.yaml").write_text("mutation_scope: [tiny]\n")
    (folder / "contracts/unscored.yaml").write_text("subject: tiny\n")
    (folder / "result.json").write_text(summary.data([result(MutantStatus.KILLED, unused=("a | b",))], 1.0))
    (folder / "pv").write_text(PV)
    (folder / "pv").chmod(0o755)


def test_table_has_every_contract_with_a_scope_once(tmp_path: Path) -> None:
    ten_contracts(tmp_path)
    scores: dict[str, bytes] = {}
    for shard in SHARDS:
        assert step("shard", tmp_path, shard) == 1, "a problem fails the shard"
        names = {path.name: path.read_bytes() for path in (tmp_path / "scores").iterdir()}
        assert names and not scores.keys() & names.keys()
        scores |= names
        (tmp_path / "scores").rename(tmp_path / f"shard-{shard}")
    (tmp_path / "scores").mkdir()
    for name, content in scores.items():
        (tmp_path / "scores" / name).write_bytes(content)
    (tmp_path / "scores/c3.json").write_text("")
    assert step("table", tmp_path) == 0
    rows = (tmp_path / "scores/scores.md").read_text().splitlines()
    score = r"mutation score 100 % (1 of 1 killed) | declared equivalent matches no generated mutant: a \| b"
    assert rows[2:] == [f"| c{n} | {score if n != 3 else 'not measured |'} |" for n in range(10)]
    assert (tmp_path / "summary.md").read_text().splitlines() == rows


BENCHMARKS = sorted((ROOT / "benchmarks").glob("*.py"))
PACKAGES = ("pv.", "reference_trainer.", "falsifiers.")
"""Of modules within these packages: isolation.py imports from a package of falsifiers that it writes itself."""


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.name)
def test_names_that_a_benchmark_imports_exist(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PACKAGES):
            module = importlib.import_module(node.module)
            missing = [alias.name for alias in node.names if not hasattr(module, alias.name) and alias.name != "*"]
            missing = [name for name in missing if importlib.util.find_spec(f"{node.module}.{name}") is None]
            assert missing == [], f"{path.name}:{node.lineno} imports {missing} of {node.module}"
