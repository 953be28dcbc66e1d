"""The steps of the nightly workflow share out the contracts with a mutation scope, and merge what was measured."""

import os
import subprocess
from pathlib import Path

import yaml

from pv.mutation import summary
from pv.mutation.judge import MutantStatus
from tests.mutation.handmade import result

JOBS = yaml.safe_load((Path(__file__).parents[1] / ".github/workflows/mutation.yml").read_text())["jobs"]
SHARDS = JOBS["shard"]["strategy"]["matrix"]["shard"]
PV = r"""#!/bin/sh
[ "$1 $3 $4" = "mutate --format json" ] || exit 3
sed "s/\"id\": \"c\"/\"id\": \"$(basename "$2" .yaml)\"/" result.json
exit 1
"""


def step(job: str, folder: Path, shard: int = 0) -> int:
    """Run the script of a job on the contracts in a folder, and return its exit code."""
    (script,) = [each["run"] for each in JOBS[job]["steps"] if "run" in each and "name" in each]
    variables = {"SHARD": str(shard), "SHARDS": str(len(SHARDS)), "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    environment = {**os.environ, **variables, "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(["bash", "-e", "-c", script], cwd=folder, env=environment, timeout=60).returncode


def project(folder: Path) -> None:
    """Write ten contracts with a mutation scope and one without, and a `pv` that finds a problem in each."""
    (folder / "contracts").mkdir()
    for index in range(10):
        (folder / f"contracts/c{index}.yaml").write_text("mutation_scope: [tiny]\n")
    (folder / "contracts/unscored.yaml").write_text("subject: tiny\n")
    (folder / "result.json").write_text(summary.data([result(MutantStatus.KILLED, unused=("a | b",))], 1.0))
    (folder / "pv").write_text(PV)
    (folder / "pv").chmod(0o755)


def test_table_has_every_contract_with_a_scope_once(tmp_path: Path) -> None:
    project(tmp_path)
    found: dict[str, bytes] = {}
    for shard in SHARDS:
        assert step("shard", tmp_path, shard) == 1, "a problem fails the shard"
        names = {path.name: path.read_bytes() for path in (tmp_path / "scores").iterdir()}
        assert names and not found.keys() & names.keys()
        found |= names
        (tmp_path / "scores").rename(tmp_path / f"shard-{shard}")
    (tmp_path / "scores").mkdir()
    for name, content in found.items():
        (tmp_path / "scores" / name).write_bytes(content)
    (tmp_path / "scores/c3.json").write_text("")
    assert step("table", tmp_path) == 0
    rows = (tmp_path / "scores/scores.md").read_text().splitlines()
    said = r"mutation score 100 % (1 of 1 killed) | declared equivalent matches no generated mutant: a \| b"
    assert rows[2:] == [f"| c{n} | {said if n != 3 else 'not measured |'} |" for n in range(10)]
    assert (tmp_path / "summary.md").read_text().splitlines() == rows
