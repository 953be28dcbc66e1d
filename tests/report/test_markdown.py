"""Markdown keeps messages of the code under contract inside fences and columns."""

import re
from dataclasses import replace

from pv.report import render
from pv.results.trial import EquationMutants
from tests.report.equation_reports import MISSED, report
from tests.report.handmade import HOSTILE, PLAIN


def unfenced(markdown: str) -> str:
    """The markdown without its fenced blocks, as a reader of CommonMark finds them."""
    kept: list[str] = []
    fence = ""
    for line in markdown.split("\n"):
        mark = re.match(r"`{3,}", line)
        if fence:
            fence = "" if line.strip() == fence else fence
        elif mark:
            fence = mark[0]
        else:
            kept.append(line)
    assert not fence, "a fence is left open"
    return "\n".join(kept)


def test_markdown_keeps_foreign_text_inside_its_fences() -> None:
    outside = unfenced(render(HOSTILE, "markdown"))
    assert "::error::no\n" not in outside
    assert len(re.findall("^### ", outside, re.MULTILINE)) == len(
        re.findall("^### ", unfenced(render(PLAIN, "markdown")), re.MULTILINE)
    )
    assert re.search(r"(?<!\\)<b>", outside) is None
    assert re.search(r"(?<!\\)\[z\]\(", outside) is None


def test_markdown_keeps_every_row_of_a_table_in_its_columns() -> None:
    for what in (PLAIN, HOSTILE):
        rows = [line for line in unfenced(render(what, "markdown")).split("\n") if line.startswith("| `F-")]
        assert len(rows) == 6
        assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6}


def test_markdown_names_that_end_code_font_are_escaped() -> None:
    verdict = PLAIN.contracts[0]
    claim = replace(verdict.contract.falsifiers[0], id="a`|b")
    results = tuple(replace(result, falsifier=claim) for result in verdict.results)
    shown = render(replace(PLAIN, contracts=(replace(verdict, results=results),)), "markdown")
    assert "| a\\`\\|b | cpu |" in shown


def test_markdown_names_equation_mutants_that_survived() -> None:
    shown = render(report(EquationMutants(killed=1, total=2, survivors=(MISSED,))), "markdown")
    assert "100 valid examples, 1 of 2 equation mutants killed, seed 0" in shown
    assert "Equation mutants that survived `F-E`:\n\n- c.yaml:3:15 double: 2 + n for 2 \\* n" in shown
