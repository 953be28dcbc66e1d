"""The JUnit report is XML, whatever the code under contract prints."""

from xml.etree import ElementTree as ET

import pytest

from pv.report import render
from pv.results.verdict import Report
from tests.report.handmade import HOSTILE, PLAIN


@pytest.mark.parametrize("report", [PLAIN, HOSTILE], ids=["plain", "hostile"])
def test_junit_parses_and_counts(report: Report) -> None:
    root = ET.fromstring(render(report, "junit"))
    lint, suite = root.findall("testsuite")
    counts = ("tests", "failures", "errors", "skipped")
    assert [lint.get(count) for count in counts] == ["1", "0", "1", "0"]
    assert [suite.get(count) for count in counts] == ["6", "2", "1", "1"]
    assert [case.get("name") for case in suite] == [
        *("F-HELD[cpu]", "F-HELD[cuda]", "F-REFUTED[cpu]"),
        *("F-BROKEN[cpu]", "F-BARREN[cpu]", "F-SKIPPED[cpu]"),
    ]


def test_junit_shows_characters_that_xml_cannot_hold_as_a_replacement() -> None:
    root = ET.fromstring(render(HOSTILE, "junit"))
    failure = root.find("testsuite[@name='c']/testcase[@name='F-REFUTED[cpu]']/failure")
    assert failure is not None
    message = failure.get("message")
    assert message is not None
    assert message.startswith("AssertionError: a\ufffdb\ufffd[31mred\ufffd\ufffd <b>&amp;]]> | `x` *y* [z](u)\u2028")
