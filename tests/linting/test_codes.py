"""Every code that loading and lint can give has one broken contract, which raises that code and no other.

A file's last two lines say what its finding points at and what it says.
"""

import re
from pathlib import Path

import pytest

from pv.contract.finding import Severity
from pv.linting import CODES
from tests.support.projects import BAD, findings

FILES = sorted(BAD.glob("PV*.yaml"))
TRAILER = re.compile(r"# points at: (?P<token>.+)\n# says: (?P<says>.+)\n\Z")


def test_every_code_has_exactly_one_case() -> None:
    """PV001 is tested in tests/contract/test_refusals.py, PV170 in tests/results/test_store.py."""
    assert sorted([*(path.stem for path in FILES), "PV001", "PV170"]) == sorted(CODES)


@pytest.mark.parametrize("case", FILES, ids=lambda path: path.stem)
def test_broken_contract_raises_its_code_alone_with_place_and_hint(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BAD)  # a message that names another contract gives its path from here
    text = case.read_text(encoding="utf-8")
    expected = TRAILER.search(text)
    assert expected is not None
    (finding,) = findings(BAD / "project", Path("good.yaml"), Path(case.name))
    assert str(finding) == f"{case.name}:{expected['says']}"
    assert text.splitlines()[finding.location.line - 1][finding.location.column - 1 :].startswith(expected["token"])
    kind = Severity.NOTICE if case.stem > "PV2" else Severity.REFUSAL if case.stem < "PV1" else Severity.ERROR
    assert (finding.code, finding.severity) == (case.stem, kind)
