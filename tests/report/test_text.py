"""The text report has a line a contract, then details of failures; no output can control the terminal."""

import re
from dataclasses import replace

import pytest

from pv.report import render
from pv.results.outcome import Outcome
from pv.results.trial import EquationMutants
from tests.report import equation_reports
from tests.report.handmade import HOSTILE, PLAIN


def test_text_is_plain_where_there_is_no_terminal() -> None:
    assert "\x1b" not in render(PLAIN, "text")
    assert "\x1b[" in render(PLAIN, "text", color=True)


@pytest.mark.parametrize("color", [False, True])
def test_text_lets_nothing_steer_the_terminal(color: bool) -> None:
    shown = re.sub(r"\x1b\[[0-9;]*m", "", render(HOSTILE, "text", color=color).replace("\x1b[31mred", "\x1b!"))
    assert re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown) == []
    assert "a\\x00b\\x1b[31mred\\x07" in shown.replace("\n", "").replace(" " * 12, "")


def test_text_shows_the_worst_first_with_all_a_reader_needs() -> None:
    lines = render(PLAIN, "text", width=200).splitlines()
    assert lines[0] == "FAIL  c  falsifiers 1/5  mutants 1/1  cuda 1/1 recorded  1 undecided"
    heads = [line for line in lines if re.match("[A-Z]+ +F-", line)]
    assert [head.split()[:2] for head in heads] == [
        ["FALSIFIED", "F-REFUTED"],
        ["ERROR", "F-BROKEN"],
        ["VACUOUS", "F-BARREN"],
        ["UNDECIDED", "F-SKIPPED"],
    ]
    assert heads[0] == "FALSIFIED  F-REFUTED on cpu  c.yaml:6:3"
    start = lines.index(heads[0])
    assert lines[start + 1 : start + 12] == [
        "  claim     rule plainly said",
        "  predicted prediction plainly said",
        "  seen      AssertionError: plainly said",
        "  with      number = 1",
        "            values = tensor([nan], float32)",
        "  at        falsifiers/falsify_tiny.py:9 in falsify_double: plainly said",
        "  author    if this fails: cause plainly said",
        "  tried     12 valid examples, seed 7, 0.00 s",
        "  rerun     pv validate --only F-REFUTED",
        "  replay    pv validate --only F-REFUTED --replay 6.0:AAE=",
        "",
    ]


def test_text_names_every_claim_that_is_not_made_if_it_is_verbose() -> None:
    verdict = PLAIN.contracts[0]
    unclaimed = [replace(each, outcome=Outcome.NOT_CLAIMED, reason="no ranks") for each in verdict.results]
    report = replace(PLAIN, contracts=(replace(verdict, results=unclaimed),))
    names = ", ".join(f"{each.falsifier.id} on {each.device}" for each in unclaimed)
    assert f"NOT CLAIMED {names}: no ranks" in render(report, "text", verbose=True)
    assert "no ranks" not in render(report, "text")


@pytest.mark.parametrize(("valid", "asked", "said"), [(1, 200, True), (19, 200, True), (20, 200, False), (1, 1, False)])
def test_text_names_claims_that_held_on_a_fraction_of_their_examples(valid: int, asked: int, said: bool) -> None:
    """The others of the report did not hold."""
    verdict = PLAIN.contracts[0]
    tried = [
        replace(each, trial=replace(each.trial, valid=valid, asked=asked)) if each.trial is not None else each
        for each in verdict.results
    ]
    shown = render(replace(PLAIN, contracts=(replace(verdict, results=tuple(tried)),)), "text", width=200)
    noun = "example" if valid == 1 else "examples"
    line = f"HELD       F-HELD on cpu: on only {valid} {noun} of {asked} requested\n"
    assert shown.count("requested") == shown.count(line) == said


def test_text_counts_notices_and_shows_refusals() -> None:
    shown = render(PLAIN, "text", width=200)
    assert "refusal    e.yaml:3:4 PV002 plainly said; plainly said\n" in shown
    assert "PV201" not in shown
    assert shown.splitlines()[-1] == (
        "1 fail, 0 undecided, 0 pass, 1 notice (pv lint shows them); 1.2 s on cpu; seed 0; exit 3"
    )


def test_a_passing_contract_is_one_line_and_verbose_adds_its_figures() -> None:
    mutants = EquationMutants(killed=1, total=2)
    passing = equation_reports.report(mutants, tolerance={"relative": 1e-3, "why": "10 bits"})
    assert render(passing).splitlines()[:-1] == ["PASS  c  falsifiers 1/1", ""]
    assert render(passing, verbose=True).splitlines()[:-1] == [
        "PASS  c  falsifiers 1/1",
        "      c 1.0.0: 1 of 1 falsifiers held, 1 of 2 equation mutants killed",
        "",
        "note: c: the tolerance of double is set, relative 0.001: 10 bits",
    ]


def test_names_and_figures_of_all_contracts_are_in_columns() -> None:
    failing, passing = PLAIN.contracts[0], equation_reports.report(EquationMutants(killed=1, total=2)).contracts[0]
    passing = replace(passing, subject="theirs")
    assert render(replace(PLAIN, contracts=(failing, passing))).splitlines()[:2] == [
        "FAIL  c            falsifiers 1/5  mutants 1/1  cuda 1/1 recorded  1 undecided",
        "PASS  c on theirs  falsifiers 1/1",
    ]
