"""Every registered format shows every falsifier, and is text that UTF-8 can hold."""

import time

import pytest

from pv.errors import UsageError
from pv.report import FORMATS, render
from pv.results.verdict import Report
from tests.report.handmade import HOSTILE, PLAIN, many

SHORT = ("text", "sarif")  # those that show failures only; annotations show the worst of them


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("report", [PLAIN, HOSTILE], ids=["plain", "hostile"])
def test_every_report_can_be_written_as_utf_8(report: Report, form: str) -> None:
    assert render(report, form).encode("utf-8").decode("utf-8").endswith("\n")


@pytest.mark.parametrize("form", FORMATS)
def test_every_report_names_every_falsifier(form: str) -> None:
    shown = render(PLAIN, form)
    for claim in PLAIN.contracts[0].contract.falsifiers:
        assert claim.id in shown or (form in SHORT and claim.id == "F-HELD") or form == "github"


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as refused:
        render(PLAIN, "pdf")
    assert str(refused.value) == f"unknown format 'pdf' (choose from {', '.join(FORMATS)})"


@pytest.mark.parametrize("form", FORMATS)
def test_thousands_of_falsifiers_take_linear_time(form: str) -> None:
    few, lots = many(300), many(3_000)
    assert _seconds(lots, form) < 10 * 5 * max(_seconds(few, form), 0.02)


def _seconds(report: Report, form: str) -> float:
    started = time.process_time()
    render(report, form)
    return time.process_time() - started
