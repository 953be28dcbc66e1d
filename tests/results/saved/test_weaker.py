"""Every requirement of a contract that became weaker is reported; stronger requirements are not."""

from dataclasses import replace
from typing import Any

import pytest

from pv.contract.model import (
    Binding,
    Contract,
    Edit,
    Equation,
    Falsifier,
    Gate,
    Harness,
    MutationScope,
    Name,
    Swap,
    Target,
)
from pv.engines.trial import Trial, TrialStatus
from pv.results.evidence import MutationScore
from pv.results.outcome import Outcome, Selection
from pv.results.saved.changes import find_rewordings, find_smaller_measurements, find_weakenings
from pv.results.verdict import ContractVerdict, decide
from tests.results.handmade import HELD, HERE, contract, decided, evidence, falsifier, judged, trial

BOUNDS = {"n": "0..9", "l": "list of int 0..9, at most 4"}
LIST = "l list of int 0..9, at most 4"
BOX = Harness(id="H", rule="r", if_fails="i", location=HERE, test=Binding("f.py", "p"), bounds=BOUNDS)
OTHER = Target("tiny", "twice")
CLAIM = falsifier(kills=("m", "n"), devices=("cpu", "cuda"))
BASE = replace(contract(CLAIM), harnesses=(BOX,))


def weakenings(old: Contract, new: Contract) -> list[tuple[str, str]]:
    changes = list(find_weakenings(verdict(old), verdict(new)))
    assert all(change.name and change.place for change in changes), "no waiver could accept it, or no link lead to it"
    return [(change.claim, change.text) for change in changes]


def verdict(contract_: Contract, **fields: Any) -> ContractVerdict:
    verdict_ = decide(contract_, evidence(*HELD, judged(mutant="n")), Selection())
    return replace(verdict_, **fields)


def with_claim(**fields: Any) -> Contract:
    claim: Falsifier = replace(CLAIM, **fields)
    return replace(BASE, falsifiers=(claim,))


OTHER_TEST = Binding("f.py", "g")
OTHER_FAULT = replace(BASE.mutants[1], change=replace(BASE.mutants[1].change, replace="4"))
SWAPPED = replace(BASE.mutants[1], change=Swap(object=OTHER, replacement=Target("faults", "twice")))
CHANGES = [
    (with_claim(kills=("m",)), "F", "mutant no longer named: n"),
    (with_claim(devices=("cpu",)), "F", "device no longer named: cuda"),
    (with_claim(examples=50), "F", "fewer examples asked for: 50, was 100"),
    (with_claim(test=OTHER_TEST), "F", "tried by f.py::g, was falsifiers/falsify_tiny.py::falsify_double"),
    (with_claim(run="r"), "F", "tried by {0} on run r, was {0}".format("falsifiers/falsify_tiny.py::falsify_double")),
    (
        replace(BASE, falsifiers=(CLAIM, falsifier("H", kills=(), test=OTHER_TEST)), harnesses=()),
        "H",
        "tried by f.py::g, was f.py::p",
    ),
    (replace(BASE, mutants=(BASE.mutants[0], OTHER_FAULT)), "n", "mutant changed: f"),
    (replace(BASE, mutants=(BASE.mutants[0], SWAPPED)), "n", "mutant changed: f"),
    (replace(BASE, gate=Gate(mutants=frozenset({"m"}))), "n", "mutant no longer required by the gate"),
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
    (
        replace(BASE, harnesses=(replace(BOX, requires="n > 0"),)),
        "H",
        f"proved over n 0..9; {LIST}, where n > 0, was n 0..9; {LIST}",
    ),
    (replace(BASE, mutants=BASE.mutants[:1]), "n", "mutant removed: f"),
    (replace(BASE, gate=Gate(falsifiers=frozenset())), "F", "no longer required by the gate"),
]


@pytest.mark.parametrize(("new", "id_", "text"), CHANGES, ids=[text for _, _, text in CHANGES])
def test_a_weaker_clause_is_found_and_a_stronger_one_is_not(new: Contract, id_: str, text: str) -> None:
    assert (id_, text) in weakenings(BASE, new)
    # A change that has no order, such as another test, is reported in both directions.
    back = weakenings(new, BASE)
    assert back == [] or all(" changed: " in t or "tried by" in t or "proved over" in t for _, t in back)
    assert weakenings(new, new) == []


