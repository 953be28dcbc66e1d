"""From paths to contracts: every problem of every file in one pass; a file with a problem yields no contract."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pv.loading import contract as strict
from pv.loading import existing
from pv.loading.check import check, schema
from pv.loading.strict_yaml import Node, Refused, parse
from pv.model import Contract, Finding, Severity, Where

__all__ = ["Loaded", "load", "load_file", "schema"]

FORMATS = ("pv/1",)
NO_SCHEMA = "this is no contract: it has no 'schema' key"
# Files of the existing format that lie beside contracts and are none.
NO_CONTRACTS = {"binding.yaml", "binding.yml", "external-corpora.yaml", "ontology.yaml"}


@dataclass(frozen=True, slots=True)
class Loaded:
    """The well-formed contracts, and what was found in all files."""

    contracts: tuple[Contract, ...]
    findings: tuple[Finding, ...]

    @property
    def refused(self) -> bool:
        return any(finding.severity is Severity.REFUSAL for finding in self.findings)


def load(paths: Iterable[str | Path]) -> Loaded:
    """Reads contract files, and every `*.yaml` and `*.yml` below folders. Never raises for what a file holds."""
    contracts: list[Contract] = []
    findings: list[Finding] = []
    for path in _files([Path(path) for path in paths]):
        found, problems = load_file(path)
        if path.name in NO_CONTRACTS and found is None and [p.message for p in problems] == [NO_SCHEMA]:
            continue
        contracts.extend([found] if found is not None else [])
        findings.extend(problems)
    return Loaded(tuple(contracts), tuple(findings))


def load_file(path: Path) -> tuple[Contract | None, list[Finding]]:
    """One contract, or None where the file is refused, with everything found in it."""
    shown = shown_path(path)
    try:
        tree, findings = parse(path, shown)
    except Refused as refused:
        return None, [refused.finding]
    form = tree.get("schema")
    if form is None and _is_existing(tree):
        findings += check(tree, "existing")
        if any(f.severity is Severity.REFUSAL for f in findings):
            return None, findings
        contract, notices = existing.build(tree, path.stem)
        return contract, notices
    findings += _check_format(tree, form) or check(tree, "contract")
    return (None if findings else strict.build(tree)), findings


def _is_existing(tree: Node) -> bool:
    """Whether a file without `schema` is of the existing format; with `falsifiers`, somebody forgot the `schema`."""
    return isinstance(tree.value, dict) and "metadata" in tree.value and "falsifiers" not in tree.value


def _check_format(tree: Node, form: Node | None) -> list[Finding]:
    if not isinstance(tree.value, dict):
        return [_refusal(tree.where, "a contract is a mapping, and this file is not")]
    if form is None:
        return [_refusal(tree.where, NO_SCHEMA, "start it with 'schema: pv/1'")]
    if form.value not in FORMATS:
        said = repr(form.text) if form.text else "(no text)"
        return [_refusal(form.where, f"unknown format {said}", f"this version reads {', '.join(FORMATS)}")]
    return []


def _refusal(where: Where, message: str, hint: str = "") -> Finding:
    return Finding(code="PV014", severity=Severity.REFUSAL, where=where, message=message, hint=hint)


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    seen: set[Path] = set()
    for path in paths:
        # Path.is_dir raises for a name that is too long.
        for file in _below(path) if os.path.isdir(path) else [path]:  # noqa: PTH112
            place = _place(file)
            if place not in seen:
                seen.add(place)
                yield file


def _place(path: Path) -> Path:
    """The path without links; as it is where it is no path, or a link to itself."""
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError):
        return path


def _below(folder: Path) -> list[Path]:
    found = []
    for top, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [
            Path(top, name)
            for name in sorted(names)
            if name.lower().endswith((".yaml", ".yml")) and not name.startswith(".")
        ]
    return found


def shown_path(path: Path) -> Path:
    """The path as a user would type it: relative to the working directory where it lies below it."""
    place = _place(path)
    return place.relative_to(Path.cwd()) if place.is_relative_to(Path.cwd()) else path
