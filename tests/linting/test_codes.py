"""Every code that loading and lint can give has one broken contract, which raises that code and no other.

A file's last two lines say what its finding points at and what it says; a case that is no text, or that is refused for
its size or place, is made by a function below.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pv.contract.finding import Finding, Severity
from pv.contract.load import load
from pv.linting import CODES, lint
from pv.results.store import read, record_path
from pv.source.project import find_project

BAD = Path(__file__).parents[1] / "bad_contracts"
FILES = sorted(BAD.glob("PV*.yaml"))
PROJECT = find_project(BAD / "project")
TRAILER = re.compile(r"# points at: (?P<token>.+)\n# says: (?P<says>.+)\n\Z")


def findings(*paths: Path) -> list[Finding]:
    loaded = load(paths)
    return [*loaded.findings, *lint(loaded.contracts, project=PROJECT)]


def unreadable_bytes(folder: Path) -> tuple[list[Finding], str]:
    file = folder / "latin-1.yaml"
    file.write_bytes("schema: pv/1\nmetadata: {id: caf\u00e9}\n".encode("latin-1"))
    return findings(file), f"{file}:2:19 PV001 invalid UTF-8: byte 0xe9; save the file as UTF-8"


def broken_evidence(folder: Path) -> tuple[list[Finding], str]:
    (folder / "pyproject.toml").write_text("[tool.pv]\n")
    project = find_project(folder)
    contract = load([BAD / "good.yaml"]).contracts[0]
    file = record_path(project, contract, "cuda")
    file.parent.mkdir()
    file.write_text("[]")
    why = "$: [] is not of type 'object'; delete it, or write it again with --record"
    return read(project, contract, "cuda", dict)[1], f"{file}:1:1 PV170 the evidence file cannot be used: {why}"


GENERATED: dict[str, Callable[[Path], tuple[list[Finding], str]]] = {
    "PV001": unreadable_bytes,
    "PV170": broken_evidence,
}


def test_every_code_has_exactly_one_case() -> None:
    assert sorted([*(path.stem for path in FILES), *GENERATED]) == sorted(CODES)


@pytest.mark.parametrize("case", FILES, ids=lambda path: path.stem)
def test_a_broken_contract_raises_its_code_alone_with_place_and_hint(
    case: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(BAD)  # a message that names another contract gives its path from here
    text = case.read_text(encoding="utf-8")
    expected = TRAILER.search(text)
    assert expected is not None
    (finding,) = findings(Path("good.yaml"), Path(case.name))
    assert str(finding) == f"{case.name}:{expected['says']}"
    assert text.splitlines()[finding.location.line - 1][finding.location.column - 1 :].startswith(expected["token"])
    kind = Severity.NOTICE if case.stem > "PV2" else Severity.REFUSAL if case.stem < "PV1" else Severity.ERROR
    assert (finding.code, finding.severity) == (case.stem, kind)


@pytest.mark.parametrize("code", sorted(GENERATED))
def test_a_case_that_is_no_text_raises_only_its_code(code: str, tmp_path: Path) -> None:
    found, expected = GENERATED[code](tmp_path)
    assert [str(finding) for finding in found] == [expected]
    assert [finding.code for finding in found] == [code]
