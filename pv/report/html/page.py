"""The HTML page: header, search, overview, sections of contracts, footer. It loads nothing and runs one script."""

import base64
import hashlib
from importlib.resources import files

from pv.contract.wording import count
from pv.report import View, phrases
from pv.report.html import charts
from pv.report.html.contract import badge, section
from pv.report.html.markup import Cell, Html, join, named, table, tag
from pv.report.summary import sentence
from pv.results import gates, steps
from pv.results.outcome import Outcome
from pv.results.verdict import Report, Status

MAX_STEPS = 200
"""Rows of a table of steps."""


def render(report: Report, view: View) -> str:
    """Return the page. Its content security policy allows only the embedded style and script, by their hashes."""
    style, script = _file("style.css"), _file("script.js")
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{phrases.title_of(report)}: {report.closing or _listed_counts(report, view)}"),
        tag("style", style),
    )
    skip = tag("a", "Skip to the results", href="#results", class_="skip")
    body = tag(
        "body", skip, _header(report, view), _search(), _main(report, view), _footer(report), tag("script", script)
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _file(name: str) -> Html:
    return Html(files("pv.report.html").joinpath(name).read_text(encoding="utf-8"))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _listed_counts(report: Report, view: View) -> str:
    return ", ".join(f"{number} {word}" for number, word in _counts(report, view))


def _counts(report: Report, view: View) -> list[tuple[int, str]]:
    """Return the number of contracts by verdict, and of the weakenings that fail the comparison with a base.

    Of an observed run, return the number of claims by result.
    """
    if report.closing:
        outcomes = [phrases.outcome(result) for verdict in report.contracts for result in verdict.results]
        return [(outcomes.count(word), word) for word in (Outcome.FALSIFIED.value, Outcome.HELD.value, "not reached")]
    statuses = [verdict.status for verdict in report.contracts]
    weaker = len(view.compared.failing) if view.compared is not None else 0
    return [*((statuses.count(status), status.value) for status in Status), *([(weaker, "weaker")] if weaker else [])]


def _header(report: Report, view: View) -> Html:
    tiles = [tag("li", tag("strong", str(number)), " ", badge(word)) for number, word in _counts(report, view)]
    unmet = [tag("li", text) for text in gates.unmet_overall(report)]
    return tag(
        "header",
        tag("h1", phrases.title_of(report)),
        tag(
            "ul",
            tiles,
            class_="tiles",
            aria_label=f"{'Claims by result' if report.closing else 'Contracts by verdict'}",
        ),
        tag("ul", unmet) if unmet else None,
        tag("p", phrases.closing(report, view)),
    )


def _search() -> Html:
    box = tag("input", type="search", id="search", autocomplete="off", aria_describedby="keys")
    keys = tag("span", "Press / to search, Enter for the next match, Esc to clear.", id="keys", class_="keys")
    status = tag("span", "", id="count", role="status")
    return tag("search", tag("label", "Search claims, mutants and messages", for_="search"), box, keys, status)


def _main(report: Report, view: View) -> Html:
    sections = [section(verdict, report, number) for number, verdict in enumerate(report.contracts)]
    parts = [_changes(view), _findings(report), _overview(report), sections, _steps(report), _notes(report)]
    return tag("main", parts, id="results")


def _overview(report: Report) -> Html:
    """Return the table of contracts; empty for an observed run, whose only contract is a suite."""
    if report.closing:
        return join(None)
    rows = [
        [
            Cell(badge(verdict.status.value)),
            Cell(tag("a", phrases.title(verdict), href=f"#contract-{number}"), head=True),
            Cell(sentence(verdict)),
        ]
        for number, verdict in enumerate(report.contracts)
    ]
    shown = table("Contracts, worst first", named("verdict", "contract", "evidence"), rows)
    return tag("section", tag("h2", "Contracts", id="contracts"), shown, aria_labelledby="contracts")


def _changes(view: View) -> Html:
    if view.compared is None:
        return join(None)
    rows = [
        [
            Cell(change.kind.value),
            Cell(f"{change.contract} {change.claim}".strip(), head=True),
            Cell(change.place),
            Cell(change.text),
        ]
        for change in view.compared.changes
    ]
    heads = named("change", "contract, claim or mutant", "at", "difference")
    shown = table(count(len(rows), "change"), heads, rows)
    title = tag("h2", "Compared with the base", id="changes")
    notes = [tag("p", note) for note in (phrases.weakened(view.compared), *view.compared.notes) if note]
    return tag("section", title, shown if rows else tag("p", "No difference."), notes, aria_labelledby="changes")


def _findings(report: Report) -> Html:
    findings = phrases.refusals_and_errors(report)
    if not findings:
        return join(None)
    items = [tag("li", badge("error"), f" {finding}", data_search=True) for finding in findings]
    return tag("section", tag("h2", "Lint", id="lint"), tag("ul", items), aria_labelledby="lint")


def _steps(report: Report) -> Html:
    """Return the steps of an observed run: figures, and a folded table of the first `MAX_STEPS` rows."""
    parts = []
    for title, rows in steps.groups(report.steps):
        cells = [
            [Cell(text, head=not column) for column, text in enumerate(steps.cells(row))] for row in rows[:MAX_STEPS]
        ]
        shown = table(title, named(*steps.COLUMNS), cells)
        left = steps.remaining_steps(rows, MAX_STEPS)
        folded = tag("details", tag("summary", "Table of the steps"), shown, tag("p", left) if left else None)
        parts.append([tag("h3", title), charts.observed(title, rows), folded])
    heading = tag("h2", "Observed run", id="steps")
    return tag("section", heading, parts, aria_labelledby="steps") if parts else join(None)


def _notes(report: Report) -> Html:
    items = [tag("li", note) for note in phrases.notes(report)]
    title = tag("h2", "Notes", id="notes")
    return tag("section", title, tag("ul", items), aria_labelledby="notes") if items else join(None)


def _footer(report: Report) -> Html:
    devices = ", ".join(f"{name} {info.name} torch {info.torch}".strip() for name, info in report.devices.items())
    commit = f"commit {report.commit}" if report.commit else ""
    versions = f"pv {report.version}, Python {report.python}, Hypothesis {report.hypothesis}"
    facts = [report.started, commit, versions, devices]
    return tag("footer", tag("p", "; ".join(part for part in facts if part)))
