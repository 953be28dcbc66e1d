"""The HTML page: header, search, overview, sections of contracts, footer. It loads nothing and runs one script."""

import base64
import hashlib
from collections.abc import Mapping
from datetime import date
from importlib.resources import files
from itertools import groupby

from pv.contract.wording import count
from pv.engines.registry import engine_of
from pv.engines.trial import EquationMutants, Trial, TrialStatus
from pv.report import View, details, phrases
from pv.report.contract_line import sentence
from pv.report.html import charts
from pv.report.html.markup import Cell, Html, column_heads, join, screen_reader_text, table, tag
from pv.report.phrases import is_of_script
from pv.results import requirements, steps
from pv.results.outcome import Outcome, Result, killed
from pv.results.verdict import ContractVerdict, Report, Status

SYMBOLS = {
    "fail": "✗",
    "falsified": "✗",
    "error": "!",
    "vacuous": "○",
    "undecided": "?",
    "not claimed": "–",
    "not reached": "–",
    "held": "✓",
    "proved": "✓",
    "pass": "✓",
    "weaker": "✗",
}
MAX_BLOCKS = 50
"""Maximum number of failures of a contract that are shown with their details."""


def badge(word: str) -> Html:
    """Return a verdict or outcome as a symbol and a word, so that its meaning does not depend on color."""
    symbol = tag("span", SYMBOLS[word], aria_hidden="true")
    return tag("span", symbol, f" {word}", class_=f"badge {word.replace(' ', '-')}")


def section(verdict: ContractVerdict, report: Report, number: int) -> Html:
    """Return the section of a contract; `number` makes its HTML id unique."""
    anchor = f"contract-{number}"
    blocks, of_script = phrases.detailed_results(verdict), is_of_script(verdict)
    if of_script:
        title, path = ["Findings" if blocks else "Claims"], None
    else:
        title = [phrases.contract_title(verdict), " ", badge(verdict.status.value)]
        path = tag("p", str(verdict.contract.location.path), class_="path")
    omitted = len(blocks) - MAX_BLOCKS
    without_premise = [
        tag("p", f"{reason}: {', '.join(result.falsifier.id for result in results)}")
        for reason, results in phrases.group_by_premise(verdict)
    ]
    parts = [
        tag("h2", *title, id=f"{anchor}-title"),
        tag("p", sentence(verdict)),
        path,
        None if of_script and blocks else _unmet_requirements(verdict),
        [_block(result, verdict) for result in blocks[:MAX_BLOCKS]],
        tag("p", f"The table has {count(omitted, 'more failure')}.") if omitted > 0 else None,
        without_premise,
        kill_matrix(verdict),
        [charts.run(trace) for trace in verdict.runs],
        _results(verdict, report),
    ]
    return tag("section", parts, class_="contract", id=anchor, aria_labelledby=f"{anchor}-title")


def _unmet_requirements(verdict: ContractVerdict) -> Html:
    items = [tag("li", reason) for reason in requirements.unmet_requirements(verdict)]
    return join([tag("h3", "Not met"), tag("ul", items)] if items else None)


def _block(result: Result, verdict: ContractVerdict) -> Html:
    """Return a failure with its counterexample and the commands that reproduce the failure."""
    heading = tag("h3", badge(result.outcome.value), f" {result.falsifier.id}{phrases.on_device(result)}")
    place = tag("p", details.script_location(result) or details.claim_location(result), class_="path")
    # Adjacent rows with the same label, such as the arguments of a counterexample, share one heading.
    groups = groupby(details.lines(result, verdict), key=lambda line: line[0])
    listed = [(tag("dt", label), [tag("dd", tag("pre", text)) for _, text in same]) for label, same in groups]
    return tag("article", heading, place, tag("dl", listed), data_search=True)


def _results(verdict: ContractVerdict, report: Report) -> Html:
    if not verdict.results:
        return join(None)
    of_script = is_of_script(verdict)
    if of_script:
        heads = column_heads("result", "claim", "tried", "rule")
    else:
        heads = column_heads("outcome", "claim", "device", "tried", "evidence", "rule")
    rows = [_row(result, verdict, report, of_script=of_script) for result in verdict.results]
    shown = table(f"All results of {verdict.contract.id}", heads, rows)
    return tag("details", tag("summary", f"All results ({count(len(rows), 'result')})"), shown)


