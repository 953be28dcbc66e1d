"""The kill matrix shows for each falsifier and mutant what happened, in words."""

from dataclasses import replace

from pv.report.html import kills
from pv.results.outcome import Selection
from pv.results.trial import EquationMutants, TrialStatus
from pv.results.verdict import ContractVerdict, decide
from tests.report.html.pages import fragment, words
from tests.report.many import many
from tests.results.handmade import contract, evidence, falsifier, judged, trial


def rows(verdict: ContractVerdict) -> list[list[str]]:
    found = fragment(kills.matrix(verdict))
    return [[words(cell) for cell in row] for row in found.iter("tr")]


def test_every_cell_says_what_happened() -> None:
    claims = (falsifier("F", kills=("m", "n")), falsifier("G"), falsifier("H", kills=("n",)))
    found = evidence(
        *(trial(id_=id_) for id_ in "FGH"),
        judged(id_="F"),
        judged(TrialStatus.HELD, id_="F", mutant="n"),
        judged(TrialStatus.ERROR, id_="G"),
    )
    assert rows(decide(contract(*claims), found, Selection())) == [
        ["falsifier", "m", "n"],
        ["F", "✓ killed", "✗ survived"],
        ["G", "– not judged", "not named"],
        ["H", "not named", "· not tried"],
    ]


def test_automatic_and_equation_mutants_are_counted() -> None:
    claims = (falsifier("F", kills=()), falsifier("G", kills=()))
    found = evidence(
        trial(id_="F"),
        trial(id_="G", equation_mutants=EquationMutants(killed=3, total=4)),
        judged(id_="F", mutant="a1"),
        judged(TrialStatus.HELD, id_="F", mutant="a2"),
    )
    verdict = decide(replace(contract(*claims), mutants=()), found, Selection())
    assert rows(verdict) == [
        ["falsifier", "automatic mutants", "equation mutants"],
        ["F", "1 of 2 killed", ""],
        ["G", "", "3 of 4 killed"],
    ]


def test_row_headers_are_the_falsifiers() -> None:
    found = fragment(kills.matrix(decide(contract(falsifier()), evidence(trial(), judged()), Selection())))
    assert [words(head) for head in found.iter("th") if head.get("scope") == "row"] == ["F"]


def test_a_large_matrix_is_a_list_of_its_mutants() -> None:
    found = rows(many(200).contracts[0])
    assert found[0] == ["mutant", "fault", "falsifiers"]
    assert found[1:4] == [
        ["m-0", "three", "F-0: not tried"],
        ["m-1", "three", "F-1: survived"],
        ["m-2", "three", "F-2: killed"],
    ]
    assert len(found) == 201


def test_a_contract_without_mutants_has_no_matrix() -> None:
    verdict = decide(replace(contract(falsifier(kills=())), mutants=()), evidence(trial()), Selection())
    assert kills.matrix(verdict) == ""
