"""Real contracts in the field's existing format: they load, are linted with notices alone, and can never pass."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pv.contract.finding import Severity
from pv.contract.load import Loaded, load, load_file
from pv.linting import lint
from pv.results.verdict import Status
from pv.source.project import find_project

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "corpus"
REGISTRY = CORPUS / "provable-contracts" / "aprender" / "binding.yaml"
CONTRACTS = sorted(set(CORPUS.rglob("*.yaml")) - {REGISTRY})
FALSIFIERS, HARNESSES = 521, 164
UNBOUND = FALSIFIERS + HARNESSES
UNREAD, DANGLING = 60, HARNESSES  # no harness names an obligation that exists


@pytest.fixture(scope="module")
def corpus() -> Loaded:
    return load([CORPUS])


def pv(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pv", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_the_whole_corpus_is_here() -> None:
    assert len(CONTRACTS) == 93


@pytest.mark.parametrize("path", CONTRACTS, ids=lambda path: path.stem)
def test_a_real_contract_loads(path: Path) -> None:
    contract, findings = load_file(path)
    assert contract is not None
    assert (contract.id, contract.strict) == (path.stem, False)
    assert {finding.severity for finding in findings} <= {Severity.NOTICE}


def test_a_folder_of_contracts_is_read_whole_but_for_its_registry(corpus: Loaded) -> None:
    assert not corpus.refused
    assert len(corpus.contracts) == len(CONTRACTS)


def test_a_binding_registry_named_as_a_contract_is_no_contract() -> None:
    contract, (finding,) = load_file(REGISTRY)
    assert contract is None
    assert str(finding).endswith(
        "binding.yaml:34:1 PV014 not a contract: missing key 'schema'; start it with 'schema: pv/1'"
    )


def test_every_falsifier_of_the_corpus_is_unbound_and_counted(corpus: Loaded) -> None:
    falsifiers = [falsifier for contract in corpus.contracts for falsifier in contract.falsifiers]
    assert [falsifier.id for falsifier in falsifiers if falsifier.test is not None] == []
    assert len(falsifiers) == FALSIFIERS


def test_every_harness_of_the_corpus_is_unbound_and_counted(corpus: Loaded) -> None:
    harnesses = [harness for contract in corpus.contracts for harness in contract.harnesses]
    assert [harness.id for harness in harnesses if harness.test is not None] == []
    assert len(harnesses) == HARNESSES


def test_claims_are_read_and_not_only_counted(corpus: Loaded) -> None:
    softmax = next(c for c in corpus.contracts if c.id == "softmax-kernel-v1")
    first = softmax.falsifiers[0]
    assert (softmax.equations[0].name, softmax.version) == ("softmax", "1.0.0")
    assert (first.id, first.rule) == ("FALSIFY-SM-001", "Normalization")
    assert first.prediction == "sum(softmax(x)) \u2248 1.0 for random x \u2208 [-1000, 1000]^n"


def test_lint_gives_the_corpus_notices_only(corpus: Loaded) -> None:
    found = [*corpus.findings, *lint(corpus.contracts, project=find_project(ROOT))]
    assert Counter((f.code, f.severity) for f in found) == {
        ("PV201", Severity.NOTICE): UNREAD,
        ("PV202", Severity.NOTICE): UNBOUND,
        ("PV206", Severity.NOTICE): DANGLING,
    }


def test_the_lint_command_exits_0_over_the_corpus() -> None:
    ended = pv("lint", "tests/corpus")
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert {line.split(":")[0] for line in lines[:-1]} == {"notice"}
    assert lines[-1] == f"93 contracts: 0 invalid files, 0 errors, {UNREAD + UNBOUND + DANGLING} notices"


def test_a_contract_in_prose_cannot_pass() -> None:
    ended = pv("validate", "tests/corpus", "--format", "json")
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    report = json.loads(ended.stdout)
    assert {contract["status"] for contract in report["contracts"]} == {Status.UNDECIDED.value}
    assert sum(len(contract["results"]) for contract in report["contracts"]) == UNBOUND
