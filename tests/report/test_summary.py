"""The verdict of a contract as one sentence."""

from dataclasses import replace

from pv.report.summary import sentence
from pv.results.verdict import Selection, decide
from tests.report.handmade import PLAIN
from tests.results.handmade import contract, evidence, falsifier, recorded

FIGURES = "1 of 5 falsifiers held, CUDA 1 of 1 (recorded on NVIDIA H200, 2026-11-20), 1 of 1 mutants killed"


def test_the_sentence_has_every_denominator() -> None:
    assert sentence(PLAIN.contracts[0]) == FIGURES


def test_records_of_two_days_are_both_dated() -> None:
    claims = (falsifier("F", devices=("cuda",)), falsifier("G", devices=("cuda",)))
    records = (recorded(), replace(recorded(id_="G"), when="2020-01-01"))
    said = sentence(decide(contract(*claims), evidence(recorded=records), Selection()))
    assert "CUDA 2 of 2 (recorded on NVIDIA H200, 2020-01-01; NVIDIA H200, 2026-11-20)" in said
