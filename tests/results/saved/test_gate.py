"""A comparison fails for contracts that became weaker and are not waived; `git diff` gives the changed lines."""

import subprocess
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path

from pv.contract.finding import Finding, Severity
from pv.contract.model import Contract, Target, Waiver
from pv.results.outcome import Selection
from pv.results.saved.changes import (
    BaseComparison,
    ChangeKind,
    FailOn,
    Hunk,
    changed_lines,
    compare,
    line_now,
    parse_diff,
)
from pv.results.verdict import Report, Status, decide
from tests.report.handmade import PLAIN
from tests.results.handmade import HELD, HERE, contract, evidence, falsifier, judged
from tests.support.projects import write

BASE = contract(falsifier(), falsifier("G", kills=("n",)))
WITHOUT = replace(BASE, falsifiers=BASE.falsifiers[:1])
REFUSED = Finding(code="PV002", severity=Severity.REFUSAL, location=HERE, message="first")
LINTED = replace(REFUSED, severity=Severity.ERROR, location=replace(HERE, path=Path("d.yaml")))
DAY = date(2026, 11, 26)


def report(contract_: Contract) -> Report:
    verdict = decide(contract_, evidence(*HELD, judged(mutant="n")), Selection())
    return replace(PLAIN, contracts=(replace(verdict, status=Status.PASS),), findings=(), project={"c": "c.yaml"})


def against(now: Contract, fail_on: FailOn = FailOn.WEAKER) -> BaseComparison:
    return compare(report(BASE), report(now), fail_on=fail_on, today=DAY)


def waiver(expires: str = "2026-11-26", **names: str) -> Contract:
    accepted = Waiver(owner="ann", reason="moved to a suite", expires=expires, location=HERE, **names)
    return replace(WITHOUT, waivers=(accepted,))


def test_comparison_keeps_a_worse_exit_code() -> None:
    assert against(WITHOUT).exit_code(replace(report(WITHOUT), interrupted=True)) == 130
    assert against(BASE).exit_code(report(BASE)) == 0


def test_waived_weakening_does_not_fail_until_the_waiver_expires() -> None:
    compared = against(accepted := waiver(removed="G"))
    assert (compared.failing, compared.exit_code(report(WITHOUT))) == ((), 0)
    theirs = [replace(r, contracts=(replace(*r.contracts, subject="theirs"),)) for r in map(report, (BASE, accepted))]
    assert compare(*theirs, fail_on=FailOn.WEAKER, today=DAY).failing == ()
    (change,) = compared.changes
    assert change.kind is ChangeKind.WAIVED
    assert change.text == "removed: r; waived until 2026-11-26 by ann: moved to a suite"
    assert {change.text for change in against(waiver("2026-11-25", removed="G")).failing} == {
        "removed: r",
        "the waiver of ann expired on 2026-11-25: restore the clause, or renew the waiver",
    }
    invalid = "the waiver of ann has the invalid date '2026-02-30': restore the clause, or renew the waiver"
    assert invalid in {change.text for change in against(waiver("2026-02-30", removed="G")).failing}
    assert len(against(waiver(removed="H")).failing) == 1
    assert len(against(waiver(weaker="G")).failing) == 1
    assert [change.name for change in against(waiver("2026-11-25", weaker="F")).failing] == ["G", "F"]
    base = replace(report(BASE), findings=(REFUSED, replace(REFUSED, message="second"), LINTED))
    assert compare(base, report(BASE), fail_on=FailOn.WEAKER, today=DAY).notes == (
        "the base's contract.yaml is not compared: first",
    )


def test_fewer_examples_and_rewordings_do_not_fail() -> None:
    base = report(BASE)
    fewer = decide(BASE, evidence(*(replace(t, valid=50) for t in HELD), judged(mutant="n")), Selection())
    compared = compare(base, replace(base, contracts=(fewer,)), fail_on=FailOn.WEAKER, today=DAY)
    assert ChangeKind.LESS in {change.kind for change in compared.changes}
    assert compared.failing == ()
    reworded = replace(BASE, falsifiers=tuple(replace(claim, rule="reworded") for claim in BASE.falsifiers))
    assert {change.kind for change in against(reworded).changes} == {ChangeKind.REWORDED}


def test_a_renaming_of_code_that_is_gone_is_only_reworded() -> None:
    moved = replace(BASE.mutants[0].change, function=Target("tiny", "twice"))
    now = report(replace(BASE, mutants=(replace(BASE.mutants[0], change=moved), *BASE.mutants[1:])))
    for name, kind, end in (("double", ChangeKind.REWORDED, "; tiny:double renamed"), ("twice", ChangeKind.WEAKER, "")):
        is_gone = partial(Target.__eq__, Target("tiny", name))
        compared = compare(report(BASE), now, fail_on=FailOn.WEAKER, today=DAY, is_gone=is_gone)
        assert [(change.kind, change.text) for change in compared.changes] == [(kind, f"mutant changed: f{end}")]


def test_a_contract_that_is_gone_is_waived_by_any_other() -> None:
    other = replace(BASE, id="d")
    base = replace(report(BASE), contracts=(*report(BASE).contracts, *report(other).contracts))
    assert [change.name for change in compare(base, report(BASE), fail_on=FailOn.WEAKER, today=DAY).failing] == ["d"]
    accepted = replace(BASE, waivers=waiver(removed="d").waivers)
    assert compare(base, report(accepted), fail_on=FailOn.WEAKER, today=DAY).failing == ()


OLD = "one\n-- two\nthree\nfour\n"
NEW = "one\n++ 2\n@@ -1 +1 @@\nthree\n"


def test_changed_and_removed_lines_are_those_of_git_diff(tmp_path: Path) -> None:
    write(tmp_path, {"old": OLD, "a new": NEW})
    words = ["git", "diff", "--no-index", "--unified=0", "--no-prefix", "old", "a new"]
    hunks = parse_diff(subprocess.run(words, cwd=tmp_path, capture_output=True, text=True).stdout)
    assert hunks["a new"] == (Hunk(old=2, removed=1, new=2, added=2), Hunk(old=4, removed=1, new=4, added=0))
    assert [list(changed_lines(hunks, "a new", first, 4)) for first in (3, 4)] == [[3, 4], [4]]
    assert list(changed_lines(hunks, "a new", 1, 1)) == list(changed_lines(hunks, "other", 1, 9)) == []
    assert [line_now(hunks, "a new", line) for line in (1, 2, 3, 4)] == [None, 2, None, 4]
