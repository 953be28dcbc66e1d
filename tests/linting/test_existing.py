"""Contracts in the existing format get notices, never errors."""

from pathlib import Path

from pv.contract.finding import Severity
from pv.contract.load import load
from pv.linting import lint
from pv.source.project import find_project

TEXT = """metadata: {version: 1.0.0, description: d, references: [r]}
falsification_tests:
- {id: A, rule: r, prediction: p, test: try some numbers}
- {id: A, rule: r, prediction: p, test: try more}
kani_harnesses:
- {id: H, property: p}
- {id: H, property: q}
- {id: A, property: q}
"""


def test_prose_and_duplicate_ids_are_notices(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.pv]\n")
    (tmp_path / "theirs.yaml").write_text(TEXT)
    found = lint(load([tmp_path / "theirs.yaml"]).contracts, project=find_project(tmp_path))
    assert {f.severity for f in found} == {Severity.NOTICE}
    repeated = {f.location.line: f.message for f in found if f.code == "PV203"}
    assert repeated == {
        4: "duplicate claim id 'A' (first defined at line 3)",
        7: "duplicate claim id 'H' (first defined at line 6)",
        8: "duplicate claim id 'A' (first defined at line 3)",
    }
    assert [f.location.line for f in found if f.code == "PV202"] == [3, 4, 6, 7, 8]
