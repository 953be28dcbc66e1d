"""The texts of a first contract are valid YAML and Python for every kind of parameter."""

import ast

import pytest
import yaml

from pv.commands import templates
from pv.commands.signature import Parameter
from pv.commands.templates import Names

NAMES = Names(name="a.b-c", module="m", test="falsifiers/a.py", faults="falsifiers.faults", schema="s.json")
NUMBER = Parameter("x", "float", "st.floats()", "real 0..1", False)
TENSOR = Parameter("t", "Tensor", "st.just([1.0]).map(torch.tensor)", "real[N]", True)
UNKNOWN = Parameter("w", "Widget", "", "", False)


def test_ids_of_claims_are_upper_case_words() -> None:
    assert NAMES.prefix == "A-B-C"


@pytest.mark.parametrize("description", ["", 'It is: "quoted" # and more', "τ² · {x}", "$name"])
def test_contract_is_yaml_with_and_without_its_comments(description: str) -> None:
    text = templates.contract(NAMES, "f", description, [NUMBER, UNKNOWN, TENSOR])
    assert yaml.safe_load(text)["metadata"]["description"] == (description or "What f returns")
    such = "FILL IN, such as"
    filled = yaml.safe_load("\n".join(line.removeprefix("# ") for line in text.splitlines() if "$schema" not in line))
    assert filled["equations"]["f"]["domain"] == {"x": f"{such} real 0..1", "w": "FILL IN", "t": f"{such} real[N]"}
    assert filled["equations"]["f"]["implemented_by"] == "f(x, w, t=t)"
    assert [claim["id"] for claim in filled["falsifiers"]] == ["A-B-C-001", "A-B-C-002"]


def test_attack_imports_torch_only_for_tensors_and_names_what_is_missing() -> None:
    text = templates.attack(NAMES, "f", [NUMBER, UNKNOWN, TENSOR])
    ast.parse(text)
    assert "import torch\n" in text and "w=FILL_IN,  # values of Widget" in text
    assert "t=copy.deepcopy(t)" in text
    assert "torch" not in templates.attack(NAMES, "f", [NUMBER])


def test_lines_are_short() -> None:
    texts = (*templates.example(NAMES), templates.faults(NAMES), templates.contract(NAMES, "f", "", [NUMBER]))
    assert all(len(line) <= 120 for text in texts for line in text.splitlines())
