"""The report as JSON, for programs; its schema is published as `pv schema report`."""

import json
from dataclasses import asdict

from pv.contract.claims import Falsifier, Harness
from pv.contract.finding import Finding, Location
from pv.contract.model import Gate, Waiver
from pv.contract.mutants import Edit, Mutant
from pv.engines.registry import engine_of
from pv.report import View, details
from pv.report.figures import set_tolerances
from pv.report.summary import sentence
from pv.results.outcome import Result
from pv.results.saved.report import REPORT_FORMAT
from pv.results.trial import Counterexample, MutationScore, Recorded, RunTrace, Trial
from pv.results.verdict import ContractVerdict, Report

MAX_OUTPUT = 8192


def render(report: Report, view: View) -> str:
    """Return one JSON object, which `pv schema report` describes. A view does not change it."""
    return json.dumps(data(report), indent=1, ensure_ascii=False) + "\n"


def data(report: Report) -> dict[str, object]:
    """Return the report as a JSON object."""
    return {
        "format": REPORT_FORMAT,
        "exit_code": report.exit_code,
        "interrupted": report.interrupted,
        "commit": report.commit,
        **({"edits": report.edits} if report.edits is not None else {}),
        "files": dict(report.files),
        "pv": report.version,
        "python": report.python,
        "hypothesis": report.hypothesis,
        "started": report.started,
        "seconds": report.seconds,  # not rounded: another format would round it again
        "seed": report.seed,
        "devices": {name: {"name": info.name, "torch": info.torch} for name, info in report.devices.items()},
        "project": dict(report.project),
        "unmatched": list(report.unmatched),
        **({"shards": [str(shard) for shard in report.shards]} if report.shards else {}),
        **({"missing_shards": [str(shard) for shard in report.missing]} if report.missing else {}),
        **({"steps": [asdict(step) for step in report.steps]} if report.steps else {}),
        **({"closing": report.closing} if report.closing else {}),
        "notes": list(report.notes),
        "findings": [finding_data(finding) for finding in report.findings],
        "contracts": [_contract(verdict) for verdict in report.contracts],
    }


def _contract(verdict: ContractVerdict) -> dict[str, object]:
    contract = verdict.contract
    return {
        "id": contract.id,
        "version": contract.version,
        "path": str(contract.location.path),
        "strict": contract.strict,
        "status": verdict.status.value,
        "summary": sentence(verdict),
        "subject": verdict.subject,
        "partial": verdict.partial,
        "absent": verdict.absent,
        "repeat": list(verdict.repeat),
        "unclaimed": list(verdict.unclaimed),
        "findings": [finding_data(finding) for finding in verdict.findings],
        "mutation_scope": list(contract.mutation_scope.names),
        "judges": list(contract.mutation_scope.judge_ids),
        "mutants": _mutants(verdict),
        "mutation_score": _score(verdict.score) if verdict.score is not None else None,
        "gate": _gate(contract.gate),
        "claims": [_claim(claim) for claim in contract.claims],
        "declared_mutants": [_declared_mutant(mutant) for mutant in contract.mutants],
        "tolerances": list(set_tolerances(verdict)),
        "runs": [_run(run) for run in verdict.runs],
        **({"definitions": verdict.definitions} if verdict.definitions is not None else {}),
        "waivers": [_waiver(waiver) for waiver in contract.waivers],
        "results": [_result(result, verdict) for result in verdict.results],
    }


def _run(run: RunTrace) -> dict[str, object]:
    events = [{"event": event, "count": number} for event, number in run.events]
    losses = [{"step": step, "loss": loss} for step, loss in run.losses]
    return {"run": run.run, "device": run.device, "seconds": run.seconds, "events": events, "losses": losses}


def _mutants(verdict: ContractVerdict) -> dict[str, object]:
    return {"claimed": sorted(verdict.claimed), "killed": sorted(verdict.killed), "untried": verdict.untried}


def _score(score: MutationScore) -> dict[str, object]:
    lists = {"judges": list(score.judges), "changed": list(score.changed)}
    data = {name: value for name, value in asdict(score).items() if name != "scope"}
    return {**data, "mutation_scope": list(score.scope), **lists, "value": score.value}


def _result(result: Result, verdict: ContractVerdict) -> dict[str, object]:
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
        "repeat": details.command(result, verdict),
        "trial": _trial(result.trial, verdict) if result.trial is not None else None,
        "mutants": [{"id": t.mutant, "reached": t.mutant_reached, **_trial(t, verdict)} for t in result.mutants],
        "recorded": _recorded(recorded) if recorded is not None else None,
        "unjudged": result.unjudged,
        "fewer_examples": result.fewer,
    }


