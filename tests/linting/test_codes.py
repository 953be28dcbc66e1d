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
REFUSALS = {code for code in CODES if code < "PV1"}
NOTICES = {code for code in CODES if code > "PV2"}
TRAILER = re.compile(r"# points at: (?P<token>.+)\n# says: (?P<says>.+)\n\Z")


def findings(*paths: Path) -> list[Finding]:
    loaded = load(paths)
    return [*loaded.findings, *lint(loaded.contracts, project=PROJECT)]


def unreadable_bytes(folder: Path) -> tuple[list[Finding], str]:
    file = folder / "latin-1.yaml"
    file.write_bytes("schema: pv/1\nmetadata: {id: caf\u00e9}\n".encode("latin-1"))
    return findings(file), f"{file}:2:19 PV001 is not UTF-8: byte 0xe9; save the file as UTF-8"


def broken_evidence(folder: Path) -> tuple[list[Finding], str]:
    (folder / "pyproject.toml").write_text("[tool.pv]\n")
    project = find_project(folder)
    contract = load([BAD / "good.yaml"]).contracts[0]
    file = record_path(project, contract, "cuda")
    file.parent.mkdir()
    file.write_text("[]")
    why = "$: [] is not of type 'object'; delete it, or write it again with --record"
    return read(project, contract, "cuda", {})[1], f"{file}:1:1 PV170 the evidence file cannot be used: {why}"


GENERATED: dict[str, Callable[[Path], tuple[list[Finding], str]]] = {
    "PV001": unreadable_bytes,
    "PV170": broken_evidence,
}


def test_every_code_has_exactly_one_case() -> None:
    assert sorted([*(path.stem for path in FILES), *GENERATED]) == sorted(CODES)


def test_the_sound_contract_beside_the_broken_ones_raises_nothing() -> None:
    assert findings(BAD / "good.yaml") == []


@pytest.mark.parametrize("case", FILES, ids=lambda path: path.stem)
def test_a_broken_contract_raises_only_its_code(case: Path) -> None:
    assert [finding.code for finding in findings(BAD / "good.yaml", case)] == [case.stem]


@pytest.mark.parametrize("case", FILES, ids=lambda path: path.stem)
def test_a_finding_says_what_was_read_and_what_to_try(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BAD)  # a message that names another contract gives its path from here
    expected = TRAILER.search(case.read_text(encoding="utf-8"))
    assert expected is not None
    assert [str(finding) for finding in findings(Path("good.yaml"), Path(case.name))] == [
        f"{case.name}:{expected['says']}"
    ]


@pytest.mark.parametrize("case", FILES, ids=lambda path: path.stem)
def test_a_finding_points_at_the_token_it_is_about(case: Path) -> None:
    text = case.read_text(encoding="utf-8")
    expected = TRAILER.search(text)
    assert expected is not None
    (finding,) = findings(BAD / "good.yaml", case)
    assert text.splitlines()[finding.location.line - 1][finding.location.column - 1 :].startswith(expected["token"])


@pytest.mark.parametrize("case", FILES, ids=lambda path: path.stem)
def test_a_code_decides_how_its_finding_counts(case: Path) -> None:
    (finding,) = findings(BAD / "good.yaml", case)
    kind = Severity.NOTICE if case.stem in NOTICES else Severity.ERROR
    assert finding.severity is (Severity.REFUSAL if case.stem in REFUSALS else kind)


@pytest.mark.parametrize("code", sorted(GENERATED))
def test_a_case_that_is_no_text_raises_only_its_code(code: str, tmp_path: Path) -> None:
    found, expected = GENERATED[code](tmp_path)
    assert [str(finding) for finding in found] == [expected]
    assert [finding.code for finding in found] == [code]


def test_all_broken_contracts_are_reported_in_one_pass() -> None:
    found = {finding.code for finding in findings(BAD)}
    assert found >= {path.stem for path in FILES}


def test_a_finding_without_a_hint_says_all_in_its_message() -> None:
    """What to try goes without saying only where the expected value is in the message."""
    silent = {finding.code for path in FILES for finding in findings(BAD / "good.yaml", path) if not finding.hint}
    assert silent == {"PV012"}
