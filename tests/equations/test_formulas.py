"""Two dozen formulas of the field hold what people write for them, and a wrong symbol in either is found."""

from pathlib import Path

import pytest
import yaml

from pv.equations.parsed import parse_equations

HERE = Path(__file__).parent
NAMES = list(yaml.safe_load((HERE / "formulas.yaml").read_text(encoding="utf-8")))


def test_all_are_parsed_and_fit_their_axes(formulas) -> None:
    parsed, problems = parse_equations(formulas)
    assert problems == []
    assert len(parsed) == 24


@pytest.mark.parametrize("name", NAMES)
def test_an_ordinary_implementation_holds(name, formulas, implementations, tried) -> None:
    record = tried(formulas, name, implementations, examples=60)
    assert (record["ending"], record["detail"], record["valid"]) == ("held", "", 60)
