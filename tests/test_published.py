"""Projects and reports that a released version read or wrote have the same meaning today."""

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from pv.contract.check import schema
from tests.commands.small import run
from tests.contract.test_reference import properties

PUBLISHED = Path(__file__).parent / "published"
HAS_TORCH = find_spec("torch") is not None
MEANING = ("version", "subject", "strict", "status", "gate", "claims", "declared_mutants", "mutation_scope", "judges",
           "definitions")  # fmt: skip
"""What a contract says: the keys of a report that neither time nor chance changes."""


def within(old: Any, new: Any, path: str = "") -> list[str]:
    """Return where `new` lacks or changes something of `old`; keys that are new are none of it."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [line for name in old for line in within(old[name], new.get(name), f"{path}/{name}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [line for index, item in enumerate(old) for line in within(item, new[index], f"{path}/{index}")]
    return [] if old == new else [f"{path}: {old!r} was published, {new!r} is read"]


def keys() -> dict[str, bool]:
    """Return each key of a contract, as a path in the schema, and whether it is required."""
    return {key: required for key, _, required in properties(schema("contract"))}


@pytest.fixture(params=sorted(path.name for path in PUBLISHED.iterdir() if path.is_dir()))
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(PUBLISHED / request.param, tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def test_contracts_are_well_formed_and_have_the_same_meaning_and_results(folder: Path) -> None:
    linted = run("lint")
    assert linted.returncode == 0 and linted.stdout.endswith("contracts: 0 invalid files, 0 errors, 0 notices\n")
    old = json.loads((folder / "report.json").read_text())
    # A command that trains needs PyTorch. Other contracts fail, so the exit code is the same without.
    published = [contract for contract in old["contracts"] if HAS_TORCH or contract["subject"] != "train"]
    done = run("validate", *(contract["id"] for contract in published), "--format", "json")
    assert done.returncode == old["exit_code"]
    contracts = {contract["id"]: contract for contract in json.loads(done.stdout)["contracts"]}
    for contract in published:
        now = contracts[contract["id"]]
        for claim, today in zip(contract["claims"], now["claims"], strict=True):
            if claim["kind"] in ("suite", "observed"):  # its words are pv's own, and may be reworded
                claim |= {key: today[key] for key in ("rule", "prediction", "if_fails")}
        assert within({key: contract[key] for key in MEANING}, now, contract["id"]) == []
        assert outcomes(now) == outcomes(contract)


@pytest.mark.parametrize("version", [path.parent.name for path in sorted(PUBLISHED.glob("*/check.json"))])
def test_adapters_are_judged_as_they_were(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    shutil.copytree(PUBLISHED / version, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    old = json.loads(Path("check.json").read_text())
    done = run("check", *old["arguments"], "--format", "json")
    (contract,) = json.loads(done.stdout)["contracts"]
    seen = {result["falsifier"]: result["outcome"] for result in contract["results"]}
    assert (done.returncode, within(old["outcomes"], seen)) == (old["exit_code"], [])


def outcomes(contract: dict[str, Any]) -> list[Any]:
    results = contract["results"]
    claims = [(result["falsifier"], result["device"], result["outcome"], result["required"]) for result in results]
    mutants = [(result["falsifier"], one["id"], one["status"]) for result in results for one in result["mutants"]]
    return sorted([*claims, *mutants])


def test_reports_are_still_rendered_with_their_exit_code(folder: Path) -> None:
    old = json.loads((folder / "report.json").read_text())
    done = run("report", "report.json", "--partial")
    assert done.returncode == old["exit_code"]
    lines = [line.split()[:2] for line in done.stdout.splitlines()[: len(old["contracts"])]]
    assert sorted(lines) == sorted([contract["status"].upper(), contract["id"]] for contract in old["contracts"])


def test_no_key_of_a_contract_was_removed_or_became_required(folder: Path) -> None:
    old, new = json.loads((folder / "keys.json").read_text()), keys()
    assert [key for key in old if key not in new] == []
    # A key may be required in a mapping that is new, since no published contract has it.
    mappings = {key.rpartition("/")[0] for key in old}
    required = {key for key, needed in new.items() if needed and key.rpartition("/")[0] in mappings}
    assert [key for key in sorted(required) if not old.get(key)] == []


def test_published_project_uses_every_key_at_the_top(folder: Path) -> None:
    used = {key for path in folder.glob("contracts/*.yaml") for key in yaml.safe_load(path.read_text())}
    published = json.loads((folder / "keys.json").read_text())
    assert {key.removeprefix("/") for key in published if key.count("/") == 1} == used


if __name__ == "__main__":
    print(json.dumps(keys(), indent=0))
