"""Read and write recorded evidence: one committed file per contract and device.

A recorded result is valid until its clause or a file that it depends on changes.
"""

import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from jsonschema import Draft202012Validator

from pv.contract import sharing
from pv.contract.check import schema
from pv.contract.finding import Finding, Location, error
from pv.contract.model import Contract, Falsifier, Target
from pv.engines.registry import engine_of
from pv.engines.trial import Trial, TrialStatus
from pv.errors import UsageError
from pv.results.evidence import PROOFS, DeviceInfo, Recorded
from pv.results.own_code import is_dependency
from pv.results.saved.report import Data, Json
from pv.results.worktree import commit_of
from pv.source import imports, resolve
from pv.source.digest import digest_data, digest_file
from pv.source.project import Project

FORMAT = "pv-evidence/1"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The digests that decide whether a recorded result is still valid.

    Attributes:
        clause: Digest of the claim's clause in the contract.
        files: Digests of the files of its code, by path below the root of the project.
    """

    clause: str
    files: Mapping[str, str]


def record_path(project: Project, contract: Contract, device: str) -> Path:
    """Return the path of the evidence file of a contract and device."""
    return project.evidence / f"{contract.id}.{device}.json"


def fingerprint(project: Project, contract: Contract, falsifier: Falsifier, subject: Target) -> Fingerprint:
    """Return the current fingerprint of a falsifier on a subject. Raise `Unbound` if its code cannot be resolved."""
    files = code_files(project, contract, falsifier, subject)
    return Fingerprint(clause_digest(contract, falsifier, subject), digests_with_imports(project, files))


def code_files(project: Project, contract: Contract, falsifier: Falsifier, subject: Target) -> list[Path]:
    """Return the files of a falsifier's test, run and subject. Raise `Unbound` if one of them cannot be resolved."""
    run = engine_of(falsifier).run_of(contract, falsifier)
    bindings = (falsifier.test, run.callable if run is not None else None)
    files = [resolve.function(project, binding).path for binding in bindings if binding is not None]
    return [*files, resolve.target_file(project, subject)]


def digests_with_imports(project: Project, paths: Sequence[Path]) -> dict[str, str]:
    """Return the digests of files and of every project file that they import, by path below the root."""
    files, _ = imports.closure(project, list(paths))
    project_files = sorted(path for path in files if path.is_relative_to(project.root))
    return {path.relative_to(project.root).as_posix(): digest_file(path) for path in project_files}


def clause_digest(contract: Contract, falsifier: Falsifier, subject: Target) -> str:
    """Return the digest of the keys of a falsifier that decide its result."""
    run = engine_of(falsifier).run_of(contract, falsifier)
    test = falsifier.test
    keys: Json = {
        "test": str(test) if test is not None else [falsifier.equation, sharing.executable_equations(contract)],
        "subject": str(subject),
        "examples": falsifier.examples,
        "rule": falsifier.rule,
        "prediction": falsifier.prediction,
        "run": [run.target, dict(run.arguments)] if run is not None else None,
    }
    return digest_data({**keys, **engine_of(falsifier).clause(falsifier)})


def write(
    project: Project,
    contract: Contract,
    device: str,
    hardware: DeviceInfo,
    trials: Mapping[str, Trial],
    fingerprints: Mapping[str, Fingerprint],
    *,
    commit: str | None = None,
) -> Path:
    """Write the evidence file of one contract and device atomically, and return its path.

    Results of other claims of the contract are kept, with the hardware and the date of their measurement.

    Args:
        project: The project whose evidence folder is written.
        contract: The contract of the claims.
        device: The device, or `PROOFS`.
        hardware: The name of the device and the version of PyTorch.
        trials: The new trials by id of the claim.
        fingerprints: The fingerprints of the same claims.
        commit: The commit that was measured; default: the current commit of the project.
    """
    commit = commit_of(project.root) if commit is None else commit
    path = record_path(project, contract, device)
    head = {
        "hardware": hardware.name or platform.machine(),
        "torch": hardware.torch,
        "python": platform.python_version(),
        "when": datetime.now(UTC).date().isoformat(),
        "commit": commit,
    }
    kept = {falsifier.id for falsifier in contract.claims} - trials.keys()
    content, _ = load(path, "evidence")
    old_results = [{**_head(content), **result} for result in content["results"]] if content is not None else []
    # A kept result has its own hardware, versions, date and commit only where these differ from the new head.
    results: list[dict[str, object]] = [
        {name: value for name, value in result.items() if name not in head or value != head[name]}
        for result in old_results
        if result["falsifier"] in kept
    ]
    results += [_result(project, trial, fingerprints[name]) for name, trial in trials.items()]
    evidence: Json = {
        "format": FORMAT,
        "contract": contract.id,
        "device": device,
        **head,
        "renew": f"pv validate --contract {contract.id} {'' if device == PROOFS else f'--device {device} '}--record",
        "results": sorted(results, key=lambda result: str(result["falsifier"])),
    }
    write_atomically(path, json.dumps(evidence, indent=1, ensure_ascii=False) + "\n")
    return path


def _result(project: Project, trial: Trial, fingerprint: Fingerprint) -> dict[str, object]:
    """Return a result as JSON, with the digests of the files that its code imports or that its trial read."""
    # The imports in the code do not include data files, and the files that the trial read do not include modules that
    # were loaded before: record both.
    read = dependency_digests(project, trial.files)
    return {
        "falsifier": trial.falsifier,
        "status": trial.status.value,
        "detail": trial.detail,
        "valid": trial.valid,
        "reached": bool(trial.reached),
        "clause": fingerprint.clause,
        "files": {**read, **fingerprint.files},
    }


