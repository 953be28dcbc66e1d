"""Shards of a validation, whose reports `pv report` merges into the report of the whole validation."""

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from pv.commands.base_report import read_reports
from pv.commands.plan import divide
from pv.contract.load import load
from pv.errors import UsageError
from pv.results.outcome import Selection
from pv.results.verdict import Shard, parse_shard
from tests.commands.small import run
from tests.support.projects import Project, copy

ROOT = Path(__file__).parents[2]
ALL = {"C-LIMIT", "C-WHOLE", "C-COMMAND", "C-RUN", "C-RUN-FIRST"}


def shard(text: str, *options: str, file: str = "") -> "CompletedProcess[str]":
    return run("validate", "--shard", text, "--output", f"json={file or text[0]}.json", *options)


@pytest.fixture(scope="module")
def thirds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Return the project `small` with the reports of its shards 1.json to 3.json, and what each printed last."""
    folder = copy("small", tmp_path_factory.mktemp("thirds") / "small")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = [shard(f"{index}/3") for index in (1, 2, 3)]
    assert [ended.returncode for ended in done] == [0, 0, 0], done[0].stdout
    return folder, [ended.stdout.splitlines()[-1] for ended in done]


@pytest.fixture
def small(thirds: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make the project with its shards the working directory; return what each printed last."""
    monkeypatch.chdir(thirds[0])
    return thirds[1]


def tried(name: str) -> set[str]:
    contracts = json.loads(Path(name).read_text())["contracts"]
    return {result["falsifier"] for contract in contracts for result in contract["results"]}


@pytest.mark.parametrize("of", [1, 2, 3, 7, 60])
def test_each_claim_of_this_repository_is_in_one_shard_beside_those_that_read_its_run(of: int) -> None:
    contracts = load([ROOT / "contracts"]).contracts
    selections = {contract.id: Selection() for contract in contracts}
    # Predicates of one run belong to one shard, else the run would be executed twice.
    places: dict[tuple[str, str], list[int]] = {}
    runs: dict[tuple[str, str], set[int]] = {}
    for index in range(1, of + 1):
        for id_, selection in divide(contracts, selections, Shard(index, of)).items():
            for claim in filter(selection.selects, {contract.id: contract for contract in contracts}[id_].claims):
                places.setdefault((id_, claim.id), []).append(index)
                runs.setdefault((id_, claim.run or claim.id), set()).add(index)
    assert {*places} == {(contract.id, claim.id) for contract in contracts for claim in contract.claims}
    assert all(len(indices) == 1 for indices in (*places.values(), *runs.values()))


def test_reports_of_all_shards_become_that_of_the_whole(small: list[str]) -> None:
    for index, last in enumerate(small, 1):
        assert f"shard {index}/3, a part: `pv report` merges its JSON file with shards" in last
    parts = [tried(f"{index}.json") for index in (1, 2, 3)]
    assert set.union(*parts) == ALL and sum(map(len, parts)) == len(ALL)
    assert any({"C-RUN", "C-RUN-FIRST"} <= part for part in parts)
    whole = run("report", "1.json", "2.json", "3.json", "--output", "json=whole.json")
    assert whole.returncode == 0, whole.stdout
    alone = run("validate", "--no-cache", "--output", "json=alone.json")
    assert alone.returncode == 0
    one, other = (json.loads(Path(name).read_text())["contracts"] for name in ("whole.json", "alone.json"))
    for kept in (one, other):
        assert (kept[0]["partial"], kept[0]["mutants"]["untried"]) == (False, 0)
    outcomes = [[(r["falsifier"], r["device"], r["outcome"]) for r in kept[0]["results"]] for kept in (one, other)]
    assert outcomes[0] == outcomes[1] and one[0]["mutants"] == other[0]["mutants"]


def test_a_missing_shard_leaves_the_verdict_undecided_and_is_named(small: list[str]) -> None:
    for partial in ([], ["--partial"]):
        done = run("report", "1.json", "3.json", *partial, "--output", "junit=report.xml", "--output", "json=some.json")
        assert done.returncode == 2
        assert done.stdout.splitlines()[-1].startswith("incomplete without shard 2/3; ")
        assert "shard 2/3 is in none of the reports" in Path("report.xml").read_text()
    assert run("report", "some.json", "2.json").returncode == 0


