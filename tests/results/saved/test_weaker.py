"""Every requirement of a contract that became weaker is reported; stronger requirements are not."""

from dataclasses import replace
from typing import Any

import pytest

from pv.contract.model import Binding, Contract, Edit, Equation, Falsifier, Gate, Harness, MutationScope, Name, Target
from pv.results.outcome import Selection
from pv.results.saved.changes import find_rewordings, find_smaller_measurements, find_weakenings
from pv.results.trial import Trial
from pv.results.verdict import ContractVerdict, decide
from tests.results.handmade import HELD, HERE, contract, decided, evidence, falsifier, judged, trial

BOUNDS = {"n": "0..9", "l": "list of int 0..9, at most 4"}
LIST = "l list of int 0..9, at most 4"
BOX = Harness(id="H", rule="r", if_fails="i", location=HERE, test=Binding("f.py", "p"), bounds=BOUNDS)
OTHER = Target("tiny", "twice")
CLAIM = falsifier(kills=("m", "n"), devices=("cpu", "cuda"))
BASE = replace(contract(CLAIM), harnesses=(BOX,))


def weakenings(old: Contract, new: Contract) -> list[tuple[str, str]]:
    return [(change.claim, change.text) for change in find_weakenings(verdict(old), verdict(new))]


def verdict(contract_: Contract, **fields: Any) -> ContractVerdict:
    verdict_ = decide(contract_, evidence(*HELD, judged(mutant="n")), Selection())
    return replace(verdict_, **fields)


def with_claim(**fields: Any) -> Contract:
    claim: Falsifier = replace(CLAIM, **fields)
    return replace(BASE, falsifiers=(claim,))


CHANGES = [
    (with_claim(kills=("m",)), "F", "mutant no longer named: n"),
    (with_claim(devices=("cpu",)), "F", "device no longer named: cuda"),
    (with_claim(examples=50), "F", "fewer examples asked for: 50, was 100"),
    (with_claim(test=Binding("f.py", "g")), "F", "tried by f.py::g, was falsifiers/falsify_tiny.py::falsify_double"),
    (
        replace(BASE, harnesses=(replace(BOX, bounds=BOUNDS | {"n": "0..5"}),)),
        "H",
        f"proved over n 0..5; {LIST}, was n 0..9; {LIST}",
    ),
    (
        replace(BASE, harnesses=(replace(BOX, bounds=BOUNDS | {"l": "list of int 0..9, at most 1"}),)),
        "H",
        f"proved over n 0..9; l list of int 0..9, at most 1, was n 0..9; {LIST}",
    ),
    (replace(BASE, mutants=BASE.mutants[:1]), "n", "mutant removed: f"),
    (replace(BASE, gate=Gate(falsifiers=frozenset())), "F", "no longer required by the gate"),
]


@pytest.mark.parametrize(("new", "id_", "text"), CHANGES, ids=[text for _, _, text in CHANGES])
def test_a_weaker_clause_is_found_and_a_stronger_one_is_not(new: Contract, id_: str, text: str) -> None:
    assert (id_, text) in weakenings(BASE, new)
    # A change that has no order, such as another test, is reported in both directions.
    reverse = weakenings(new, BASE)
    assert reverse == [] or all(" changed: " in t or "tried by" in t or "proved over" in t for _, t in reverse)


def test_changed_definition_is_weaker_if_both_reports_have_definitions() -> None:
    moved = replace(BASE, subject=Target("worse"))
    assert weakenings(replace(BASE, subject=Target("tiny")), moved) == [("", "subject changed: 'worse', was 'tiny'")]
    assert list(find_weakenings(verdict(BASE, definitions=None), verdict(moved))) == []


def test_lower_score_fewer_devices_more_equivalents_and_smaller_scope_are_weaker() -> None:
    strong, weak = (
        replace(BASE, gate=gate)
        for gate in (Gate(mutation_score=0.9, fresh=frozenset({"cuda"})), Gate(mutation_score=0.8, equivalents=0.1))
    )
    assert weakenings(strong, weak) == [
        ("", "fresh evidence of cuda no longer required by the gate"),
        ("", "the gate requires a mutation score of 80 %, was 90 %"),
        ("", "the gate accepts 10 % of mutants as equivalent, was 5 %"),
    ]
    assert weakenings(weak, strong) == []
    a, b = (Name(text=name, location=HERE) for name in "ab")
    wide = replace(BASE, gate=Gate(devices=("cpu", "cuda")), mutation_scope=MutationScope(modules=(a, b)))
    narrow = replace(BASE, gate=Gate(devices=("cpu",)), mutation_scope=MutationScope(modules=(a,)))
    assert weakenings(wide, narrow) == [
        ("", "the gate leaves out cuda"),
        ("", "module no longer in the mutation scope: b"),
    ]
    assert weakenings(narrow, wide) == []