def dependency_digests(project: Project, names: Iterable[str]) -> dict[str, str]:
    """Return the digests of the named files that exist and that a result can depend on, by path."""
    dependencies = sorted(name for name in names if is_dependency(project.root / name))
    return {name: digest for name in dependencies if (digest := _digest(project, name))}


def _digest(project: Project, name: str) -> str:
    """Return the current digest of a file; "" if it does not exist."""
    path = project.root / name
    return digest_file(path) if path.is_file() else ""


def _head(content: Mapping[str, object]) -> dict[str, object]:
    """Return hardware, versions, date and commit of an evidence file, the defaults for the values of its results."""
    return {name: content[name] for name in ("hardware", "torch", "python", "when", "commit")}


def refuse_unwritable(project: Project) -> None:
    """Raise `UsageError` if no file can be written to the evidence folder.

    Call this function before a long measurement. It removes the folders that it creates, since there may be nothing to
    record.
    """
    probe = project.evidence / f".tmp{os.getpid()}"
    created = [folder for folder in (project.evidence, *project.evidence.parents) if not folder.exists()]
    try:
        write_atomically(probe, "")
        probe.unlink()
    except OSError as error:
        raise UsageError(f"cannot record results below {project.evidence}: {error.strerror}") from error
    finally:
        for folder in created:
            with suppress(OSError):
                folder.rmdir()


def write_atomically(path: Path, text: str) -> None:
    """Write a file atomically. Raise OSError with the name of the file, even if the disk is full."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Write beside the target, flush to the disk, then rename: a reader sees the old file or the new one.
    temporary = path.with_suffix(f".tmp{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error


def read(
    project: Project, contract: Contract, device: str, fingerprints: Callable[[], Mapping[str, Fingerprint]]
) -> tuple[dict[tuple[str, str], Recorded], list[Finding]]:
    """Return the recorded results of a contract on a device, and a finding if the file is damaged.

    Args:
        project: The project with the evidence folder.
        contract: The contract.
        device: The device, or `PROOFS`.
        fingerprints: Returns the current fingerprints. It is slow, so it is called only if there is a valid file.
    """
    path = record_path(project, contract, device)
    content, problems = load(path, "evidence")
    if content is None:
        return {}, problems
    if (content["contract"], content["device"]) != (contract.id, device):
        return {}, [damaged_finding(path, f"it is evidence of {content['contract']} on {content['device']}")]
    return dict(_recorded(project, content, fingerprints())), []


def load(path: Path, form: str, renew: str = "--record") -> tuple[Json | None, list[Finding]]:
    """Read a file in the evidence folder.

    Args:
        path: The file.
        form: The name of its JSON schema.
        renew: The command or option that writes the file again.

    Returns:
        The content, or None if the file is missing or damaged; and a finding if the file is damaged.
    """
    try:
        content: Json = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None, []
    except (OSError, ValueError, RecursionError) as error:  # RecursionError: too deep nesting
        return None, [damaged_finding(path, str(error), renew)]
    problem = next(Draft202012Validator(schema(form)).iter_errors(content), None)
    if problem is None:
        return content, []
    return None, [damaged_finding(path, f"{problem.json_path}: {problem.message[:200]}", renew)]


def damaged_finding(path: Path, reason: str, renew: str = "--record") -> Finding:
    """Return the finding about an evidence file that cannot be used."""
    hint = f"delete it, or write it again with {renew}"
    return error("PV170", Location(path), f"the evidence file cannot be used: {reason}", hint)


def _recorded(
    project: Project, content: Data, fingerprints: Mapping[str, Fingerprint]
) -> Iterator[tuple[tuple[str, str], Recorded]]:
    """Yield the key and the record of every result of an evidence file whose claim still exists."""
    for item in content["results"]:
        result = {**_head(content), **item}
        fingerprint = fingerprints.get(result["falsifier"])
        if fingerprint is not None:
            record = Recorded(
                falsifier=result["falsifier"],
                device=content["device"],
                status=TrialStatus(result["status"]),
                valid=result["valid"],
                detail=result["detail"],
                when=result["when"],
                hardware=DeviceInfo(name=result["hardware"], torch=result["torch"]),
                commit=result["commit"],
                reached=result["reached"],
                changed=tuple(changed_files(project, result, fingerprint)),
            )
            yield (record.falsifier, record.device), record


def changed_files(project: Project, result: Data, fingerprint: Fingerprint) -> list[str]:
    """Return the files that changed since a result was recorded.

    The first item is "the contract's clause" if the clause of the claim changed.

    Args:
        project: The project.
        result: The recorded result as JSON.
        fingerprint: The current fingerprint of the claim.
    """
    # Compare also the files of one side: an import may have been added, or a recorded file deleted. If an import was
    # removed, the file that contained the import has changed.
    recorded = {name: digest for name, digest in result["files"].items() if is_dependency(project.root / name)}
    names = {*recorded, *fingerprint.files}
    current = {name: fingerprint.files.get(name) or _digest(project, name) for name in names}
    files = sorted(name for name, digest in current.items() if recorded.get(name) != digest)
    return files if result["clause"] == fingerprint.clause else ["the contract's clause", *files]
