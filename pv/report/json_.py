"""The report as JSON, for programs; its schema is published as `pv schema report`."""

import json
from dataclasses import asdict
from typing import Any

from pv.cells import Cell
from pv.evidence import MutationScore, Trial
from pv.model import Finding, Harness
from pv.report import words
from pv.verdict import ContractVerdict, Report

FORMAT = "pv-report/1"
MAX_OUTPUT = 8192


def render(report: Report) -> str:
    """One JSON object; see `pv schema report`."""
    return json.dumps(data(report), indent=1, ensure_ascii=False) + "\n"


def data(report: Report) -> dict[str, Any]:
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
        "notes": words.notes(report),
        "findings": [finding_data(finding) for finding in report.findings],
        "contracts": [_contract(verdict, report) for verdict in report.contracts],
    }


def _contract(verdict: ContractVerdict, report: Report) -> dict[str, Any]:
    contract = verdict.contract
    return {
        "id": contract.id,
        "version": contract.version,
        "path": str(contract.where.path),
        "status": verdict.status.value,
        "summary": words.summary(verdict),
        "subject": verdict.subject,
        "partial": verdict.partial,
        "mutated": list(contract.places),
        "mutants": {"claimed": sorted(verdict.claimed), "killed": sorted(verdict.killed)},
        "mutation_score": _score(verdict.score) if verdict.score is not None else None,
        "cells": [_cell(cell, report) for cell in verdict.cells],
    }


def _score(score: MutationScore) -> dict[str, Any]:
    lists = {"mutated": list(score.mutated), "changed": list(score.changed)}
    return {**asdict(score), **lists, "value": score.value}


def _cell(cell: Cell, report: Report) -> dict[str, Any]:
    recorded = cell.recorded
    return {
        "falsifier": cell.falsifier.id,
        "device": cell.device,
        "outcome": cell.outcome.value,
        "reason": cell.reason,
        "required": cell.required,
        "rule": cell.falsifier.rule,
        "prediction": cell.falsifier.prediction,
        "if_fails": cell.falsifier.if_fails,
        "harness": _harness(cell.falsifier) if isinstance(cell.falsifier, Harness) else None,
        "line": cell.falsifier.where.line,
        "repeat": words.command(cell, report),
        "trial": _trial(cell.trial) if cell.trial is not None else None,
        "mutants": [{"id": t.mutant, "reached": t.mutant_reached, **_trial(t)} for t in cell.mutants],
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
        "ending": trial.ending.value,
        "detail": trial.detail,
        "valid": trial.valid,
        "invalid": trial.invalid,
        "asked": trial.asked,
        "seed": trial.seed,
        "seconds": round(trial.seconds, 4),
        "peak_mib": trial.peak_mib,
        "output": trial.output.text[-MAX_OUTPUT:],
        "output_bytes": trial.output.size,
        "changes": None if trial.changes is None else asdict(trial.changes),
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
        },
    }


def finding_data(finding: Finding) -> dict[str, Any]:
    """A finding as a JSON object."""
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "path": str(finding.where.path),
        "line": finding.where.line,
        "column": finding.where.column,
        "message": finding.message,
        "hint": finding.hint,
    }
