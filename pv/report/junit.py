"""The report as JUnit XML: a suite per contract, a case per falsifier and device."""

import re
from xml.etree import ElementTree as ET

from pv.contract.finding import Severity
from pv.engines.kinds import kind_of
from pv.report import View, details, phrases
from pv.results.outcome import Outcome, Result
from pv.results.verdict import ContractVerdict, Report

# Characters that XML 1.0 cannot represent, not even escaped.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TAGS = {
    Outcome.FALSIFIED: "failure",
    Outcome.VACUOUS: "failure",
    Outcome.ERROR: "error",
    Outcome.UNDECIDED: "skipped",
    Outcome.NOT_CLAIMED: "skipped",
}


def render(report: Report, view: View) -> str:
    """Return JUnit XML. Undecided results are skipped cases with their reason, findings errors of the suite `lint`."""
    root = ET.Element("testsuites", name="pv")
    findings = phrases.refusals_and_errors(report)
    if findings:
        _suite(root, "lint", [_finding(f.code, str(f), f.severity) for f in findings], 0.0)
    for verdict in report.contracts:
        cases = [_case(result, verdict, report) for result in verdict.results]
        seconds = sum(result.trial.seconds for result in verdict.results if result.trial is not None)
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


def _case(result: Result, verdict: ContractVerdict, report: Report) -> ET.Element:
    seconds = result.trial.seconds if result.trial is not None else 0.0
    name = f"{result.falsifier.id}[{result.device}]"
    case = ET.Element("testcase", classname=clean(verdict.contract.id), name=clean(name), time=f"{seconds:.3f}")
    tag = _TAGS.get(result.outcome)
    if tag is not None:
        found = result.trial.counterexample if result.trial is not None else None
        message = found.error if found is not None else result.reason
        element = ET.SubElement(case, tag, message=clean(message), type=result.outcome.value)
        element.text = clean("\n".join(f"{label}: {text}" for label, text in details.lines(result, verdict)))
    elif kind_of(result.falsifier).proves:
        ET.SubElement(case, "system-out").text = clean(result.reason)
    return case


def _finding(code: str, text: str, severity: Severity) -> ET.Element:
    case = ET.Element("testcase", classname="lint", name=clean(code), time="0")
    ET.SubElement(case, "error", message=clean(text), type=severity.value)
    return case


def clean(text: str) -> str:
    """Return the text with a replacement character for each that XML cannot represent."""
    return _ILLEGAL.sub("\ufffd", text)
