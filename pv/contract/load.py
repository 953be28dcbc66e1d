"""Load contracts from files: read, check, build and link them, and return every problem of every file.

A file with an error yields findings and no contract.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pv.contract import build as strict
from pv.contract import existing
from pv.contract.check import check, schema
from pv.contract.finding import Finding, Severity, refusal
from pv.contract.model import Contract, Name
from pv.contract.strict_yaml import Node, Refused, parse
from pv.contract.suites import ALL, OBSERVED, adapter_suites, join_observed, join_suite, suites
from pv.contract.wording import did_you_mean

__all__ = ["Loaded", "is_folder", "load", "load_as", "load_file", "schema"]

FORMATS = ("pv/1",)
NOT_CONTRACTS = {"binding.yaml", "binding.yml", "external-corpora.yaml", "ontology.yaml"}
"""Files of the provable-contracts format that are stored beside contracts and are not contracts."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The well-formed contracts, and the findings of all files."""

    contracts: tuple[Contract, ...]
    findings: tuple[Finding, ...]

    @property
    def refused(self) -> bool:
        """Return whether a file could not be loaded."""
        return any(finding.severity is Severity.REFUSAL for finding in self.findings)


def load(paths: Iterable[str | Path], *, around: Iterable[Path] = ()) -> Loaded:
    """Load contract files, and every `*.yaml` and `*.yml` below folders that is not hidden or in a hidden folder.

    Never raise for the content of a file.

    Args:
        paths: Files and folders.
        around: Files and folders of other contracts, which the loaded contracts may refer to.

    Returns:
        The contracts of `paths`, linked with all contracts, and the findings of `paths`.
    """
    loaded = _load_unlinked(paths)
    loaded_files = {_real_path(contract.location.path) for contract in loaded.contracts}
    neighbours = [
        contract
        for contract in _load_unlinked(path for path in around if path.exists()).contracts
        if _real_path(contract.location.path) not in loaded_files
    ]
    linked = _link([*loaded.contracts, *neighbours])
    return replace(loaded, contracts=linked[: len(loaded.contracts)])


def load_as(files: Mapping[Path, Path]) -> Loaded:
    """Load contract files under other names, such as an old version that was checked out to a temporary folder.

    Args:
        files: The files to load, and the path that locations show in place of each.
    """
    parsed_files = [_parse(path, shown) for path, shown in files.items()]
    contracts = _link(file.contract for file in parsed_files if file.contract is not None)
    return Loaded(contracts, tuple(finding for file in parsed_files if file.is_intended for finding in file.findings))


def _link(contracts: Iterable[Contract]) -> tuple[Contract, ...]:
    """Return copies of the contracts in which `known` maps the ids of all `pv/1` contracts to these copies.

    If two contracts have the same id, `known` has the first.
    """
    # The copies share one dictionary, which is filled after all of them exist.
    by_id: dict[str, Contract] = {}
    linked = tuple(replace(contract, known=by_id) for contract in contracts)
    for contract in linked:
        if contract.strict:
            by_id.setdefault(contract.id, contract)
    return linked


def _load_unlinked(paths: Iterable[str | Path]) -> Loaded:
    """Load contract files as `load` does, but with an empty `known` in every contract."""
    contracts: list[Contract] = []
    findings: list[Finding] = []
    for path in _files([Path(path) for path in paths]):
        file = _parse_cached(path)
        if path.name in NOT_CONTRACTS and not file.is_intended:
            continue
        contracts.extend([file.contract] if file.contract is not None else [])
        findings.extend(file.findings)
    return Loaded(tuple(contracts), tuple(findings))


def load_file(path: Path) -> tuple[Contract | None, list[Finding]]:
    """Return the contract of one file, or None if the file is refused, and the findings of the file."""
    file = _parse_cached(path)
    return file.contract, file.findings


class _ParsedFile(NamedTuple):
    """The contract of a file, None if the file is refused, and the findings.

    Attributes:
        is_intended: Whether the file is intended as a contract. False if its keys are not of a contract format, so it
            may belong to another tool.
    """

    contract: Contract | None
    findings: list[Finding]
    is_intended: bool = True


def _parse_cached(path: Path) -> _ParsedFile:
    try:
        state = path.stat()
    except (OSError, ValueError):
        return _parse(path, shown_path(path))
    return _parse_version(path, shown_path(path), (state.st_mtime_ns, state.st_ctime_ns, state.st_size))


@lru_cache(maxsize=1024)
def _parse_version(path: Path, shown: Path, _: tuple[int, int, int]) -> _ParsedFile:
    """Parse a file. The result is cached by the version of the file, which its times and size identify."""
    return _parse(path, shown)


