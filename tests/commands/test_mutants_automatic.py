"""Falsifiers that declare no mutant are judged against automatic ones."""

from typing import Any

import pv
from pv.results.outcome import Outcome
from pv.results.verdict import Report


def outcome(said: Report, falsifier: str) -> tuple[Outcome, str]:
    (result,) = (c for v in said.contracts for c in v.results if c.falsifier.id == falsifier)
    return result.outcome, result.reason


def test_a_falsifier_without_a_declared_mutant_is_judged_against_automatic_ones(shop: Any) -> None:
    said = pv.validate()
    assert outcome(said, "S-PRICE") == (Outcome.HELD, "")
    assert "1 of 1 falsifier without a declared mutant killed an automatic one" in pv.render(said, verbose=True)
    (result,) = said.contracts[0].results
    assert 0 < len(result.mutants) <= 20
    shop.add("S-COUNTDOWN", "falsify_countdown")
    assert outcome(pv.validate(only=["S-COUNTDOWN"]), "S-COUNTDOWN")[0] is Outcome.HELD


def test_one_that_kills_none_is_vacuous_and_says_how_many_were_tried(shop: Any) -> None:
    test = shop.folder / "falsifiers/falsify_shop.py"
    test.write_text(test.read_text().replace("subject.leave(3) == 3", "[subject.leave(3)]"))
    shop.add("S-LEAVE", "falsify_leave")
    said = pv.validate(only=["S-LEAVE"])
    assert outcome(said, "S-LEAVE") == (
        Outcome.VACUOUS,
        "it kills no mutant: 3 automatic ones in the code it reaches survived",
    )
    assert "shop:leave: status > 100 -> status >= 100: held" in pv.render(said)