def _recorded(recorded: Recorded) -> dict[str, object]:
    return {
        "hardware": recorded.hardware.name,
        "torch": recorded.hardware.torch,
        "when": recorded.when,
        "commit": recorded.commit,
        "changed": list(recorded.changed),
        "status": recorded.status.value,
        "valid": recorded.valid,
        "detail": recorded.detail,
    }


def _trial(trial: Trial, verdict: ContractVerdict) -> dict[str, object]:
    return {
        "status": trial.status.value,
        "detail": trial.detail,
        "valid": trial.valid,
        "invalid": trial.invalid,
        "asked": trial.asked,
        "seed": trial.seed,
        "seconds": trial.seconds,
        "cpu_seconds": trial.cpu_s,
        "peak_mib": trial.peak_mib,
        "output": trial.output.text[-MAX_OUTPUT:],
        "output_bytes": trial.output.size,
        "equation_mutants": _equation_mutants(trial, verdict),
        "counterexample": _counterexample(trial.counterexample),
        "under_way": _counterexample(trial.current_arguments),
    }


def _counterexample(example: Counterexample | None) -> dict[str, object] | None:
    if example is None:
        return None
    # `asdict` leaves tuples and mappings, which would not compare equal to what is read back.
    lists = {"frames": list(example.frames), "code": [asdict(span) for span in example.code]}
    return asdict(example) | {"arguments": dict(example.arguments), **lists}


def _equation_mutants(trial: Trial, verdict: ContractVerdict) -> dict[str, object] | None:
    if trial.equation_mutants is None:
        return None
    places = [details.place(survivor, verdict) for survivor in trial.equation_mutants.survivors]
    survivors = [
        {**asdict(mutant), "location": _place(place) if place is not None else None}
        for mutant, place in zip(trial.equation_mutants.survivors, places, strict=True)
    ]
    return {**asdict(trial.equation_mutants), "survivors": survivors}


def _place(place: Location) -> dict[str, object]:
    return {"path": str(place.path), "line": place.line, "column": place.column}


def finding_data(finding: Finding) -> dict[str, object]:
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


def _claim(claim: Falsifier) -> dict[str, object]:
    """Return a claim as a JSON object."""
    return {
        "id": claim.id,
        "kind": engine_of(claim).name,
        "rule": claim.rule,
        "prediction": claim.prediction,
        "if_fails": claim.if_fails,
        "test": str(claim.test) if claim.test is not None else None,
        "equation": claim.equation,
        "run": claim.run,
        "devices": list(claim.devices),
        "kills": list(claim.kills),
        "examples": claim.examples,
        "limit": claim.limit_s,
        "path": str(claim.location.path),
        "line": claim.location.line,
        "column": claim.location.column,
        "harness": _harness(claim) if isinstance(claim, Harness) else None,
    }


def _harness(harness: Harness) -> dict[str, object]:
    """Return the box of a harness as a JSON object."""
    return {
        "bounds": dict(harness.bounds),
        "requires": harness.requires,
        "engine": harness.engine,
        "limit": harness.limit_s,
    }


def _declared_mutant(mutant: Mutant) -> dict[str, object]:
    """Return a declared mutant as a JSON object."""
    return {
        "id": mutant.id,
        "fault": mutant.fault,
        "seen_in": mutant.seen_in,
        "change": _change(mutant),
        "path": str(mutant.location.path),
        "line": mutant.location.line,
        "column": mutant.location.column,
    }


def _change(mutant: Mutant) -> dict[str, object]:
    change = mutant.change
    if isinstance(change, Edit):
        occurrence = {} if change.occurrence is None else {"occurrence": change.occurrence}
        return {"function": str(change.function), "find": change.find, "replace": change.replace, **occurrence}
    return {"object": str(change.object), "replacement": str(change.replacement)}


def _gate(gate: Gate) -> dict[str, object]:
    """Return the gate as a JSON object; null means all."""
    return {
        "id": gate.id,
        "name": gate.name,
        "falsifiers": None if gate.falsifiers is None else sorted(gate.falsifiers),
        "mutants": None if gate.mutants is None else sorted(gate.mutants),
        "harnesses": None if gate.harnesses is None else sorted(gate.harnesses),
        "devices": list(gate.devices),
        "fresh": sorted(gate.fresh),
        "mutation_score": gate.mutation_score,
        "equivalents": gate.equivalents,
        "line": gate.location.line if gate.location is not None else None,
    }


def _waiver(waiver: Waiver) -> dict[str, object]:
    """Return a waiver as a JSON object."""
    texts = {name: getattr(waiver, name) for name in ("owner", "reason", "expires", "weaker", "removed")}
    place = waiver.location
    return {**texts, "path": str(place.path), "line": place.line, "column": place.column}
