"""The report as JUnit XML: a suite per contract, a case per falsifier and device."""

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from pv.contract.finding import Finding
from pv.engines.registry import engine_of
from pv.report import View, details, phrases
from pv.results import gates
from pv.results.outcome import Outcome, Result
from pv.results.saved.changes import Change
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
    """Return JUnit XML. A case fails if and only if the exit code is not 0.

    1. Findings are errors of the suite `lint`.
    2. Every contract is a suite, with a case for every falsifier and device and a case for the gate.
    3. Undecided results are skipped, with their reason.
    4. The gate fails if the contract does not pass. It is skipped if failed cases are the reason, so that a fault
       counts once.
    """
    root = ET.Element("testsuites", name="pv")
    findings = phrases.refusals_and_errors(report)
    if findings:
        _suite(root, "lint", [_finding(finding) for finding in findings], 0.0)
    for verdict in report.contracts:
        cases = [_case(result, verdict, view) for result in verdict.results]
        seconds = sum(result.trial.seconds for result in verdict.results if result.trial is not None)
        _suite(root, phrases.name(verdict), [*cases, _gate(verdict, cases)], seconds)
    overall = gates.unmet_by_report(report)
    if view.compared is not None and view.compared.failing:
        _suite(root, "baseline", [_weaker(change) for change in view.compared.failing], 0.0)
    if overall:
        _suite(root, "pv", [_failed("pv", "validation", "; ".join(overall), "undecided")], 0.0)
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


def _case(result: Result, verdict: ContractVerdict, view: View) -> ET.Element:
    seconds = result.trial.seconds if result.trial is not None else 0.0
    of_script = result.falsifier.is_of_script
    place = details.result_location(result, view) if of_script else result.falsifier.location
    name = result.falsifier.id if of_script else f"{result.falsifier.id}[{result.device}]"
    case = ET.Element("testcase", classname=clean(phrases.name(verdict)), name=clean(name), time=f"{seconds:.3f}")
    if place is not None:
        case.attrib |= {"file": clean(str(place.path)), "line": str(place.line)}
    tag = _tag(result)
    if (code := details.code_location(result, view)) is not None:
        properties = ET.SubElement(case, "properties")
        ET.SubElement(properties, "property", name="code", value=clean(f"{code.path}:{code.line}"))
    if tag:
        counterexample = result.counterexample
        message = counterexample.error if counterexample is not None else result.reason
        element = ET.SubElement(case, tag, message=clean(message), type=phrases.outcome(result))
        element.text = clean("\n".join(f"{label}: {text}" for label, text in details.lines(result, verdict)))
    elif engine_of(result.falsifier).proves:
        ET.SubElement(case, "system-out").text = clean(result.reason)
    return case


def _tag(result: Result) -> str:
    """Return the element name of a result, "" if it passed; a failure that does not block the gate is skipped."""
    tag = _TAGS.get(result.outcome, "")
    return tag if tag in ("", "skipped") or gates.blocks_gate(result) else "skipped"


def _gate(verdict: ContractVerdict, cases: Sequence[ET.Element]) -> ET.Element:
    """Return the case of the gate; it is skipped if the claims that keep it from passing are failed cases."""
    gate = verdict.contract.gate
    name = f"gate {gate.id}".strip()
    reasons = gates.unmet_requirements(verdict)
    case = ET.Element("testcase", classname=clean(phrases.name(verdict)), name=clean(name), time="0.000")
    shown = any(case.find("failure") is not None or case.find("error") is not None for case in cases)
    if reasons and shown and not gates.unmet_by_contract(verdict):
        ET.SubElement(case, "skipped", message=clean("; ".join(reasons)), type=verdict.status.value)
    elif reasons:
        case = _failed(phrases.name(verdict), name, "; ".join(reasons), verdict.status.value)
    if caveats := "; ".join(phrases.caveats(verdict)):
        ET.SubElement(case, "system-out").text = clean(caveats)
    return case


def _failed(suite: str, name: str, message: str, kind: str) -> ET.Element:
    case = ET.Element("testcase", classname=clean(suite), name=clean(name), time="0.000")
    ET.SubElement(case, "failure", message=clean(message), type=kind)
    return case


def _weaker(change: Change) -> ET.Element:
    name = f"{change.contract} {change.claim or change.name}".strip()
    case = _failed("baseline", name, change.text, change.kind.value)
    if change.location is not None:
        case.attrib |= {"file": clean(str(change.location.path)), "line": str(change.location.line)}
    return case


def _finding(finding: Finding) -> ET.Element:
    case = ET.Element("testcase", classname="lint", name=clean(finding.code), time="0.000")
    case.attrib |= {"file": clean(str(finding.location.path)), "line": str(finding.location.line)}
    ET.SubElement(case, "error", message=clean(str(finding)), type=finding.severity.value)
    return case


def clean(text: str) -> str:
    """Replace characters that XML cannot represent."""
    return _ILLEGAL.sub("\ufffd", text)