def _parse(path: Path, shown: Path) -> _ParsedFile:
    """Parse, check and build the contract of one file; locations name the file `shown`."""
    try:
        tree, findings = parse(path, shown)
    except Refused as refused:
        return _ParsedFile(None, [refused.finding])
    schema_key = tree.get("schema")
    if schema_key is None and _has_existing_format(tree):
        findings += check(tree, "existing")
        if any(finding.severity is Severity.REFUSAL for finding in findings):
            return _ParsedFile(None, findings)
        return _ParsedFile(*existing.build(tree, path.stem))
    # A mapping in neither contract format may be another tool's file in the same folder.
    is_intended = schema_key is not None or not isinstance(tree.value, dict) or bool(findings)
    findings += _check_format(tree, schema_key) or check(tree, "contract")
    contract = None if findings else strict.build(tree)
    if contract is not None and contract.suite is not None:
        contract, findings = _with_suite(contract, contract.suite)
    if contract is not None and any(run.claims or run.environment for run in contract.runs):
        contract, findings = _with_observed(contract)
    return _ParsedFile(contract, findings, is_intended)


def _with_suite(contract: Contract, suite_name: Name) -> tuple[Contract | None, list[Finding]]:
    """Return a contract with the claims of its suite, or None if the suite is unknown, and the findings."""
    suite_files = adapter_suites()
    if suite_name.text not in suite_files:
        hint = did_you_mean(suite_name.text, suite_files)
        return None, [refusal("PV012", suite_name.location, f"unknown suite {suite_name.text!r}", hint)]
    suite, findings = load_file(suite_files[suite_name.text])
    return (None if suite is None else join_suite(contract, suite)), findings


def _with_observed(contract: Contract) -> tuple[Contract | None, list[Finding]]:
    """Return a contract with the claims that its runs name, or None if a run is invalid, and the findings."""
    suite, suite_findings = load_file(suites()[OBSERVED])
    if suite is None:
        return None, suite_findings
    findings = []
    claim_ids = [claim.id for claim in suite.falsifiers]
    for run in contract.runs:
        keys = " and ".join(f"`{key}`" for key in ("claims", "environment") if getattr(run, key))
        if run.callable is not None and keys:
            hint = "give the run a `command` in place of its `callable`"
            findings.append(refusal("PV012", run.location, f"run {run.name!r}: {keys} without a `command`", hint))
        elif [name.text for name in run.claims] != [ALL]:
            for name in run.claims:
                if name.text in claim_ids:
                    continue
                message, hint = f"unknown claim {name.text!r} of {OBSERVED}", did_you_mean(name.text, claim_ids)
                findings.append(refusal("PV012", name.location, message, hint))
    return (None if findings else join_observed(contract, suite)), findings


def _has_existing_format(tree: Node) -> bool:
    """Return whether a file without `schema` has the provable-contracts format."""
    # That format uses `falsification_tests`: a file with `falsifiers` is a pv/1 contract that lacks `schema`.
    return isinstance(tree.value, dict) and "metadata" in tree.value and "falsifiers" not in tree.value


def _check_format(tree: Node, schema_key: Node | None) -> list[Finding]:
    if not isinstance(tree.value, dict):
        return [refusal("PV014", tree.location, "not a contract: expected a mapping", "start it with 'schema: pv/1'")]
    if schema_key is None:
        return [refusal("PV014", tree.location, "not a contract: missing key 'schema'", "start it with 'schema: pv/1'")]
    if schema_key.value not in FORMATS:
        text = repr(schema_key.text) if schema_key.text else "(no text)"
        hint = f"this version reads {', '.join(FORMATS)}"
        return [refusal("PV014", schema_key.location, f"unknown format {text}", hint)]
    return []


def is_folder(path: str | Path) -> bool:
    """Return whether a path is a folder; False for a name that is too long for a file."""
    return os.path.isdir(path)  # noqa: PTH112  (Path.is_dir raises for a name that is too long)


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the files, and the contract files below the folders; yield a file once even if several paths lead to it."""
    seen: set[Path] = set()
    for path in paths:
        for file in _yaml_files_below(path) if is_folder(path) else [path]:
            real = _real_path(file)
            if real not in seen:
                seen.add(real)
                yield file


def _real_path(path: Path) -> Path:
    """Return the path without links; unchanged if it is not a valid path, or a link to itself."""
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError):
        return path


def _yaml_files_below(folder: Path) -> list[Path]:
    """Return the YAML files below a folder, and the folders that cannot be listed. Leave out hidden files and folders.

    Reading such a folder as a file fails with a finding, so that its contracts are not silently left out.
    """
    paths: list[Path] = []

    def add_unlisted(error: OSError) -> None:
        paths.append(Path(error.filename))

    # Sorted, because findings and ids follow the order of the files, and the file system lists a folder in any order.
    for top, folders, names in os.walk(folder, onerror=add_unlisted):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths.extend(
            Path(top, name)
            for name in sorted(names)
            if name.lower().endswith((".yaml", ".yml")) and not name.startswith(".")
        )
    return paths


def shown_path(path: Path) -> Path:
    """Return the path as a user would type it: relative to the working directory if it is below that directory."""
    real = _real_path(path)
    return real.relative_to(Path.cwd()) if real.is_relative_to(Path.cwd()) else path