def _row(result: Result, verdict: ContractVerdict, report: Report, *, of_script: bool) -> list[Cell]:
    effort = engine_of(result.falsifier).effort(result.trial) if result.trial is not None else result.reason
    head = [Cell(badge(phrases.outcome_text(result))), Cell(result.falsifier.id, head=True)]
    if of_script:
        return [*head, Cell(effort), Cell(result.falsifier.rule)]
    items = [tag("li", text) for text in details.survivors(result, verdict)]
    survivors = tag("ul", items, aria_label="Equation mutants that survived") if items else None
    cells = (result.device, effort, evidence(result, report), [result.falsifier.rule, survivors])
    return [*head, *map(Cell, cells)]


def evidence(result: Result, report: Report) -> str:
    """Return where a result comes from: recorded evidence with its device and date, this validation, or "none"."""
    if (recorded := result.recorded) is not None:
        torch = f", torch {recorded.hardware.torch}" if recorded.hardware.torch else ""
        stale = f"; stale, changed: {', '.join(recorded.changed)}" if recorded.changed else ""
        when = f"{recorded.when}{_age(recorded.when, report.started)}"
        return f"recorded on {recorded.hardware.name}{torch}, {when}{stale}"
    if result.trial is None:
        return "none"
    info = report.devices.get(result.device)
    return f"measured now on {info.name}" if info is not None and info.name else "measured now"


def _age(when: str, started: str) -> str:
    """Return the age of a record in days when the report started; "" if a date is invalid or the record is newer."""
    try:
        days = (date.fromisoformat(started[:10]) - date.fromisoformat(when)).days
    except ValueError:
        return ""
    return f" ({count(days, 'day')} before this report)" if days >= 0 else ""


MAX_CELLS = 3000
"""A larger matrix is mostly empty, so a list by mutant replaces it."""
MARKS = {"killed": "✓", "survived": "✗", "not judged": "–", "not tried": "·"}


def kill_matrix(verdict: ContractVerdict) -> Html:
    """Return the matrix of falsifiers and mutants on the CPU; empty if no falsifier has mutants."""
    rows = [
        result
        for result in verdict.results
        if result.device == "cpu" and (result.falsifier.kills or result.mutants or _equation_mutants(result))
    ]
    if not rows:
        return join(None)
    mutants = {mutant.id: mutant.fault for mutant in verdict.contract.mutants}
    fits = len(rows) * len(mutants) <= MAX_CELLS
    shown = _kill_matrix(rows, mutants) if fits else _kill_list(rows, mutants)
    return tag("details", tag("summary", f"Planted faults ({len(mutants)} declared)"), shown, open=fits)


def _equation_mutants(result: Result) -> EquationMutants | None:
    return result.trial.equation_mutants if result.trial is not None else None


def _kill_matrix(rows: list[Result], mutants: Mapping[str, str]) -> Html:
    """Return a table with a row for every falsifier and a column for every declared mutant.

    Further columns count the killed mutants that no contract declares: generated mutants and equation mutants.
    """
    counts: dict[str, list[str]] = {"generated mutants": [], "equation mutants": []}
    for result in rows:
        generated = result.mutants if not result.falsifier.kills else ()
        text = f"{sum(map(killed, generated))} of {len(generated)} killed" if generated else ""
        counts["generated mutants"].append(text)
        of_equation = _equation_mutants(result)
        text = f"{of_equation.killed} of {of_equation.total} killed" if of_equation is not None else ""
        counts["equation mutants"].append(text)
    # Omit a column in which every row is empty.
    counts = {name: texts for name, texts in counts.items() if any(texts)}
    heads = column_heads("falsifier") | {id_: tag("span", id_, title=fault) for id_, fault in mutants.items()}
    table_rows = []
    for number, result in enumerate(rows):
        trials = {trial.mutant: trial for trial in result.mutants}
        cells = [_kill_cell(mutant_outcome(result, id_, trials.get(id_))) for id_ in mutants]
        texts = [column[number] for column in counts.values()]
        cells += [Cell(text, class_="mutant" if text else "mutant unnamed") for text in texts]
        table_rows.append([Cell(result.falsifier.id, head=True), *cells])
    return table("Falsifiers and the faults they kill", heads | column_heads(*counts), table_rows)


def mutant_outcome(result: Result, mutant: str, trial: Trial | None) -> str:
    """Return the outcome of a declared mutant for a falsifier; "" if the falsifier does not name the mutant."""
    if mutant not in result.falsifier.kills:
        return ""
    if trial is None or trial.status is TrialStatus.CANCELLED:
        return "not tried"
    if killed(trial):
        return "killed"
    return "survived" if trial.status is TrialStatus.HELD else "not judged"


def _kill_cell(text: str) -> Cell:
    if not text:
        return Cell(screen_reader_text("not named"), class_="mutant unnamed")
    mark = tag("span", MARKS[text], aria_hidden="true")
    return Cell([mark, " ", tag("span", text, class_="word")], class_=f"mutant {text.replace(' ', '-')}")