def test_moved_test_and_larger_box_are_not_weaker_and_rewordings_are_only_shown() -> None:
    moved = with_claim(test=Binding("other.py", "falsify_double"), rule="q")
    larger = replace(moved, harnesses=(replace(BOX, bounds=BOUNDS | {"n": "-1..9"}),))
    assert weakenings(BASE, larger) == []
    changes = [(claim, text) for claim, text, _ in find_rewordings(BASE, verdict(larger))]
    assert changes == [("F", "rule changed: 'q', was 'r'")]


def edited(**fields: str) -> Contract:
    edits = [replace(mutant.change, **fields) for mutant in BASE.mutants if isinstance(mutant.change, Edit)]
    return replace(BASE, mutants=tuple(replace(mutant, change=edits[0]) for mutant in BASE.mutants))


def test_layout_of_a_mutant_and_of_a_condition_is_not_compared() -> None:
    wide, narrow = edited(find="f(x, 2)", replace="x + 2"), edited(find="f( x,2 )", replace="x+2")
    assert weakenings(wide, narrow) == weakenings(narrow, wide) == []
    boxed = [replace(BASE, harnesses=(replace(BOX, requires=text),)) for text in ("n > 2", "(n>2)")]
    assert weakenings(*boxed) == []


def test_renamed_function_is_reported_if_its_mutants_are_killed() -> None:
    old, new = edited(find="f(x)", replace="x"), edited(find="g(x)", replace="x")
    moved = replace(BASE, mutants=tuple(replace(m, change=replace(m.change, function=OTHER)) for m in BASE.mutants))

    def renamed(before: Contract, after: Contract, *trials: Trial) -> set[str]:
        changes = find_weakenings(verdict(before), decide(after, evidence(*trials), Selection()))
        return {" ".join(map(str, text.renamed)) for text in changes}

    killed = (*HELD, judged(mutant="n"))
    assert renamed(old, new, *killed) == {"tiny:f"} and renamed(BASE, moved, *killed) == {"tiny:double"}
    assert renamed(old, new, *HELD) == {"tiny:f", ""}
    assert renamed(old, edited(find="g(y)", replace="x"), *killed) == {""}


def test_fewer_valid_examples_and_untried_mutants_are_smaller_measurements() -> None:
    many, few = (decided(trial(valid=n), judged()) for n in (100, 40))
    assert list(find_smaller_measurements(many, few)) == [("F", "fewer valid examples: 40, was 100")]
    assert list(find_smaller_measurements(few, many)) == []
    tried, untried = decided(*HELD), decided(trial(), mutants=False)
    assert list(find_smaller_measurements(tried, untried)) == [("F", "no longer tried on mutants")]
    assert list(find_smaller_measurements(untried, tried)) == list(find_smaller_measurements(untried, untried)) == []


def tolerant(**bounds: Any) -> Contract:
    tolerance = {"tolerance": bounds} if bounds else {}
    equation = Equation(name="e", location=HERE, executable={"expression": "1", **tolerance})
    claim = falsifier(kills=("m", "n"), test=None, equation="e")
    return replace(contract(claim), equations=(equation,))


def test_a_wider_tolerance_is_weaker() -> None:
    one, ten = tolerant(relative=1, why="w"), tolerant(relative=10, why="w")
    assert weakenings(one, ten) == [("", "the relative tolerance of e is 10, was 1")]
    assert weakenings(ten, one) == []
    assert weakenings(tolerant(), one) == [("", "the tolerance of e is set to relative 1, it was measured")]
    wider = tolerant(relative=1, absolute=10, why="w")
    assert weakenings(one, wider) == [("", "the absolute tolerance of e is 10, was 0")]
    assert weakenings(one, tolerant()) == []
