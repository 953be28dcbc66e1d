"""A saved report is read back unchanged; damaged files and files of other versions are refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pv.contract.finding import Finding, Location, Severity
from pv.contract.model import Gate, Harness, MutationScope, Name
from pv.engines.trial import EquationMutants
from pv.errors import UsageError
from pv.report import render
from pv.results.evidence import MutationScore, RunTrace
from pv.results.saved import report as saved
from pv.results.verdict import Report
from tests.report.handmade import MISSED, PLAIN, REPORTS, report, report_of_equation

HERE = Location(Path("c.yaml"), 4, 2)


def full() -> Report:
    """Return a report of a contract in which every field is set."""
    verdict = PLAIN.contracts[0]
    box = Harness(id="H", rule="r", if_fails="i", location=HERE, bounds={"n": "0..3"}, requires="n > 0", engine="both")
    scope = MutationScope(modules=(Name(text="tiny", location=HERE),), judges=(Name(text="d", location=HERE),))
    required: dict[str, Any] = {"mutation_score": 0.9, "equivalents": 0.1, "fresh": frozenset({"cuda"})}
    gate = Gate(id="G", name="g", falsifiers=frozenset({"F-HELD"}), location=replace(HERE, column=1), **required)
    score = MutationScore(total=9, judged=8, killed=7, sampled=9, scope=("tiny",), judges=("d",), when="2026-11-20")
    finding = Finding(code="PV101", severity=Severity.ERROR, location=HERE, message="m", hint="h")
    contract = replace(verdict.contract, harnesses=(box,), gate=gate, mutation_scope=scope)
    trace = RunTrace(run="whole", device="cpu", seconds=1.5, events=(("step", 3),), losses=((1.0, 0.5), (2.0, 0.25)))
    filled = replace(verdict, contract=contract, score=score, findings=(finding,), runs=(trace,), repeat=("--seed 3",))
    fields: dict[str, Any] = {"contracts": (replace(filled, subject="x"),), "findings": (*PLAIN.findings, finding)}
    return replace(PLAIN, **fields, unmatched=("--only X",), project={"c": "c.yaml"})


def write_report(report: Report, folder: Path) -> Path:
    path = folder / "results.json"
    path.write_text(render(report, "json"))
    return path


TOLERANCE = {"why": "w", "relative": 1}
SAVED = {
    **REPORTS,
    "full": full(),
    "long": report("first" + 9000 * "x" + "last"),  # more than is saved of an output
    "changed": replace(PLAIN, commit="1+", edits="12", files={"own.py": "1"}),
    "survivor": report_of_equation(EquationMutants(killed=1, total=2, survivors=(MISSED,))),
    "equation": report_of_equation(EquationMutants(killed=1, total=2, survivors=(MISSED,)), tolerance=TOLERANCE),
}


@pytest.mark.parametrize("name", SAVED)
def test_report_that_is_read_back_is_formatted_as_the_original(name: str, tmp_path: Path) -> None:
    again = saved.load(write_report(SAVED[name], tmp_path))
    for form in ("json", "text", "markdown", "junit"):
        assert render(again, form, verbose=True) == render(SAVED[name], form, verbose=True), form
    assert (again.exit_code, again.edits) == (SAVED[name].exit_code, SAVED[name].edits)
    assert again.files == SAVED[name].files
    for read, verdict in zip(again.contracts, SAVED[name].contracts, strict=True):
        assert (read.contract.gate, read.contract.claims) == (verdict.contract.gate, verdict.contract.claims)


def with_unknown_claim(content: Any) -> Any:
    content["contracts"][0]["results"][0]["falsifier"] = "F-OTHER"
    return content


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda c: c | {"format": "pv-report/1"}, "expected format 'pv-report/2', found 'pv-report/1'"),
        (lambda c: c | {"format": "pv-comparison/1"}, "found 'pv-comparison/1'"),
        (lambda c: [c], "found None"),
        (lambda c: c | {"seed": "0"}, "is damaged: $.seed: '0' is not of type 'integer'"),
        (lambda c: {k: c[k] for k in c if k != "contracts"}, "is damaged: $: 'contracts' is a required property"),
        (lambda c: c | {"exit_code": 0}, "is damaged: its exit code is 0, its contracts give 3"),
        (with_unknown_claim, "is damaged: contract 'c' has a result of an unknown claim 'F-OTHER'"),
    ],
)
def test_other_version_and_damaged_file_are_refused(edit: Callable[[Any], Any], message: str, tmp_path: Path) -> None:
    path = write_report(PLAIN, tmp_path)
    path.write_text(json.dumps(edit(json.loads(path.read_text()))))
    with pytest.raises(UsageError, match=r"results\.json") as error:
        saved.load(path)
    assert message in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"format": '])
def test_truncated_file_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"results.json cannot be read as a report"):
        saved.load(path)


def test_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(b"\xff{")
    with pytest.raises(UsageError, match=r"cannot read .*results\.json: not UTF-8"):
        saved.load(path)
