"""Loads contracts from files, with every problem of every file; a file with an error yields no contract."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from pv.contract import build as strict
from pv.contract import existing
from pv.contract.check import check, schema
from pv.contract.finding import Finding, Severity, refusal
from pv.contract.model import Contract
from pv.contract.mutants import Name
from pv.contract.strict_yaml import Node, Refused, parse
from pv.contract.suites import ALL, OBSERVED, adapter_suites, join_observed, join_suite, suites
from pv.contract.wording import did_you_mean

__all__ = ["Loaded", "is_folder", "load", "load_as", "load_file", "schema"]

FORMATS = ("pv/1",)
# Files of the existing format that are stored beside contracts and are not contracts.
NO_CONTRACTS = {"binding.yaml", "binding.yml", "external-corpora.yaml", "ontology.yaml"}


@dataclass(frozen=True, slots=True)
class Loaded:
    """The well-formed contracts, and what was found in all files."""

    contracts: tuple[Contract, ...]
    findings: tuple[Finding, ...]

    @property
    def refused(self) -> bool:
        return any(finding.severity is Severity.REFUSAL for finding in self.findings)


def load(paths: Iterable[str | Path], *, around: Iterable[Path] = ()) -> Loaded:
    """Load contract files, and every `*.yaml` and `*.yml` below folders. Never raise for the content of a file.

    around: the files and folders of other contracts, which the loaded ones may name.
    """
    read = _read(paths)
    mine = {_place(contract.location.path) for contract in read.contracts}
    others = [c for c in _read(p for p in around if p.exists()).contracts if _place(c.location.path) not in mine]
    return replace(read, contracts=_linked([*read.contracts, *others])[: len(read.contracts)])


def load_as(files: Mapping[Path, Path]) -> Loaded:
    """Load contract files that stand in for others; locations name for each file the path that is given for it."""
    read = [_parsed(path, shown) for path, shown in files.items()]
    contracts = _linked(contract for contract, _, _ in read if contract is not None)
    return Loaded(contracts, tuple(finding for _, findings, meant in read if meant for finding in findings))


def _linked(contracts: Iterable[Contract]) -> tuple[Contract, ...]:
    """Return the contracts, each with all of them by id as `known`; of two with one id, the first."""
    known: dict[str, Contract] = {}
    found = tuple(replace(contract, known=known) for contract in contracts)
    for contract in found:
        if contract.strict:
            known.setdefault(contract.id, contract)
    return found


def _read(paths: Iterable[str | Path]) -> Loaded:
    contracts: list[Contract] = []
    findings: list[Finding] = []
    for path in _files([Path(path) for path in paths]):
        found, problems, has_schema = _load(path)
        if path.name in NO_CONTRACTS and not has_schema:
            continue
        contracts.extend([found] if found is not None else [])
        findings.extend(problems)
    return Loaded(tuple(contracts), tuple(findings))


def load_file(path: Path) -> tuple[Contract | None, list[Finding]]:
    """Return one contract, or None where the file is refused, with everything found in it."""
    contract, findings, _ = _load(path)
    return contract, findings


def _load(path: Path) -> tuple[Contract | None, list[Finding], bool]:
    """Return what `load_file` does, and whether the file says or shows that it is meant as a contract."""
    try:
        state = path.stat()
    except (OSError, ValueError):
        return _parsed(path, shown_path(path))
    return _unchanged(path, shown_path(path), (state.st_mtime_ns, state.st_ctime_ns, state.st_size))


@lru_cache(maxsize=1024)
def _unchanged(path: Path, shown: Path, _: tuple[int, int, int]) -> tuple[Contract | None, list[Finding], bool]:
    return _parsed(path, shown)


def _parsed(path: Path, shown: Path) -> tuple[Contract | None, list[Finding], bool]:
    try:
        tree, findings = parse(path, shown)
    except Refused as refused:
        return None, [refused.finding], True
    form = tree.get("schema")
    if form is None and _is_existing(tree):
        findings += check(tree, "existing")
        if any(f.severity is Severity.REFUSAL for f in findings):
            return None, findings, True
        return (*existing.build(tree, path.stem), True)
    foreign = form is None and isinstance(tree.value, dict) and not findings
    findings += _check_format(tree, form) or check(tree, "contract")
    contract = None if findings else strict.build(tree)
    if contract is not None and contract.suite is not None:
        contract, findings = _with_suite(contract, contract.suite)
    if contract is not None and any(run.claims or run.environment for run in contract.runs):
        contract, findings = _with_observed(contract)
    return contract, findings, not foreign


def _with_suite(contract: Contract, named: Name) -> tuple[Contract | None, list[Finding]]:
    known = adapter_suites()
    if named.text not in known:
        hint = did_you_mean(named.text, known)
        return None, [refusal("PV012", named.location, f"unknown suite {named.text!r}", hint)]
    suite, findings = load_file(known[named.text])
    return (None if suite is None else join_suite(contract, suite)), findings


def _with_observed(contract: Contract) -> tuple[Contract | None, list[Finding]]:
    """Return a contract with the claims that its runs name, or None with what is wrong with these runs."""
    suite, problems = load_file(suites()[OBSERVED])
    if suite is None:
        return None, problems
    findings = []
    known = [claim.id for claim in suite.falsifiers]
    for run in contract.runs:
        if run.callable is not None:
            keys = " and ".join(f"`{key}`" for key in ("claims", "environment") if getattr(run, key))
            hint = "give the run a `command` in place of its `callable`"
            findings.append(refusal("PV012", run.location, f"run {run.name!r}: {keys} without a `command`", hint))
        elif [name.text for name in run.claims] != [ALL]:
            unknown = (name for name in run.claims if name.text not in known)
            findings += [
                refusal("PV012", n.location, f"unknown claim {n.text!r} of {OBSERVED}", did_you_mean(n.text, known))
                for n in unknown
            ]
    return (None if findings else join_observed(contract, suite)), findings


def _is_existing(tree: Node) -> bool:
    """Return whether a file without `schema` is of the existing format; one with `falsifiers` lacks its `schema`."""
    return isinstance(tree.value, dict) and "metadata" in tree.value and "falsifiers" not in tree.value


def _check_format(tree: Node, form: Node | None) -> list[Finding]:
    if not isinstance(tree.value, dict):
        return [refusal("PV014", tree.location, "not a contract: expected a mapping", "start it with 'schema: pv/1'")]
    if form is None:
        return [refusal("PV014", tree.location, "not a contract: missing key 'schema'", "start it with 'schema: pv/1'")]
    if form.value not in FORMATS:
        text = repr(form.text) if form.text else "(no text)"
        return [refusal("PV014", form.location, f"unknown format {text}", f"this version reads {', '.join(FORMATS)}")]
    return []


def is_folder(path: str | Path) -> bool:
    """Return whether a path is a folder, also for a name that is too long for a file."""
    return os.path.isdir(path)  # noqa: PTH112  (Path.is_dir raises for a name that is too long)


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    seen: set[Path] = set()
    for path in paths:
        for file in _below(path) if is_folder(path) else [path]:
            place = _place(file)
            if place not in seen:
                seen.add(place)
                yield file


def _place(path: Path) -> Path:
    """Return the path without links; unchanged if it is not a valid path, or a link to itself."""
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError):
        return path


def _below(folder: Path) -> list[Path]:
    """Return the YAML files below a folder, and the folders that cannot be listed, which are refused when read."""
    found: list[Path] = []

    def note(error: OSError) -> None:
        found.append(Path(error.filename))

    for top, folders, names in os.walk(folder, onerror=note):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found.extend(
            Path(top, name)
            for name in sorted(names)
            if name.lower().endswith((".yaml", ".yml")) and not name.startswith(".")
        )
    return found


def shown_path(path: Path) -> Path:
    """Return the path as a user would type it: relative to the working directory if it is below that."""
    place = _place(path)
    return place.relative_to(Path.cwd()) if place.is_relative_to(Path.cwd()) else path
