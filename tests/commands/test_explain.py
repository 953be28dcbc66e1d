"""An id is explained from its contract, its code, the evidence and a report, and nothing is run."""

import json
import re
from pathlib import Path

import pytest

from pv.commands.explain import explain
from pv.errors import UsageError
from tests.commands.small import run
from tests.support.projects import Project


def test_claim_has_the_place_of_its_test_and_is_found_by_a_pattern(project: Project) -> None:
    folder = project("small")
    (explained,) = explain("C-LIMIT")
    place, _ = explained.test
    line = (folder / place.path).read_text().splitlines()[place.line - 1]
    assert line.startswith(f"def {explained.claim.test.name}(")
    for pattern, id_ in (("C-LIM*", "C-LIMIT"), ("TL-STOP-*", "TL-STOP-001")):  # the latter is of a suite
        assert [explained.claim.id for explained in explain(pattern) if explained.claim] == [id_]
    assert "  effort      one run, at most 120 s; devices: cpu, cuda\n" in run("explain", "C-RUN").stdout


def test_broken_binding_is_explained_with_its_finding(project: Project) -> None:
    file = project("small") / "contracts/counting.yaml"
    file.write_text(file.read_text().replace("test: falsifiers/", "test: falsifiers/gone/"))
    (explained,) = explain("C-LIMIT")
    assert [finding.code for finding in explained.findings] == ["PV110"]
    assert (explained.test, explained.recorded) == (None, ())
    equations = 'equations: {e: {domain: {x: real}, expression: y, implemented_by: "total(x, 2)"}}\nfalsifiers:\n'
    claim = "- {id: C-EQUATION, rule: r, prediction: p, if_fails: f, equation: e}\n"
    file.write_text(file.read_text().replace("falsifiers:\n", equations + claim, 1))
    (explained,) = explain("C-EQUATION")
    assert [finding.code for finding in explained.findings] == ["PV180"]


def test_id_of_a_contract_that_cannot_be_read_is_refused_with_the_reason(project: Project) -> None:
    folder = project("small")
    (folder / "contracts/counting.yaml").write_text("schema: pv/2\n")
    with pytest.raises(UsageError, match=r"a contract cannot be read: contracts/counting\.yaml:1:9 PV014"):
        explain("C-LIMIT")


def test_last_result_is_taken_from_a_report(project: Project, tmp_path: Path) -> None:
    project("small")
    report = tmp_path / "report.json"
    assert run("validate", "C-LIMIT", "C-WHOLE", "--output", f"json={report}").returncode == 0
    (explained,) = explain("C-LIMIT", report=report)
    assert [result.outcome.value for _, result in explained.last_results] == ["held"]
    done = run("explain", "C-LIMIT", "--report", str(report))
    assert done.returncode == 0, done.stderr
    assert "  last result cpu: held, 100 valid examples, seed " in done.stdout
    assert ": killed\n" in done.stdout
    next_command = "pytest falsifiers/falsify_counting.py --pv-mutant epoch-lost"  # two claims of one file kill it
    assert run("explain", "epoch-lost").stdout.endswith(f"  next        {next_command}\n")


def test_recorded_proof_is_shown_until_its_code_changes(project: Project) -> None:
    folder = project("proofs")
    run("validate", "--record", "--no-mutants", "--only", "H-SHARE")
    record = json.loads(next((folder / "evidence").glob("*.proofs.json")).read_text())
    result = record["results"][0]
    (explained,) = explain(result["falsifier"])
    assert [(record.device, record.changed) for record in explained.recorded] == [("proofs", ())]
    file = next(folder / name for name in result["files"] if name.endswith(".py"))
    file.write_text(file.read_text() + "\nadded = 1\n")
    done = run("explain", result["falsifier"])
    assert f"stale, changed: {file.relative_to(folder)}" in done.stdout


def test_items_of_a_numbered_list_have_lines_of_their_own(project: Project) -> None:
    project("small")
    (explained,) = explain("TR-MASK-003")
    lines = [line for _, line in explained.script_rows]
    assert len(lines) > 3
    assert all(re.search(r"\s\d\. ", line) is None for line in lines)
