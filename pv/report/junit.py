"""The report as JUnit XML: a suite per contract, a case per falsifier and device."""

import re
from xml.etree import ElementTree as ET

from pv.cells import Cell, Outcome
from pv.model import Harness, Severity
from pv.report import words
from pv.verdict import ContractVerdict, Report

# What XML 1.0 cannot hold, not even escaped.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TAGS = {
    Outcome.FALSIFIED: "failure",
    Outcome.VACUOUS: "failure",
    Outcome.ERROR: "error",
    Outcome.UNDECIDED: "skipped",
    Outcome.NOT_CLAIMED: "skipped",
}


def render(report: Report) -> str:
    """JUnit XML. Undecided cells are skipped cases with their reason; a finding of lint is an error of its suite."""
    root = ET.Element("testsuites", name="pv")
    findings = words.loose_findings(report)
    if findings:
        _suite(root, "lint", [_finding(f.code, str(f), f.severity) for f in findings], 0.0)
    for verdict in report.contracts:
        cases = [_case(cell, verdict, report) for cell in verdict.cells]
        seconds = sum(cell.trial.seconds for cell in verdict.cells if cell.trial is not None)
        _suite(root, verdict.contract.id, cases, seconds)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(root: ET.Element, name: str, cases: list[ET.Element], seconds: float) -> None:
    counts = {tag: sum(case.find(tag) is not None for case in cases) for tag in ("failure", "error", "skipped")}
    suite = ET.SubElement(
        root,
        "testsuite",
        name=clean(name),
        tests=str(len(cases)),
        failures=str(counts["failure"]),
        errors=str(counts["error"]),
        skipped=str(counts["skipped"]),
        time=f"{seconds:.3f}",
    )
    suite.extend(cases)


def _case(cell: Cell, verdict: ContractVerdict, report: Report) -> ET.Element:
    seconds = cell.trial.seconds if cell.trial is not None else 0.0
    name = f"{cell.falsifier.id}[{cell.device}]"
    case = ET.Element("testcase", classname=clean(verdict.contract.id), name=clean(name), time=f"{seconds:.3f}")
    tag = _TAGS.get(cell.outcome)
    if tag is not None:
        found = cell.trial.counterexample if cell.trial is not None else None
        message = found.error if found is not None else cell.reason
        element = ET.SubElement(case, tag, message=clean(message), type=cell.outcome.value)
        element.text = clean("\n".join(f"{label}: {text}" for label, text in words.lines(cell, verdict, report)))
    elif isinstance(cell.falsifier, Harness):
        ET.SubElement(case, "system-out").text = clean(cell.reason)
    return case


def _finding(code: str, text: str, severity: Severity) -> ET.Element:
    case = ET.Element("testcase", classname="lint", name=clean(code), time="0")
    ET.SubElement(case, "error", message=clean(text), type=severity.value)
    return case


def clean(text: str) -> str:
    """The text without characters that XML has no way to write."""
    return _ILLEGAL.sub("\ufffd", text)
