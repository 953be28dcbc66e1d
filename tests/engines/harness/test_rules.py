"""Rules about harnesses refuse predicates that a proof could not account for. None of them is run."""

from pathlib import Path

import pytest
import yaml

from pv.contract.finding import Finding
from tests.support.projects import HEAD, linted, write

TABLE = yaml.safe_load(Path(__file__).with_name("rules.yaml").read_text(encoding="utf-8"))
CONTRACT = HEAD + TABLE["contract"]


def findings(folder: Path, predicate: str, contract: str = CONTRACT) -> list[Finding]:
    return linted(folder, {"subject.py": TABLE["subject"], "prove.py": predicate, "contract.yaml": contract})


@pytest.mark.parametrize("name", TABLE["pure"])
def test_pure_function_may_be_proved_beside_impure_ones(tmp_path: Path, name: str) -> None:
    assert findings(tmp_path, f"def prove(subject, n): return subject.{name}(n) is not None\n") == []


@pytest.mark.parametrize("name", TABLE["impure"])
def test_impure_code_behind_the_subject_is_refused(tmp_path: Path, name: str) -> None:
    found = findings(tmp_path, f"def prove(subject, n): return subject.{name}(n) is not None\n")
    code, says = TABLE["impure"][name]
    assert [(finding.code, says in finding.message) for finding in found] == [(code, True)], (says, found)


@pytest.mark.parametrize("body", TABLE["statements"])
def test_an_impure_predicate_is_refused(tmp_path: Path, body: str) -> None:
    head = "from itertools import count\nnumbers = count()\n"
    (finding,) = findings(tmp_path, f"{head}def prove(subject, n):\n    {body}\n    return True\n")
    assert TABLE["statements"][body] in finding.message


@pytest.mark.parametrize("signature", TABLE["signatures"])
def test_a_predicate_takes_the_subject_and_the_bounds(tmp_path: Path, signature: str) -> None:
    (finding,) = findings(tmp_path, f"def prove({signature}): return True\n")
    assert (finding.code, str(finding).endswith(TABLE["signatures"][signature])) == ("PV112", True)


@pytest.mark.parametrize("bound", ["0...9", "list of int 0..9"])
def test_an_invalid_bound_is_refused(tmp_path: Path, bound: str) -> None:
    (finding,) = findings(tmp_path, "def prove(subject, n): return True\n", CONTRACT.replace("0..9", f'"{bound}"'))
    assert finding.code == "PV012"
    assert "expected 0..8, bool, or list of int 0..9, at most 4" in finding.message


def test_the_gate_names_only_harnesses_that_exist(tmp_path: Path) -> None:
    predicate = "def prove(subject, n): return subject.twice(n) == 2 * n\n"
    for required in ("proved", "all", "[H]", "[]"):
        gate = f"qa_gate: {{id: G, name: g, require: {{harnesses: {required}}}}}\n"
        assert findings(tmp_path, predicate, CONTRACT + gate) == []
    (finding,) = findings(tmp_path, predicate, CONTRACT + "qa_gate: {id: G, name: g, require: {harnesses: [HH]}}\n")
    assert (finding.code, finding.hint) == ("PV150", "did you mean 'H'?")


def findings_of_rate(folder: Path, rate: str) -> list[tuple[str, str, str]]:
    """Return what lint finds in a proof of `pkg.schedule.rate`: severity, code, and what the code does."""
    package = "from .optim import *\nfrom . import optim, schedule\n"
    schedule = f"import time\nimport pkg\n{rate}\n"
    write(folder, {"pkg/__init__.py": package, "pkg/optim.py": TABLE["optim"], "pkg/schedule.py": schedule})
    contract = CONTRACT.replace("subject: subject", "subject: pkg.schedule")
    contract = contract.replace(
        '"subject:twice", find: n + n, replace: n', '"pkg.schedule:rate", find: "1", replace: "2"'
    )
    problems = findings(folder, "def prove(subject, n): return subject.rate(n) >= 1\n", contract)
    reasons = ((f.severity.value, f.code, f.message.partition(" which ")[2].partition(":")[0]) for f in problems)
    return [reason for reason in reasons if reason[1] != "PV133"]


@pytest.mark.parametrize("rate", TABLE["alike"])
def test_a_name_that_is_only_like_that_of_impure_code_reaches_nothing(tmp_path: Path, rate: str) -> None:
    assert findings_of_rate(tmp_path, rate) == []


@pytest.mark.parametrize("rate", TABLE["resolved"])
def test_a_name_that_resolves_to_impure_code_is_an_error(tmp_path: Path, rate: str) -> None:
    problems = findings_of_rate(tmp_path, rate)
    assert ("error", "PV192", TABLE["resolved"][rate]) in problems
    assert {severity for severity, _, _ in problems} <= {"error", "notice"}


@pytest.mark.parametrize("rate", TABLE["unresolved"])
def test_impure_code_behind_an_object_of_unknown_class_is_a_notice(tmp_path: Path, rate: str) -> None:
    assert findings_of_rate(tmp_path, rate) == [("notice", "PV192", "uses torch")]
