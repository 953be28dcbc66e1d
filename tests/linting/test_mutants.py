"""Rules about mutants: a `find` without a match gets a hint."""

from pathlib import Path

from pv.contract.load import load
from pv.linting import lint
from pv.source.project import find_project

BAD = Path(__file__).parents[1] / "bad_contracts"


def test_text_that_is_no_whole_expression_is_said_to_be_a_part(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.pv]\n")
    (tmp_path / "tiny.py").write_text("def double(number):\n    return 2 * number * 1\n")
    contract = (BAD / "PV133.yaml").read_text().replace("find: number + number", "find: number * 1")
    (tmp_path / "c.yaml").write_text(contract)
    found = lint(load([tmp_path / "c.yaml"]).contracts, project=find_project(tmp_path))
    (finding,) = (each for each in found if each.code == "PV133")
    assert "'number * 1' occurs 0 times in 'double'" in finding.message
    assert finding.hint.startswith("the text occurs only inside a larger expression: `find` takes a whole expression")
