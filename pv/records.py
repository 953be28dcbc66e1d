"""Evidence from other machines: one committed file per contract and device, good while all it rests on is unchanged."""

import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from pv import binding
from pv.canonical import digest_data, digest_file
from pv.evidence import PROOFS, DeviceInfo, Ending, Recorded, Trial
from pv.loading.check import schema
from pv.model import Contract, Falsifier, Finding, Harness, Severity, Target, Where
from pv.project import Project

FORMAT = "pv-evidence/1"


@dataclass(frozen=True, slots=True)
class Basis:
    """The digests that a cell's evidence rests on: its clause, and every file that its code comes from."""

    clause: str
    files: Mapping[str, str]


def record_path(project: Project, contract: Contract, device: str) -> Path:
    return project.evidence / f"{contract.id}.{device}.json"


def basis(project: Project, contract: Contract, falsifier: Falsifier, subject: Target) -> Basis:
    """What evidence for `falsifier` on `subject` rests on now. Raises Unbound."""
    return Basis(clause(contract, falsifier, subject), digests(project, paths(project, contract, falsifier, subject)))


def paths(project: Project, contract: Contract, falsifier: Falsifier, subject: Target) -> list[Path]:
    """The files that a falsifier's code starts from. Raises Unbound."""
    run = contract.run(falsifier.run) if falsifier.run is not None else None
    bound = [*([falsifier.test] if falsifier.test else []), *([run.callable] if run is not None else [])]
    return [*(binding.function(project, b).path for b in bound), binding.target_file(project, subject)]


def digests(project: Project, paths: Sequence[Path]) -> dict[str, str]:
    """The digest of each file of the project that `paths` are or import, by its path below the root."""
    files, _ = binding.closure(project, list(paths))
    return {path.relative_to(project.root).as_posix(): digest_file(path) for path in sorted(files)}


def clause(contract: Contract, falsifier: Falsifier, subject: Target) -> str:
    """The digest of what the contract says of a falsifier."""
    run = contract.run(falsifier.run) if falsifier.run is not None else None
    said: dict[str, Any] = {
        "test": str(falsifier.test) if falsifier.test is not None else [falsifier.equation, contract.executable],
        "subject": str(subject),
        "examples": falsifier.examples,
        "rule": falsifier.rule,
        "prediction": falsifier.prediction,
        "run": [str(run.callable), dict(run.arguments)] if run is not None else None,
    }
    if isinstance(falsifier, Harness):
        said["box"] = [dict(falsifier.bounds), falsifier.requires, falsifier.engine]
    return digest_data(said)


def write(
    project: Project,
    contract: Contract,
    device: str,
    hardware: DeviceInfo,
    trials: Mapping[str, Trial],
    bases: Mapping[str, Basis],
) -> Path:
    """Writes the evidence file of one contract and device whole or not at all. Cells not tried now are kept."""
    path = record_path(project, contract, device)
    kept = [cell for cell in _cells(path) if cell["falsifier"] not in trials]
    known = {falsifier.id for falsifier in contract.claims}
    cells = [cell for cell in kept if cell["falsifier"] in known]
    cells += [_cell(project, trial, bases[name]) for name, trial in trials.items()]
    content = {
        "format": FORMAT,
        "contract": contract.id,
        "device": device,
        "hardware": hardware.name or platform.machine(),
        "torch": hardware.torch,
        "python": platform.python_version(),
        "when": datetime.now(UTC).date().isoformat(),
        "commit": commit_of(project.root),
        "renew": f"pv validate --contract {contract.id} {'' if device == PROOFS else f'--device {device} '}--record",
        "cells": sorted(cells, key=lambda cell: str(cell["falsifier"])),
    }
    write_whole(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return path


def _cell(project: Project, trial: Trial, basis: Basis) -> dict[str, Any]:
    """A cell rests on what its code imports, and on whatever else of the project was read while it ran."""
    read = digests_of(project, trial.files)
    return {
        "falsifier": trial.falsifier,
        "ending": trial.ending.value,
        "detail": trial.detail,
        "valid": trial.valid,
        "reached": bool(trial.reached),
        "clause": basis.clause,
        "files": {**read, **basis.files},
    }


def digests_of(project: Project, names: Iterable[str]) -> dict[str, str]:
    """The digest of each of these files that is there, by its path below the root."""
    return {name: digest for name in sorted(names) if (digest := _digest(project, name))}


def _digest(project: Project, name: str) -> str:
    """The digest of a file as it is now; "" where there is none."""
    path = project.root / name
    return digest_file(path) if path.is_file() else ""


def _cells(path: Path) -> list[dict[str, Any]]:
    """The cells of an evidence file that is there and sound; a broken one is written anew."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    sound = Draft202012Validator(schema("evidence")).is_valid(content)
    cells: list[dict[str, Any]] = content["cells"] if sound else []
    return cells


def write_whole(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".tmp{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def commit_of(root: Path) -> str:
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, timeout=10)
        dirty = subprocess.run(["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "") if head.returncode == 0 else ""


def read(
    project: Project, contract: Contract, device: str, bases: Callable[[], Mapping[str, Basis]]
) -> tuple[dict[tuple[str, str], Recorded], list[Finding]]:
    """The recorded cells of a contract on a device, each with what has changed since. A broken file is a finding."""
    path = record_path(project, contract, device)
    if not path.exists():
        return {}, []
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return {}, [broken(path, str(error))]
    problem = next(Draft202012Validator(schema("evidence")).iter_errors(content), None)
    if problem is not None:
        return {}, [broken(path, f"{problem.json_path}: {problem.message[:200]}")]
    if (content["contract"], content["device"]) != (contract.id, device):
        return {}, [broken(path, f"it is evidence of {content['contract']} on {content['device']}")]
    return dict(_recorded(project, content, bases())), []


def broken(path: Path, why: str, renew: str = "--record") -> Finding:
    return Finding(
        code="PV170",
        severity=Severity.ERROR,
        where=Where(path),
        message=f"the evidence file cannot be used: {why}",
        hint=f"delete it, or write it again with {renew}",
    )


def _recorded(
    project: Project, content: Mapping[str, Any], bases: Mapping[str, Basis]
) -> Iterator[tuple[tuple[str, str], Recorded]]:
    hardware = DeviceInfo(name=content["hardware"], torch=content["torch"])
    for cell in content["cells"]:
        now = bases.get(cell["falsifier"])
        if now is not None:
            key = (cell["falsifier"], content["device"])
            yield (
                key,
                Recorded(
                    falsifier=cell["falsifier"],
                    device=content["device"],
                    ending=Ending(cell["ending"]),
                    valid=cell["valid"],
                    detail=cell["detail"],
                    when=content["when"],
                    hardware=hardware,
                    commit=content["commit"],
                    reached=cell["reached"],
                    changed=tuple(changed(project, cell, now)),
                ),
            )


def changed(project: Project, cell: Mapping[str, Any], now: Basis) -> list[str]:
    """What differs between the recorded basis and this tree: files by name, the clause as "the contract's clause"."""
    then = cell["files"]
    today = {name: now.files.get(name) or _digest(project, name) for name in {*then, *now.files}}
    files = sorted(name for name, digest in today.items() if then.get(name) != digest)
    return files if cell["clause"] == now.clause else ["the contract's clause", *files]
