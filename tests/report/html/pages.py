"""Reads a page as a browser does: html5lib in its strict mode raises for every error of the markup."""

from typing import Any
from xml.etree.ElementTree import Element

import html5lib

from pv.report import render
from pv.results.verdict import Report


def page(report: Report, **options: Any) -> Element:
    return parsed(render(report, "html", **options))


def parsed(text: str) -> Element:
    root: Element = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(text)
    return root


def fragment(text: str) -> Element:
    """Return a part of a page inside a new element."""
    head = "<!doctype html><html><head><title>t</title></head><body>"
    body = parsed(f"{head}{text}</body></html>").find("body")
    assert body is not None
    return body


def words(element: Element) -> str:
    """Return the text of an element with single spaces."""
    return " ".join(" ".join(element.itertext()).split())
