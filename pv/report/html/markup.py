"""Build HTML. Every string is escaped, except the `Html` that functions of this module return."""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pv.report.wrapping import plain

VOID = {"input", "meta"}
"""Elements without an end tag. SVG elements always need one: otherwise the following elements become their children."""
Attribute = str | int | float | bool | None


class Html(str):
    """Text that is already markup."""

    __slots__ = ()


Child = str | None | Iterable["Child"]


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """Return an element.

    In the name of an attribute, an underscore becomes a hyphen; an underscore at the end, as in `class_`, is dropped.
    """
    start = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    return Html(start if name in VOID else f"{start}{join(children)}</{name}>")


def join(children: Child) -> Html:
    """Join children into markup; strings are escaped."""
    if children is None:
        return Html("")
    if isinstance(children, Html):
        return children
    return escape(children) if isinstance(children, str) else Html("".join(map(join, children)))


def escape(text: str) -> Html:
    """Return markup that shows a text; control characters are shown as escapes."""
    return Html(html.escape(plain(text), quote=True))


def _attribute(key: str, value: Attribute) -> str:
    """Return an attribute as markup; "" for None and False, the name alone for True."""
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def screen_reader_text(text: str) -> Html:
    """Return text for screen readers only."""
    return tag("span", text, class_="sr")


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table; `head` marks the cell that names the row."""

    content: Child
    head: bool = False
    class_: str = ""


def table(caption: str, heads: Mapping[str, Child], rows: Iterable[Sequence[Cell]]) -> Html:
    """Return a table. In a narrow window, every row is shown as a card with the names of the columns.

    Args:
        caption: The caption.
        heads: The content of each header, by name of the column.
        rows: The cells of each row, one for each column.
    """
    # Roles are explicit: a table that CSS lays out as cards loses its roles for screen readers.
    columns = [tag("th", text, scope="col", role="columnheader") for text in heads.values()]
    head = tag("thead", tag("tr", columns, role="row"), role="rowgroup")
    body = tag("tbody", [_row(row, list(heads)) for row in rows], role="rowgroup")
    inside = tag("table", tag("caption", caption), head, body, role="table")
    return tag("div", inside, class_="scroll", tabindex=0, role="region", aria_label=caption)


def column_heads(*names: str) -> dict[str, Child]:
    """Return the headers of columns that have no markup: each text is the name of its column."""
    return {name: name for name in names}


def _row(cells: Sequence[Cell], names: Sequence[str]) -> Html:
    shown = [_cell(cell, name) for cell, name in zip(cells, names, strict=True)]
    return tag("tr", shown, role="row", data_search=True)


def _cell(cell: Cell, name: str) -> Html:
    if cell.head:
        return tag("th", cell.content, scope="row", role="rowheader")
    return tag("td", cell.content, class_=cell.class_ or None, role="cell", data_label=name)
