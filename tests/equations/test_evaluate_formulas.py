"""Two dozen formulas of the field hold for ordinary float32 implementations."""

from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).parent
NAMES = list(yaml.safe_load((HERE / "formulas.yaml").read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", NAMES)
def test_ordinary_implementation_holds(name, formulas, implementations, tried) -> None:
    record = tried(formulas, name, implementations, examples=30)
    assert (record["status"], record["detail"], record["valid"]) == ("held", "", 30)
