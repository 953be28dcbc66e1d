"""Every registered format shows every falsifier, and is text that UTF-8 can hold."""

import pytest

from pv.errors import UsageError
from pv.report import FORMATS, render
from pv.results.verdict import Report
from tests.report.handmade import HOSTILE, PLAIN


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("report", [PLAIN, HOSTILE], ids=["plain", "hostile"])
def test_every_report_can_be_written_as_utf_8(report: Report, form: str) -> None:
    assert render(report, form).encode("utf-8").decode("utf-8").endswith("\n")


@pytest.mark.parametrize("form", FORMATS)
def test_every_report_names_every_falsifier(form: str) -> None:
    shown = render(PLAIN, form)
    for claim in PLAIN.contracts[0].contract.falsifiers:
        assert claim.id in shown or (form == "text" and claim.id == "F-HELD")


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as refused:
        render(PLAIN, "html")
    assert str(refused.value) == "unknown format 'html' (choose from text, json, markdown, junit)"
