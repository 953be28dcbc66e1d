"""Builds HTML. Every text is escaped on its way in; only what `tag` returned is markup."""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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
    return Html(start if name in VOID else f"{start}{join(children)}</{name}>")


def join(children: Child) -> Html:
    """Return the children one after the other, each text escaped."""
    if children is None:
        return Html("")
    if isinstance(children, Html):
        return children
    return escaped(children) if isinstance(children, str) else Html("".join(map(join, children)))


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


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table; `head` for the one that names its row."""

    content: Child
    head: bool = False
    class_: str = ""


def table(caption: str, heads: Mapping[str, Child], rows: Iterable[Sequence[Cell]]) -> Html:
    """Return a table with column headers, by their names. In a narrow window each row is a card with these names.

    The roles are written out, because cards are not a table in its style.
    """
    columns = [tag("th", text, scope="col", role="columnheader") for text in heads.values()]
    head = tag("thead", tag("tr", columns, role="row"), role="rowgroup")
    body = tag("tbody", [_row(row, list(heads)) for row in rows], role="rowgroup")
    inside = tag("table", tag("caption", caption), head, body, role="table")
    return tag("div", inside, class_="scroll", tabindex=0, role="region", aria_label=caption)


def named(*names: str) -> dict[str, Child]:
    """Return column headers that are their names."""
    return {name: name for name in names}


def _row(cells: Sequence[Cell], names: Sequence[str]) -> Html:
    shown = [_cell(cell, name) for cell, name in zip(cells, names, strict=True)]
    return tag("tr", shown, role="row", data_search=True)


def _cell(cell: Cell, name: str) -> Html:
    if cell.head:
        return tag("th", cell.content, scope="row", role="rowheader")
    return tag("td", cell.content, class_=cell.class_ or None, role="cell", data_label=name)
