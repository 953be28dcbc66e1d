"""The report as JUnit XML: a suite per contract, a case per falsifier and device."""

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from pv.contract.finding import Finding, Location
from pv.engines.registry import engine_of
from pv.report import View, details, phrases
from pv.results import requirements
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
    """Return JUnit XML. At least one case fails if and only if the exit code is not 0.

    1. Findings are errors of the suite `lint`.
    2. Every contract is a suite, with a case for every falsifier and device and a case for the gate.
    3. Results that are undecided or not claimed, and failures that do not block the gate, are skipped, with their
       reason.
    4. The case of the gate fails if the contract does not pass. If failed cases are the only reason, the case of the
       gate is skipped, so that a fault counts once.
    5. Changes that fail the comparison with the base are failed cases of the suite `baseline`; unmet requirements of
       the whole report are one failed case of the suite `pv`.
    """
    root = ET.Element("testsuites", name="pv")
    if findings := phrases.refusals_and_errors(report):
        _suite(root, "lint", [_finding_case(finding) for finding in findings], 0.0)
    for verdict in report.contracts:
        cases = [_result_case(result, verdict, view) for result in verdict.results]
        seconds = sum(result.trial.seconds for result in verdict.results if result.trial is not None)
        _suite(root, phrases.contract_name(verdict), [*cases, _gate_case(verdict, cases)], seconds)
    if view.compared is not None and view.compared.failing:
        _suite(root, "baseline", [_weaker_case(change) for change in view.compared.failing], 0.0)
    if unmet := requirements.unmet_by_report(report):
        _suite(root, "pv", [_failed_case("pv", "validation", "; ".join(unmet), "undecided")], 0.0)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(root: ET.Element, name: str, cases: list[ET.Element], seconds: float) -> None:
    """Append a suite with its cases to the root."""
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


def _result_case(result: Result, verdict: ContractVerdict, view: View) -> ET.Element:
    seconds = result.trial.seconds if result.trial is not None else 0.0
    claim = result.falsifier
    name = f"{claim.id}[{result.device}]"
    location: Location | None = claim.location
    if claim.is_of_script:  # the user has no contract: show the line of the script
        name, location = claim.id, details.result_location(result, view)
    class_name = clean(phrases.contract_name(verdict))
    case = ET.Element("testcase", classname=class_name, name=clean(name), time=f"{seconds:.3f}")
    _set_location(case, location)
    if (code := details.code_location(result, view)) is not None:
        properties = ET.SubElement(case, "properties")
        ET.SubElement(properties, "property", name="code", value=clean(f"{code.path}:{code.line}"))
    if tag := _tag(result):
        counterexample = result.counterexample
        message = counterexample.error if counterexample is not None else result.reason
        element = ET.SubElement(case, tag, message=clean(message), type=phrases.outcome_text(result))
        element.text = clean("\n".join(f"{label}: {text}" for label, text in details.lines(result, verdict)))
    elif engine_of(claim).proves:
        ET.SubElement(case, "system-out").text = clean(result.reason)
    return case


def _tag(result: Result) -> str:
    """Return the element name of a result, "" if it passed."""
    tag = _TAGS.get(result.outcome, "")
    # A failure that does not block the gate must not fail the build.
    return "skipped" if tag and not requirements.blocks_gate(result) else tag


def _set_location(case: ET.Element, location: Location | None) -> None:
    if location is not None:
        case.attrib |= {"file": clean(str(location.path)), "line": str(location.line)}


def _gate_case(verdict: ContractVerdict, cases: Sequence[ET.Element]) -> ET.Element:
    """Return the case of the gate, which passes, fails or is skipped as `render` describes."""
    gate = verdict.contract.gate
    name = f"gate {gate.id}".strip()
    reasons = requirements.unmet_requirements(verdict)
    case = ET.Element("testcase", classname=clean(phrases.contract_name(verdict)), name=clean(name), time="0.000")
    case_failed = any(case.find("failure") is not None or case.find("error") is not None for case in cases)
    if reasons and case_failed and not requirements.unmet_by_contract(verdict):
        ET.SubElement(case, "skipped", message=clean("; ".join(reasons)), type=verdict.status.value)
    elif reasons:
        case = _failed_case(phrases.contract_name(verdict), name, "; ".join(reasons), verdict.status.value)
    if caveats := "; ".join(phrases.caveats(verdict)):
        ET.SubElement(case, "system-out").text = clean(caveats)
    return case


def _failed_case(suite: str, name: str, message: str, kind: str) -> ET.Element:
    case = ET.Element("testcase", classname=clean(suite), name=clean(name), time="0.000")
    ET.SubElement(case, "failure", message=clean(message), type=kind)
    return case


def _weaker_case(change: Change) -> ET.Element:
    name = f"{change.contract} {change.claim or change.name}".strip()
    case = _failed_case("baseline", name, change.text, change.kind.value)
    _set_location(case, change.location)
    return case


def _finding_case(finding: Finding) -> ET.Element:
    case = ET.Element("testcase", classname="lint", name=clean(finding.code), time="0.000")
    _set_location(case, finding.location)
    ET.SubElement(case, "error", message=clean(str(finding)), type=finding.severity.value)
    return case


def clean(text: str) -> str:
    """Replace characters that XML cannot represent."""
    return _ILLEGAL.sub("\ufffd", text)
