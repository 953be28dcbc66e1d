"""What keeps a contract from passing is listed exactly where it does not pass."""

from dataclasses import replace

import pytest

from pv.contract.model import Gate
from pv.results import gates
from pv.results.outcome import Selection
from pv.results.trial import MutationScore
from pv.results.verdict import Status, decide
from tests.report.handmade import PLAIN
from tests.results.handmade import HELD, contract, evidence, falsifier


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (None, "none is recorded"),
        ({"killed": 5}, "the recorded one is 50 %"),
        ({"changed": ("a.py",)}, "the recorded one is stale"),
        ({"sampled": 3}, "the recorded one is of a sample"),
    ],
)
def test_a_score_below_the_gate_is_a_reason(fields: dict[str, object] | None, said: str) -> None:
    full = {"total": 10, "judged": 10, "killed": 10, "sampled": 10}
    score = None if fields is None else MutationScore(**{**full, **fields})
    known = replace(evidence(*HELD), score=score)
    verdict = decide(contract(falsifier(), gate=Gate(mutation_score=0.9)), known, Selection())
    assert verdict.status is not Status.PASS
    assert gates.unmet(verdict) == (f"the gate requires a mutation score of 90 %, {said}",)


def test_a_required_device_without_a_claim_and_an_absent_contract_are_reasons() -> None:
    verdict = decide(contract(falsifier()), evidence(*HELD), Selection(require=frozenset({"cuda"})))
    assert gates.unmet(verdict) == ("nothing claimed on cuda",)
    absent = replace(verdict, results=(), unclaimed=(), absent="in none of the reports")
    assert gates.unmet(absent) == ("in none of the reports",)


def test_what_is_wrong_besides_the_contracts_is_listed() -> None:
    assert gates.unmet_overall(PLAIN) == ()
    empty = replace(PLAIN, contracts=(), interrupted=True, unmatched=("--only X",))
    assert gates.unmet_overall(empty) == (
        "interrupted: what had not run is undecided",
        "nothing was measured: no contract was tried",
        "--only X names nothing",
    )
