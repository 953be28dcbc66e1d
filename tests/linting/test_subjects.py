"""Other subjects of a contract: they exist, differ, and leave out only declared falsifiers."""

from pathlib import Path

import pytest

from pv.contract.load import load
from pv.linting import lint
from pv.source.project import find_project

BAD = Path(__file__).parents[1] / "bad_contracts"


def findings(folder: Path, subjects: str) -> list[tuple[str, str]]:
    contract = folder / "c.yaml"
    contract.write_text(f"{(BAD / 'good.yaml').read_text()}subjects:\n{subjects}")
    loaded = load([contract])
    assert loaded.findings == ()
    return [(f.code, f.hint) for f in lint(loaded.contracts, project=find_project(BAD / "project"))]


def test_subject_that_claims_as_an_earlier_one_has_no_finding(tmp_path: Path) -> None:
    part = "{falsifiers: [F-GOOD], why: it triples, reference: its manual}"
    text = (
        f'- {{name: a, target: "faults:triple", not_claimed: [{part}]}}\n- {{name: b, target: faults, claims_as: a}}\n'
    )
    assert findings(tmp_path, text) == []


@pytest.mark.parametrize(
    ("text", "code", "hint"),
    [
        ("- {name: a, target: fautls}\n", "PV120", "did you mean 'faults'?"),
        ('- {name: a, target: "faults:tripel"}\n', "PV121", "did you mean 'triple'?"),
        ("- {name: a, target: faults, claims_as: b}\n", "PV196", "none is declared"),
        ("- {name: a, target: faults, claims_as: a}\n", "PV196", "none is declared"),
    ],
)
def test_unknown_name_is_an_error(tmp_path: Path, text: str, code: str, hint: str) -> None:
    assert findings(tmp_path, text) == [(code, hint)]


def test_duplicate_target_is_reported_once_at_the_later_subject(tmp_path: Path) -> None:
    text = "".join(f"- {{name: {name}, target: faults}}\n" for name in "abc")
    assert [code for code, _ in findings(tmp_path, text)] == ["PV197", "PV197"]