def test_changed_definition_is_weaker_if_both_reports_have_definitions() -> None:
    moved = replace(BASE, subject=Target("worse"))
    assert weakenings(replace(BASE, subject=Target("tiny")), moved) == [("", "subject changed: 'worse', was 'tiny'")]
    assert list(find_weakenings(verdict(BASE, definitions=None), verdict(moved))) == []
    places = [{"subject": replace(HERE, line=line)} for line in (7, 8)]
    old, new = (replace(BASE, subject=Target(name), places=at) for name, at in zip("ab", places, strict=True))
    assert [change.place for change in find_weakenings(verdict(old), verdict(new))] == ["contract.yaml:8"]
    equations = [Equation(name="e", location=HERE, executable={"expression": text}) for text in "ab"]
    (changed,) = find_weakenings(*(verdict(replace(BASE, equations=(equation,))) for equation in equations))
    assert (changed.name, changed.removed, changed.place) == ("e", False, "contract.yaml:3")
    (removed,) = find_weakenings(verdict(tolerant(relative=1)), verdict(replace(tolerant(), equations=())))
    assert (removed.name, removed.text, removed.place) == ("e", "equation e removed", "contract.yaml:3 in the base")


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
    wide = replace(BASE, gate=Gate(devices=("cpu", "cuda")), mutation_scope=MutationScope(modules=(a, b), judges=(b,)))
    narrow = replace(BASE, gate=Gate(devices=("cpu",)), mutation_scope=MutationScope(modules=(a,)))
    scope = [("", f"{noun} no longer in the mutation scope: b") for noun in ("module", "judge")]
    assert weakenings(wide, narrow) == [("", "the gate leaves out cuda"), *scope]
    assert weakenings(narrow, wide) == []
    everywhere, on_cpu = (replace(BASE, gate=Gate(devices=devices)) for devices in ((), ("cpu",)))
    assert weakenings(everywhere, on_cpu) == [("", "the gate leaves out cuda")]
    assert weakenings(on_cpu, everywhere) == []


def test_moved_test_and_larger_box_are_not_weaker_and_rewordings_are_only_shown() -> None:
    moved = with_claim(test=Binding("other.py", "falsify_double"), rule="q", prediction="s")
    larger = replace(moved, harnesses=(replace(BOX, bounds=BOUNDS | {"n": "-1..9"}),))
    assert weakenings(BASE, larger) == []
    changes = [(claim, text) for claim, text, _ in find_rewordings(BASE, verdict(larger))]
    assert changes == [("F", "rule changed: 'q', was 'r'"), ("F", "prediction changed: 's', was 'p'")]


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
    for words in ({"find": "g(y)", "replace": "x"}, {"find": "g(y)", "replace": "y"}):
        assert renamed(old, edited(**words), *killed) == {""}
    both, one = (edited(find=find, replace="f(x) + 1") for find in ("f(x)", "g(x)"))
    assert renamed(both, one, *killed) == {""}, "a renaming changes the name everywhere"
    swap, moved, other = (
        replace(BASE, mutants=(replace(BASE.mutants[0], change=Swap(object=Target(name), replacement=Target(wrong))),))
        for name, wrong in (("tiny", "faults"), ("small", "faults"), ("small", "others"))
    )
    assert (renamed(swap, moved, *killed), renamed(swap, other, *killed)) == ({"tiny"}, {""})


BOTH = (replace(CLAIM, subject=None), falsifier("G"))
KILLED = (*HELD, judged(mutant="n"))


@pytest.mark.parametrize(
    ("trials", "options", "is_same"),
    [
        ((*KILLED, trial(id_="G"), judged(id_="G")), {}, True),
        ((*KILLED, trial(TrialStatus.NOT_CLAIMED, "G")), {}, True),
        (KILLED, {"falsifiers": frozenset({"F"})}, True),
        (KILLED, {}, False),
        ((trial(TrialStatus.REFUTED), *KILLED[1:]), {"falsifiers": frozenset({"F"})}, False),
        ((*HELD, judged(TrialStatus.HELD, mutant="n")), {"falsifiers": frozenset({"F"})}, False),
        (HELD[:1], {"falsifiers": frozenset({"F"}), "mutants": False}, False),
    ],
)
def test_another_subject_is_a_renaming_while_all_claims_have_the_same_results(
    trials: tuple[Trial, ...], options: dict[str, Any], is_same: bool
) -> None:
    gate = Gate(mutants=frozenset({"m"}))
    old, new = (contract(*BOTH, subject=Target(name), gate=gate) for name in ("tiny", "small"))
    base = [*KILLED, trial(id_="G"), judged(id_="G")] if options.get("mutants", True) else HELD[:1]
    before = decide(old, evidence(*base), Selection(mutants=options.get("mutants", True)))
    (change,) = find_weakenings(before, decide(new, evidence(*trials), Selection(**options)))
    assert change.renamed == ((Target("tiny"),) if is_same else ())


