"""Recorded evidence is valid until its clause or files change; every change of a working tree has its own digest."""

import json
import re
import resource
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from pv.contract.check import schema
from pv.contract.load import load
from pv.contract.model import Binding, Contract, Equation, Harness, Run, Target
from pv.results import store
from pv.results.evidence import DeviceInfo
from pv.results.worktree import commit_of, digest_of_changes, digests
from pv.source.project import Project, find_project
from tests.results.handmade import HERE, falsifier, trial
from tests.results.handmade import contract as handmade
from tests.support.processes import git
from tests.support.projects import BAD, write

H200 = DeviceInfo(name="NVIDIA H200", torch="2.11.0")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    shutil.copytree(BAD / "project", tmp_path / "p")
    return find_project(tmp_path / "p")


@pytest.fixture
def contract() -> Contract:
    (good,) = load([BAD / "good.yaml"]).contracts
    return good


HEAD = {"hardware": "OLD", "torch": "2.0.0", "python": "3.0.0", "when": "2020-01-01", "commit": "old"}


def test_results_that_are_not_measured_again_keep_hardware_and_date(project: Project, contract: Contract) -> None:
    (claim,) = contract.falsifiers
    claims = tuple(replace(claim, id=f"F-{name}") for name in ("ONE", "TWO"))
    both = replace(contract, falsifiers=claims)
    fingerprints = {claim.id: store.fingerprint(project, both, claim, Target("tiny")) for claim in both.claims}
    assert fingerprints["F-ONE"].files.keys() == {"falsifiers/falsify_tiny.py", "tiny.py"}
    trials = {claim.id: trial(id_=claim.id, device="cuda") for claim in both.claims}
    path = store.write(project, both, "cuda", H200, trials, fingerprints)
    path.write_text(json.dumps({**json.loads(path.read_text()), **HEAD}))
    for _ in range(2):  # a result that is kept a second time still has its own date
        store.write(project, both, "cuda", H200, {"F-ONE": trials["F-ONE"]}, fingerprints)
        content = json.loads(path.read_text())
        assert Draft202012Validator(schema("evidence")).is_valid(content)
        assert [{**HEAD, **result} == result for result in content["results"]] == [False, True]
        records, _ = store.read(project, both, "cuda", lambda: fingerprints)
        one, two = records["F-ONE", "cuda"], records["F-TWO", "cuda"]
        assert (one.hardware, one.when > "2020-01-01", one.commit) == (H200, True, content["commit"])
        assert (two.hardware, two.when, two.commit) == (DeviceInfo(name="OLD", torch="2.0.0"), "2020-01-01", "old")
    store.write(project, both, "cuda", H200, trials, fingerprints)
    assert not any(HEAD.keys() & result.keys() for result in json.loads(path.read_text())["results"])


@pytest.mark.parametrize("text", ["", "[]", '{"format": "pv-evidence/1"}', "[" * 100_000])
def test_file_that_is_not_evidence_is_a_finding(project: Project, contract: Contract, text: str) -> None:
    path = store.record_path(project, contract, "cuda")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    (claim,) = contract.claims
    prints = {claim.id: store.fingerprint(project, contract, claim, Target("tiny"))}
    trials, (problem,) = store.read(project, contract, "cuda", lambda: prints)
    assert (trials, problem.code, problem.location.path) == ({}, "PV170", path)
    other = store.write(project, contract, "mps", H200, {claim.id: trial(id_=claim.id, device="mps")}, prints)
    assert json.loads(other.read_text())["renew"] == f"pv validate --contract {contract.id} --device mps --record"
    trials, problems = store.read(project, contract, "mps", lambda: prints)
    assert ([*trials], problems) == ([(claim.id, "mps")], [])
    other.rename(path)
    trials, (problem,) = store.read(project, contract, "cuda", lambda: prints)
    assert trials == {} and problem.message.endswith(f"it is evidence of {contract.id} on mps")


def test_failed_write_names_the_file_and_leaves_no_file(tmp_path: Path) -> None:
    # A limit on the size of files makes the write fail as a full disk does.
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, before[1]))
    try:
        with pytest.raises(OSError) as error:
            store.write_atomically(tmp_path / "evidence.json", "more than eight bytes")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert error.value.filename == str(tmp_path / "evidence.json")
    assert list(tmp_path.iterdir()) == []


RUN = Run(name="r", location=HERE, callable=Binding("f.py", "run"), arguments={"n": 1})
CLAIM, TEST = falsifier(run="r"), Binding("f.py", "p")
BOX = Harness(id="H", rule="r", if_fails="i", location=HERE, test=TEST, bounds={"n": "0..9"})
OBSERVED = falsifier(test=None, run="r", options={"observed": "TR-GRAD-001", "must_reach": False})


