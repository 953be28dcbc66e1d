"""The report as SARIF 2.1.0: a result for each finding, failure, weaker requirement and unmet gate."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from urllib.parse import quote

from pv.contract.finding import Location
from pv.errors import ExitCode
from pv.report import View, details, phrases
from pv.report.wrapping import plain
from pv.results import requirements
from pv.results.outcome import Outcome, Result
from pv.results.saved.changes import ChangeKind
from pv.results.verdict import ContractVerdict, Report, Status

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
RuleResult = tuple[dict[str, object], dict[str, object], Location | None]
"""A rule (SARIF's reportingDescriptor), a result of the rule, and the location of the result."""
MAX_RESULTS = 5000  # GitHub's code scanning shows at most 5,000 results of a run, and rejects more than 25,000


def render(report: Report, view: View) -> str:
    """Return one SARIF log: findings, failures (worst first), weaker requirements, unmet gates.

    Claims that hold are left out, because a viewer would list them as alerts.
    """
    results = list(_results(report, view))
    # A SARIF result refers to its rule by index, and several results may share a rule.
    rules = {rule["id"]: rule for rule, _ in results}
    indices = {id_: index for index, id_ in enumerate(rules)}
    shown = [result | {"ruleIndex": indices[result["ruleId"]]} for _, result in results]
    driver = {"name": "pv", "semanticVersion": report.version, "rules": list(rules.values())}
    run = {
        "tool": {"driver": driver},
        "invocations": [_invocation(report, view)],
        "columnKind": "unicodeCodePoints",
        "results": shown,
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1, ensure_ascii=False) + "\n"


def _invocation(report: Report, view: View) -> dict[str, object]:
    """Return SARIF's object for the run of the command: exit code, unmet requirements and notes."""
    notes = [{"level": "note", "message": {"text": plain(note)}} for note in phrases.notes(report) if note]
    unmet = [{"level": "warning", "message": {"text": plain(text)}} for text in requirements.unmet_by_report(report)]
    return {
        "executionSuccessful": report.exit_code in (ExitCode.PASSED, ExitCode.FAILED, ExitCode.UNDECIDED),
        "exitCode": view.exit_code(report),  # includes the comparison with the base
        "toolExecutionNotifications": [*unmet, *notes],
    }


def _results(report: Report, view: View) -> Iterator[tuple[dict[str, object], dict[str, object]]]:
    """Yield at most `MAX_RESULTS` results, each with its rule."""
    all_results = [*_findings(report), *_failures(report, view), *_weaker_requirements(view), *_unmet_gates(report)]
    for rule, result, location in all_results[:MAX_RESULTS]:
        locations = [] if location is None else [{"physicalLocation": _physical_location(location, view.folder)}]
        yield rule, result | {"locations": locations}


def _findings(report: Report) -> Iterator[RuleResult]:
    for finding in phrases.refusals_and_errors(report):
        rule = _rule(finding.code, f"{finding.code}: `pv lint --codes` describes this code")
        message = f"{finding.message}; {finding.hint}" if finding.hint else finding.message
        yield rule, _result(finding.code, "error", message, {"finding": str(finding)}), finding.location


def _failures(report: Report, view: View) -> Iterator[RuleResult]:
    """Yield a result for each failure and each required claim that is undecided, worst first."""
    for outcome in phrases.DETAILED:
        for verdict in report.contracts:
            for result in verdict.results:
                if result.outcome is outcome and (outcome is not Outcome.UNDECIDED or result.required):
                    failure = _failure(result, verdict, view.folder)
                    yield _claim_rule(result, verdict), failure, details.result_location(result, view)


def _claim_rule(result: Result, verdict: ContractVerdict) -> dict[str, object]:
    """Return the rule of a claim, with its prediction and the author's guess at a cause."""
    claim = result.falsifier
    explained = f"`pv explain {claim.id}` describes this claim." if claim.is_of_script else ""
    parts = (claim.rule, claim.prediction and f"Predicted: {claim.prediction}", details.guess(result), explained)
    text = "\n\n".join(part for part in parts if part)
    return _rule(f"{verdict.contract.id}/{claim.id}", claim.rule or claim.id, text)


def _rule(id_: str, short: str, text: str = "") -> dict[str, object]:
    """Return a rule with the descriptions that GitHub requires."""
    full = _message(text or short)
    return {"id": id_, "shortDescription": _message(short), "fullDescription": full, "help": full}


def _failure(result: Result, verdict: ContractVerdict, folder: str) -> dict[str, object]:
    """Return the SARIF result of a failure, with further locations and the commands that reproduce the failure."""
    level = "error" if result.outcome is not Outcome.UNDECIDED and requirements.blocks_gate(result) else "warning"
    lines = [f"{result.outcome.value}{phrases.on_device(result)}"]
    lines += [f"{label}: {text}" for label, text in details.lines(result, verdict)]
    identity = {"contract": verdict.contract.id, "subject": verdict.subject}
    identity |= {"claim": result.falsifier.id, "device": result.device}
    id_ = f"{verdict.contract.id}/{result.falsifier.id}"
    related = [(place, "also here") for place in details.further_locations(result)]
    if not result.falsifier.is_of_script:
        related.append((result.falsifier.location, "the claim"))
    shown = [
        {"physicalLocation": _physical_location(place, folder), "message": {"text": text}} for place, text in related
    ]
    commands = {label: text for label, text in details.lines(result, verdict) if label in ("rerun", "replay")}
    return _result(id_, level, "\n".join(lines), identity) | {"relatedLocations": shown, "properties": commands}


def _weaker_requirements(view: View) -> Iterator[RuleResult]:
    """Yield a result for each requirement that is weaker than in the base, even if a waiver accepts it."""
    compared = view.compared
    for change in compared.changes if compared is not None else ():
        if change.kind in (ChangeKind.WEAKER, ChangeKind.WAIVED) and change.location is not None and compared:
            level = "error" if change in compared.failing else "warning"
            id_ = f"{change.contract}/weaker"
            identity = {"contract": change.contract, "weaker": change.name, "text": change.text}
            message = f"{change.kind.value}: {change.claim or change.name} ({change.place}): {change.text}"
            rule = _rule(id_, f"The contract {change.contract} requires as much as in the base")
            location = details.change_location(change, view) or change.location
            yield rule, _result(id_, level, message, identity), location


def _unmet_gates(report: Report) -> Iterator[RuleResult]:
    """Yield a result for every gate that is not met for a reason other than its claims and findings."""
    for verdict in report.contracts:
        if verdict.status is not Status.PASS and (reasons := requirements.unmet_by_contract(verdict)):
            gate, contract = verdict.contract.gate, verdict.contract
            level = "error" if verdict.status is Status.FAIL else "warning"
            id_ = f"{contract.id}/gate"
            message = f"{phrases.contract_title(verdict)}: {verdict.status.value}: {'; '.join(reasons)}"
            identity = {"gate": contract.id, "subject": verdict.subject}
            rule = _rule(id_, f"The gate of {contract.id} {gate.name}".strip())
            yield rule, _result(id_, level, message, identity), gate.location or contract.location


def _result(rule: str, level: str, text: str, identity: Mapping[str, str]) -> dict[str, object]:
    """Return a SARIF result. GitHub shows results with the same fingerprint, the digest of `identity`, as one alert."""
    # Without line numbers in the fingerprint, an edit above the location does not open a new alert.
    digest = hashlib.sha256(json.dumps(dict(identity), sort_keys=True).encode()).hexdigest()
    return {"ruleId": rule, "level": level, "message": _message(text), "partialFingerprints": {"pv/v1": digest}}


def _physical_location(location: Location, folder: str) -> dict[str, object]:
    """Return the location in SARIF's form; `folder` is the working directory relative to the root of the repository."""
    path = PurePath(folder) / location.path
    uri = quote(path.as_posix().encode("utf-8", "backslashreplace"))
    # A relative path is resolved against the root of the repository; an absolute path is a file outside the repository.
    artifact = {"uri": f"file://{uri}"} if path.is_absolute() else {"uri": uri, "uriBaseId": "%SRCROOT%"}
    return {"artifactLocation": artifact, "region": {"startLine": location.line, "startColumn": location.column}}


def _message(text: str) -> dict[str, str]:
    """Return a SARIF message. Only the syntax of links is escaped, so that users can copy commands from the message."""
    return {"text": plain(text).replace("](", "]\\(")}
