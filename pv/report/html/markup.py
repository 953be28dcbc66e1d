"""Builds HTML. Every text is escaped on its way in; only what `tag` returned is markup."""

import html
from collections.abc import Iterable

from pv.report.text import plain

VOID = {"input", "meta"}  # not those of SVG: there an element without an end holds what follows
Attribute = str | int | float | bool | None


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


Child = str | None | Iterable["Child"]


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """Return an element. A name may end with an underscore, and has one for each hyphen: class_, aria_label."""
    start = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    return Html(start if name in VOID else f"{start}{joined(children)}</{name}>")


def joined(children: Child) -> Html:
    """Return the children one after the other, each text escaped."""
    if children is None:
        return Html("")
    if isinstance(children, Html):
        return children
    return escaped(children) if isinstance(children, str) else Html("".join(map(joined, children)))


def escaped(text: str) -> Html:
    """Return a text as markup that shows it, control characters as escapes."""
    return Html(html.escape(plain(text), quote=True))


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escaped(str(value))}"'


def hidden(text: str) -> Html:
    """Return text for screen readers only."""
    return tag("span", text, class_="sr")


def table(caption: str, heads: Iterable[Child], rows: Iterable[Html]) -> Html:
    """Return a table with column headers, which scrolls sideways in a narrow window."""
    head = tag("thead", tag("tr", [tag("th", each, scope="col") for each in heads]))
    inside = tag("table", tag("caption", caption), head, tag("tbody", rows))
    return tag("div", inside, class_="scroll", tabindex=0, role="region", aria_label=caption)
