"""A small project to mutate: one contract over a shop, to which tests add claims, equivalents and a gate."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import pv
from pv.mutation.judge import MutantStatus, MutationResult
from tests.support.projects import Project

CLAIM = """- id: {id}
  rule: as the test says
  prediction: as the test says
  if_fails: the code differs
  test: falsifiers/falsify_shop.py::{test}
"""
EQUIVALENT = """equivalents:
- {{function: "shop:price", find: "{find}", replace: "{replace}", reason: "{reason}"}}
"""


@dataclass(frozen=True)
class Shop:
    """A copy of `tests/projects/mutable`, which is the working directory."""

    folder: Path

    def append(self, text: str) -> None:
        contract = self.folder / "contracts/shop.yaml"
        contract.write_text(contract.read_text() + text)

    def claim(self, id_: str, test: str) -> str:
        return CLAIM.format(id=id_, test=test)

    def add(self, id_: str, test: str) -> None:
        self.append(self.claim(id_, test))

    def accept(self, find: str, replace: str, reason: str) -> None:
        self.append(EQUIVALENT.format(find=find, replace=replace, reason=reason))

    def scope(self, places: str) -> None:
        contract = self.folder / "contracts/shop.yaml"
        contract.write_text(contract.read_text().partition("mutation_scope:")[0] + f"mutation_scope: {places}\n")

    def gate(self, least: float) -> None:
        self.append(f"qa_gate: {{id: G, name: all, require: {{mutation_score: {least}}}}}\n")

    def mutate(self, *names: str, **options: Any) -> MutationResult:
        (result,) = pv.mutate(names, jobs=2, **options)
        return result

    def fates(self, result: MutationResult) -> dict[str, MutantStatus]:
        return {judged.mutant.mutant.id.removeprefix("shop:"): judged.status for judged in result.judged}


@pytest.fixture
def shop(project: Project) -> Shop:
    return Shop(project("mutable"))
