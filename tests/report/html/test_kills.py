"""The kill matrix shows for each falsifier and mutant what happened, in words."""

from pv.report.html import kills
from pv.results.outcome import Selection
from pv.results.trial import TrialStatus
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


def test_a_large_matrix_is_a_list_of_its_mutants() -> None:
    found = rows(many(200).contracts[0])
    assert found[0] == ["mutant", "fault", "falsifiers"]
    assert found[1:4] == [
        ["m-0", "three", "F-0: not tried"],
        ["m-1", "three", "F-1: survived"],
        ["m-2", "three", "F-2: killed"],
    ]
    assert len(found) == 201
