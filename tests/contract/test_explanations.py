"""Every code has an explanation; lint finds the code in its wrong example, and nothing in its right one.

An example has the sections of a contract that matter. They replace the sections of `explained.yaml`, in a copy of the
project of `tests/bad_contracts`, beside its sound contract.
"""

import re
import shutil
from pathlib import Path

import pytest

from pv.contract.codes import Explanation, explanation
from pv.contract.finding import Finding
from pv.contract.load import load
from pv.linting import CODES, lint
from pv.results.store import read
from pv.source.project import find_project
from tests.support.projects import BAD

BASE = Path(__file__).with_name("explained.yaml").read_text()


def sections(text: str) -> list[tuple[str, str]]:
    """Return the top-level keys of a YAML text in order, with their lines."""
    parts = re.split(r"^(?=[a-z_]+:)", text, flags=re.MULTILINE)
    return [(part.partition(":")[0], part) for part in parts if part]


def merged(example: str) -> str:
    """Return a contract with the sections of an example; an example with metadata is a whole contract."""
    if "metadata:" in example:
        return example
    example_sections = sections(example)
    rest = "".join(part for key, part in sections(BASE) if key not in dict(example_sections))
    # The schema comes first, since a loader stops at a file of another format.
    return (
        "".join(part for key, part in example_sections if key == "schema")
        + rest
        + "".join(p for k, p in example_sections if k != "schema")
    )


def findings(explained: Explanation, folder: Path, *, right: bool) -> list[Finding]:
    shutil.copytree(BAD / "project", folder, dirs_exist_ok=True)
    contract, good = folder / "contracts/doubling.yaml", folder / "contracts/good.yaml"
    contract.parent.mkdir(exist_ok=True)
    shutil.copy(BAD / "good.yaml", good)
    example = explained.right if right else explained.wrong
    text = merged(explained.contract if explained.file else example)
    contract.write_bytes(text.encode("utf-8" if right else explained.encoding))
    if explained.file and example:
        (folder / explained.file).parent.mkdir(exist_ok=True)
        (folder / explained.file).write_text(example)
    project, loaded = find_project(folder), load([good, contract])
    recorded = [
        f for contract_ in loaded.contracts if contract_.strict for f in read(project, contract_, "cuda", dict)[1]
    ]
    return [*loaded.findings, *lint(loaded.contracts, project=project), *recorded]


@pytest.mark.parametrize("code", sorted(CODES))
def test_code_is_found_in_the_wrong_example_and_nothing_in_the_right_one(code: str, tmp_path: Path) -> None:
    explained = explanation(code)
    assert explained is not None, f"write pv/contract/rules/{code}.yaml"
    assert {finding.code for finding in findings(explained, tmp_path / "wrong", right=False)} == {code}
    assert [str(finding) for finding in findings(explained, tmp_path / "right", right=True)] == []


@pytest.mark.parametrize("name", ["PV999", "../codes", ""])
def test_unknown_code_has_no_explanation(name: str) -> None:
    assert explanation(name) is None
