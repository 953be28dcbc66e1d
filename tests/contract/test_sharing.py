"""Domains, constants and equations that several equations or contracts share."""

from pathlib import Path
from typing import Any

import pytest

from pv.contract import sharing
from pv.contract.load import load
from pv.contract.model import Contract

HEAD = "schema: pv/1\nmetadata: {{id: {id}, version: 1.0.0, description: d, references: [r]}}\nfalsifiers: []\n"
BASE = """domains: {row: "logits[V]", hot: real 0.5..$most}
constants: {most: 8, ignored: -100}
equations:
  weight:
    domain: {x: real}
    expression: x * $ignored
  scaled:
    domain: {x: $row, tau: $hot}
    expression: |
      part = weight(tau)
      sum(x) / part - $ignored
    tolerance: {relative: 0.1, why: costs $5}
"""


def loaded(folder: Path, **contracts: str) -> dict[str, Contract]:
    for id_, text in contracts.items():
        (folder / f"{id_}.yaml").write_text(HEAD.format(id=id_) + text)
    found = load([folder])
    assert found.findings == ()
    return {contract.id: contract for contract in found.contracts}


def test_references_are_replaced_by_domains_and_constants(tmp_path: Path) -> None:
    keys = sharing.executable(loaded(tmp_path, base=BASE)["base"])
    assert keys["scaled"]["domain"] == {"x": "logits[V]", "tau": "real 0.5..8"}
    assert keys["scaled"]["expression"] == "part = weight(tau)\nsum(x) / part - (-100)  \n"
    assert keys["scaled"]["tolerance"]["why"] == "costs $5"


def test_used_equation_brings_those_that_it_calls(tmp_path: Path) -> None:
    user = "use: [base.scaled]\nequations: {own: {domain: {x: real}, expression: x}}\n"
    contracts = loaded(tmp_path, base=BASE, user=user)
    found = sharing.executable(contracts["user"])
    assert list(found) == ["own", "scaled", "weight"]
    assert found["scaled"] == sharing.executable(contracts["base"])["scaled"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("domain: {x: $most}, expression: x", []),
        ("domain: {x: $mots}, expression: x", [("e", "domain/x", "mots", (1, 1))]),
        ("domain: {x: real}, expression: x + $ignore", [("e", "expression", "ignore", (1, 5))]),
        ('domain: {x: real}, expression: "y = x\\ny + $no"', [("e", "expression", "no", (2, 5))]),
        ("domain: {x: real}, expression: x, invariants: [x > $low]", [("e", "invariants/0", "low", (1, 5))]),
    ],
)
def test_unknown_references_are_found_with_their_position(tmp_path: Path, text: str, found: Any) -> None:
    contract = loaded(tmp_path, base=f"constants: {{most: 8}}\nequations: {{e: {{{text}}}}}\n")["base"]
    assert list(sharing.unknown(contract)) == found