def test_a_shard_without_a_claim_passes_and_one_without_a_required_claim_too(project: Project) -> None:
    folder = project("small")
    contract = folder / "contracts/counting.yaml"
    contract.write_text(contract.read_text() + "qa_gate: {id: G, name: n, require: {falsifiers: [C-WHOLE]}}\n")
    chosen = ("--no-mutants", "--only", "C-LIMIT", "--only", "C-WHOLE")
    assert [shard(f"{index}/3", *chosen).returncode for index in (1, 2, 3)] == [0, 0, 0]
    parts = ("1.json", "2.json", "3.json")
    assert sorted(len(tried(part)) for part in parts) == [0, 1, 1]
    whole = run("report", *parts, "--partial")
    assert whole.returncode == 0, whole.stdout


@pytest.mark.parametrize(
    ("options", "note", "unmatched"),
    [
        (["--only", "TYPO"], "no claim matches 'TYPO'", ["--only TYPO"]),
        (["--contract", "typo"], "no contract matches 'typo'", ["--contract typo"]),
        (["--only", "C-LIMIT", "--contract", "other"], "no claim matches 'C-LIMIT'", ["--contract other"]),
        (["empty"], "nothing was measured: no contracts found", ["the request"]),
    ],
)
def test_shards_of_a_request_that_names_nothing_are_undecided_and_so_is_their_whole(
    small: list[str], options: list[str], note: str, unmatched: list[str]
) -> None:
    Path("empty").mkdir(exist_ok=True)
    for index in (1, 2):
        done = shard(f"{index}/2", *options, file=f"none{index}")
        assert (done.returncode, note in done.stdout) == (2, True), done.stdout
        assert json.loads(Path(f"none{index}.json").read_text())["unmatched"] == unmatched
    merged = run("report", "none1.json", "none2.json")
    assert (merged.returncode, note in merged.stdout) == (2, True), merged.stdout


def test_shards_of_another_number_or_seed_and_replays_are_refused(small: list[str]) -> None:
    assert "--shard does not take --replay" in shard("1/2", "--only", "C-LIMIT", "--replay", "{}").stderr
    assert shard("1/2", "--no-mutants", file="half").returncode == 0
    assert shard("2/2", "--no-mutants", "--seed", "5", file="other").returncode == 0
    for file, message in {
        "2.json": "half.json is shard 1/2 and 2.json is shard 2/3: merge only shards of the same division",
        "other.json": "shard 1/2 in half.json has seed 0 and shard 2/2 in other.json has 5: merge",
    }.items():
        done = run("report", "half.json", file)
        assert (done.returncode, message in done.stderr) == (3, True), done.stderr


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "1/0", "a/b", "-1/2", "1/2/3", "1 / 2", "¹/2"])
def test_a_text_that_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected K/N with K from 1 to N"):
        parse_shard(text)


def test_a_dry_run_lists_the_tasks_of_a_shard(small: list[str]) -> None:
    counts = []
    for words in (["--shard", "1/2"], ["--shard", "2/2"], []):
        listed = json.loads(run("validate", "--dry-run", "--format", "json", *words).stdout)
        counts.append(sum(len(text["tasks"]) for text in listed["contracts"]))
    assert counts[0] + counts[1] == counts[2] and all(counts)


def test_reports_of_code_that_git_does_not_know_are_compared(project: Project) -> None:
    code = project("small") / "counting.py"
    run("validate", "--only", "C-LIMIT", "--no-mutants", "--output", "json=a.json")
    assert "counting.py" in read_reports([Path("a.json")], partial=True).files
    code.write_text(code.read_text() + "\nEXTRA = 1\n")
    run("validate", "--only", "C-WHOLE", "--no-mutants", "--output", "json=b.json")
    with pytest.raises(UsageError, match=r"a\.json and .*b\.json are of different files: counting\.py; merge"):
        read_reports([Path("a.json"), Path("b.json")])