def test_every_key_that_decides_a_result_makes_a_record_stale() -> None:
    runs = [RUN, replace(RUN, arguments={"n": 2}), replace(RUN, callable=Binding("f.py", "other"))]
    runs += [replace(RUN, callable=None, command=("a",), environment={"A": value}) for value in "12"]
    claims = [CLAIM, *(replace(CLAIM, **{key: "x"}) for key in ("rule", "prediction")), replace(CLAIM, examples=7)]
    claims += [replace(CLAIM, test=TEST), OBSERVED, replace(OBSERVED, options={**OBSERVED.options, "must_reach": True})]
    boxes = [BOX, replace(BOX, bounds={"n": "0..5"}), replace(BOX, requires="n"), replace(BOX, engine="exhaustive")]
    clauses = [store.clause_digest(handmade(CLAIM, runs=(run,)), CLAIM, Target("tiny")) for run in runs]
    clauses += [
        store.clause_digest(handmade(claim, runs=(RUN,)), claim, Target("tiny")) for claim in (*claims[1:], *boxes)
    ]
    clauses.append(store.clause_digest(handmade(CLAIM, runs=(RUN,)), CLAIM, Target("other")))
    computed = falsifier(test=None, equation="e")
    for text in ("x", "2 * x"):
        equation = Equation(name="e", location=HERE, executable={"expression": text})
        clauses.append(store.clause_digest(handmade(computed, equations=(equation,)), computed, Target("tiny")))
    assert len({*clauses}) == len(clauses) == 18


def test_record_is_not_stale_if_a_report_module_of_pv_changed() -> None:
    project = find_project(Path(__file__).parents[2])
    now = store.Fingerprint("clause", {})
    then = {"clause": "clause", "files": {"pv/report/text.py": "old", "pv/engines/property.py": "old"}}
    assert store.changed_files(project, then, now) == ["pv/engines/property.py"]
    then = {"clause": "c", "files": {"a.py": "1", "gone.py": "1", "same.py": "1"}}
    now = store.Fingerprint("clause", {"a.py": "2", "same.py": "1", "new.py": "1"})
    assert store.changed_files(project, then, now) == ["the contract's clause", "a.py", "gone.py", "new.py"]
    digests = store.dependency_digests(project, ["pv/report/text.py", "pv/errors.py", "pyproject.toml"])
    assert list(digests) == ["pyproject.toml"]


CHANGES: dict[str, Callable[[Path], object]] = {
    "tracked source": lambda tree: (tree / "own.py").write_text("2\n"),
    "tracked data": lambda tree: (tree / "data.txt").write_text("2\n"),
    "new source": lambda tree: (tree / "new.py").write_text("2\n"),
    "new folder": lambda tree: write(tree, {"new/own.py": "2\n"}),
    "new contract": lambda tree: (tree / "new.yaml").write_text("2\n"),
    "removed": lambda tree: (tree / "own.py").unlink(),
    "renamed": lambda tree: git("mv", "own.py", "other.py", cwd=tree),
}


def test_every_change_except_reports_and_evidence_has_its_own_digest(tmp_path: Path) -> None:
    tree, files = tmp_path, dict.fromkeys(("own.py", "data.txt", "evidence/c.cuda.json"), "1\n")
    write(tree, {**files, "pyproject.toml": "[tool.pv]\n"})
    assert (commit_of(tree), digest_of_changes(find_project(tree))) == ("", None)
    for words in ("init -q", "add .", "commit -qm m"):
        git(*words.split(), cwd=tree)
    assert digest_of_changes(find_project(tree)) == ""
    assert re.fullmatch("[0-9a-f]{40}", commit_of(tree))
    names = [*files, "missing.py", "lib/site-packages/own.py"]
    write(tree, {names[-1]: ""})
    assert [*digests(find_project(tree), names)] == ["data.txt", "own.py"]
    (tree / names[-1]).unlink()
    (tree / "results.json").write_text("{}")
    (tree / "evidence/c.cuda.json").write_text("2\n")
    assert digest_of_changes(find_project(tree)) == ""
    of_changes = []
    for change in CHANGES.values():
        change(tree)
        of_changes.append(digest_of_changes(find_project(tree)))
        assert re.fullmatch("[0-9a-f]{40}[+]", commit_of(tree))
        git("reset", "-q", "--hard", cwd=tree)
        git("clean", "-qfd", cwd=tree)
    assert digest_of_changes(find_project(tree)) == ""
    assert all(of_changes) and len(set(of_changes)) == len(CHANGES), dict(zip(CHANGES, of_changes, strict=True))
