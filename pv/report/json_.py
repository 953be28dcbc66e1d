"""The report as JSON, for programs; its schema is published as `pv schema report`."""

import json
from dataclasses import asdict
from typing import Any

from pv.contract.claims import Harness
from pv.contract.finding import Finding
from pv.report import View, details, phrases
from pv.report.summary import sentence
from pv.results.outcome import Result
from pv.results.trial import MutationScore, Trial
from pv.results.verdict import ContractVerdict, Report

FORMAT = "pv-report/1"
MAX_OUTPUT = 8192


def render(report: Report, view: View) -> str:
    """Return one JSON object, which `pv schema report` describes. A view does not change it."""
    return json.dumps(data(report), indent=1, ensure_ascii=False) + "\n"


def data(report: Report) -> dict[str, Any]:
    """Return the report as a JSON object."""
    return {
        "format": FORMAT,
        "exit_code": report.exit_code,
        "pv": report.version,
        "python": report.python,
        "hypothesis": report.hypothesis,
        "started": report.started,
        "seconds": round(report.seconds, 3),
        "seed": report.seed,
        "devices": {name: {"name": info.name, "torch": info.torch} for name, info in report.devices.items()},
        "notes": phrases.notes(report),
        "findings": [finding_data(finding) for finding in report.findings],
        "contracts": [_contract(verdict, report) for verdict in report.contracts],
    }


def _contract(verdict: ContractVerdict, report: Report) -> dict[str, Any]:
    contract = verdict.contract
    return {
        "id": contract.id,
        "version": contract.version,
        "path": str(contract.location.path),
        "status": verdict.status.value,
        "summary": sentence(verdict),
        "subject": verdict.subject,
        "partial": verdict.partial,
        "mutation_scope": list(contract.mutation_scope.names),
        "judges": list(contract.mutation_scope.judge_ids),
        "mutants": {"claimed": sorted(verdict.claimed), "killed": sorted(verdict.killed)},
        "mutation_score": _score(verdict.score) if verdict.score is not None else None,
        "results": [_result(result, report) for result in verdict.results],
    }


def _score(score: MutationScore) -> dict[str, Any]:
    lists = {"judges": list(score.judges), "changed": list(score.changed)}
    data = {name: value for name, value in asdict(score).items() if name != "scope"}
    return {**data, "mutation_scope": list(score.scope), **lists, "value": score.value}


def _result(result: Result, report: Report) -> dict[str, Any]:
    recorded = result.recorded
    return {
        "falsifier": result.falsifier.id,
        "device": result.device,
        "outcome": result.outcome.value,
        "reason": result.reason,
        "required": result.required,
        "rule": result.falsifier.rule,
        "prediction": result.falsifier.prediction,
        "if_fails": result.falsifier.if_fails,
        "harness": _harness(result.falsifier) if isinstance(result.falsifier, Harness) else None,
        "line": result.falsifier.location.line,
        "repeat": details.command(result, report),
        "trial": _trial(result.trial) if result.trial is not None else None,
        "mutants": [{"id": t.mutant, "reached": t.mutant_reached, **_trial(t)} for t in result.mutants],
        "recorded": None
        if recorded is None
        else {
            "hardware": recorded.hardware.name,
            "torch": recorded.hardware.torch,
            "when": recorded.when,
            "commit": recorded.commit,
            "changed": list(recorded.changed),
        },
    }


def _harness(harness: Harness) -> dict[str, Any]:
    return {
        "bounds": dict(harness.bounds),
        "requires": harness.requires,
        "engine": harness.engine,
        "limit": harness.limit_s,
    }


def _trial(trial: Trial) -> dict[str, Any]:
    found = trial.counterexample
    return {
        "status": trial.status.value,
        "detail": trial.detail,
        "valid": trial.valid,
        "invalid": trial.invalid,
        "asked": trial.asked,
        "seed": trial.seed,
        "seconds": round(trial.seconds, 4),
        "peak_mib": trial.peak_mib,
        "output": trial.output.text[-MAX_OUTPUT:],
        "output_bytes": trial.output.size,
        "equation_mutants": None if trial.equation_mutants is None else asdict(trial.equation_mutants),
        "counterexample": None
        if found is None
        else {
            "arguments": dict(found.arguments),
            "exact": found.exact,
            "error": found.error,
            "frames": list(found.frames),
            "shrunk": found.shrunk,
            "blob": found.blob,
            "hypothesis": found.hypothesis,
            "call": found.call,
            "printed": found.printed,
        },
    }


def finding_data(finding: Finding) -> dict[str, Any]:
    """Return a finding as a JSON object."""
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "path": str(finding.location.path),
        "line": finding.location.line,
        "column": finding.location.column,
        "message": finding.message,
        "hint": finding.hint,
    }