def _kill_list(rows: list[Result], mutants: Mapping[str, str]) -> Html:
    """Return a table with a row for every mutant, its fault and the falsifiers that name it, with their outcomes."""
    outcomes: dict[str, list[str]] = {id_: [] for id_ in mutants}
    for result in rows:
        trials = {trial.mutant: trial for trial in result.mutants}
        for id_ in result.falsifier.kills:
            text = f"{result.falsifier.id}: {mutant_outcome(result, id_, trials.get(id_))}"
            outcomes.setdefault(id_, []).append(text)
    lines = [
        [Cell(id_, head=True), Cell(mutants.get(id_, "")), Cell("; ".join(texts))] for id_, texts in outcomes.items()
    ]
    return table("Faults and their falsifiers", column_heads("mutant", "fault", "falsifiers"), lines)


MAX_STEPS = 200
"""Maximum number of rows in a table of steps."""


def render(report: Report, view: View) -> str:
    """Return the page. Its content security policy allows only the embedded style and script, by their hashes."""
    style, script = _file("style.css"), _file("script.js")
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}"
    counts = ", ".join(f"{number} {word}" for number, word in _counts(report, view))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{phrases.report_title(report)}: {report.closing or counts}"),
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


def _counts(report: Report, view: View) -> list[tuple[int, str]]:
    """Return the counts at the top of the page, each with its word.

    They count the contracts by verdict and the weakenings that fail; for an observed run, its claims by result.
    """
    if report.closing:
        outcomes = [phrases.outcome_text(result) for verdict in report.contracts for result in verdict.results]
        return [(outcomes.count(word), word) for word in (Outcome.FALSIFIED.value, Outcome.HELD.value, "not reached")]
    statuses = [verdict.status for verdict in report.contracts]
    counts = [(statuses.count(status), status.value) for status in Status]
    if view.compared is not None and view.compared.failing:
        counts.append((len(view.compared.failing), "weaker"))
    return counts


def _header(report: Report, view: View) -> Html:
    tiles = [tag("li", tag("strong", str(number)), " ", badge(word)) for number, word in _counts(report, view)]
    label = "Claims by result" if report.closing else "Contracts by verdict"
    unmet = [tag("li", text) for text in requirements.unmet_by_report(report)]
    return tag(
        "header",
        tag("h1", phrases.report_title(report)),
        tag("ul", tiles, class_="tiles", aria_label=label),
        tag("ul", unmet) if unmet else None,
        tag("p", phrases.closing_line(report, view)),
    )


def _search() -> Html:
    field = tag("input", type="search", id="search", autocomplete="off", aria_describedby="keys")
    keys = tag("span", "Press / to search, Enter for the next match, Esc to clear.", id="keys", class_="keys")
    status = tag("span", "", id="count", role="status")
    return tag("search", tag("label", "Search claims, mutants and messages", for_="search"), field, keys, status)


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
            Cell(tag("a", phrases.contract_title(verdict), href=f"#contract-{number}"), head=True),
            Cell(sentence(verdict)),
        ]
        for number, verdict in enumerate(report.contracts)
    ]
    shown = table("Contracts, worst first", column_heads("verdict", "contract", "evidence"), rows)
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
    heads = column_heads("change", "contract, claim or mutant", "at", "difference")
    shown = table(count(len(rows), "change"), heads, rows)
    title = tag("h2", "Compared with the base", id="changes")
    notes = [tag("p", note) for note in (phrases.weakening_text(view.compared), *view.compared.notes) if note]
    return tag("section", title, shown if rows else tag("p", "No difference."), notes, aria_labelledby="changes")


def _findings(report: Report) -> Html:
    findings = phrases.refusals_and_errors(report)
    if not findings:
        return join(None)
    items = [tag("li", badge("error"), f" {finding}", data_search=True) for finding in findings]
    return tag("section", tag("h2", "Lint", id="lint"), tag("ul", items), aria_labelledby="lint")


def _steps(report: Report) -> Html:
    """Return the steps of an observed run: a chart and a collapsed table of at most `MAX_STEPS` rows for each group."""
    parts = []
    for title, rows in steps.groups(report.steps):
        cells = []
        for row in rows[:MAX_STEPS]:
            first, *rest = steps.cells(row)
            cells.append([Cell(first, head=True), *map(Cell, rest)])
        shown = table(title, column_heads(*steps.COLUMNS), cells)
        omitted = steps.remaining_steps(rows, MAX_STEPS)
        collapsed = tag("details", tag("summary", "Table of the steps"), shown, tag("p", omitted) if omitted else None)
        parts.append([tag("h3", title), charts.observed(title, rows), collapsed])
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