@pytest.mark.parametrize(
    ("before", "after", "subject", "renamed"),
    [
        ("f(x, 1)", "g(x,1)", None, "tiny:Rate.f"),
        ("f(x, 1)", "g(x,1)", Target("peers"), "peers:f"),
        ("f(x, 1)", "g(x, 2)", None, ""),
        ("f(h(x))", "g(h(x))", None, ""),
        ("f(x)", "x", None, ""),
    ],
)
def test_another_function_of_an_equation_is_a_renaming_if_its_arguments_stay(
    before: str, after: str, subject: Target | None, renamed: str
) -> None:
    claim = falsifier(test=None, equation="e", subject=subject)
    old, new = (
        contract(
            claim,
            falsifier("G"),
            subject=Target("tiny", "Rate"),
            equations=(Equation(name="e", location=HERE, executable={"implemented_by": call}),),
        )
        for call in (before, after)
    )
    for ends in (HELD, (trial(TrialStatus.REFUTED), judged())):
        (change,) = find_weakenings(verdict(old), decide(new, evidence(*ends), Selection()))
        assert " ".join(map(str, change.renamed)) == (renamed if ends == HELD else "")


def test_fewer_valid_examples_and_untried_mutants_are_smaller_measurements() -> None:
    many, few = (decided(trial(valid=n), judged()) for n in (100, 40))
    assert list(find_smaller_measurements(many, few)) == [("F", "fewer valid examples: 40, was 100")]
    assert list(find_smaller_measurements(few, many)) == []
    proved = replace(many, results=(replace(many.results[0], outcome=Outcome.PROVED),))
    assert list(find_smaller_measurements(proved, few)) == []
    tried, untried = decided(*HELD), decided(trial(), mutants=False)
    assert list(find_smaller_measurements(tried, untried)) == [("F", "no longer tried on mutants")]
    assert list(find_smaller_measurements(untried, tried)) == list(find_smaller_measurements(untried, untried)) == []
    failed = decided(trial(TrialStatus.ERROR, valid=1))
    assert list(find_smaller_measurements(many, failed)) == list(find_smaller_measurements(failed, few)) == []


SCORE = MutationScore(total=9, judged=9, killed=9, sampled=9)
STALE = replace(SCORE, changed=("a.py", "b.py"))


@pytest.mark.parametrize(
    ("old", "new", "texts"),
    [
        (None, SCORE, []),
        (SCORE, SCORE, []),
        (SCORE, replace(SCORE, judged=0, killed=0), ["no mutation score recorded, was 100 %"]),
        (replace(SCORE, judged=0, killed=0), None, []),
        (SCORE, replace(SCORE, killed=4), ["mutation score 44.4 %, was 100 %"]),
        (SCORE, STALE, ["the mutation score is stale, changed: a.py, b.py"]),
        (STALE, STALE, []),
        (STALE, SCORE, []),
    ],
)
def test_a_lower_missing_or_stale_score_is_less_measured(old: Any, new: Any, texts: list[str]) -> None:
    before, now = (verdict(BASE, score=score) for score in (old, new))
    assert list(find_smaller_measurements(before, now)) == [("", text) for text in texts]


def tolerant(**bounds: Any) -> Contract:
    tolerance = {"tolerance": bounds} if bounds else {}
    equation = Equation(name="e", location=HERE, executable={"expression": "1", **tolerance})
    claim = falsifier(kills=("m", "n"), test=None, equation="e")
    return replace(contract(claim), equations=(equation,))


def test_a_wider_tolerance_is_weaker() -> None:
    one, ten = tolerant(relative=1, why="w"), tolerant(relative=10, why="w")
    assert weakenings(one, ten) == [("", "the relative tolerance of e is 10, was 1")]
    assert weakenings(ten, one) == []
    assert weakenings(tolerant(), one) == [("", "the tolerance of e is set to relative 1, was measured")]
    wider = tolerant(relative=1, absolute=10, why="w")
    assert weakenings(one, wider) == [("", "the absolute tolerance of e is 10, was 0")]
    assert weakenings(one, tolerant()) == []
    # A report of an older version has the tolerances, but no definitions.
    older = [
        [c.text for c in find_weakenings(verdict(old, definitions=None), verdict(ten))] for old in (one, tolerant())
    ]
    unrun = find_weakenings(verdict(tolerant(), results=()), verdict(ten))
    measured = "the tolerance of e is set to relative 10, was measured"
    assert older == [["the relative tolerance of e is 10, was 1"], [measured]]
    assert [change.text for change in unrun] == [measured]
