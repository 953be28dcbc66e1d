"""The kill matrix of a contract: which falsifier killed which planted fault."""

from collections.abc import Mapping

from pv.report.html.markup import Html, hidden, joined, table, tag
from pv.results.outcome import Result, killed
from pv.results.trial import Trial, TrialStatus
from pv.results.verdict import ContractVerdict

# A larger matrix is mostly empty; it is then listed by mutant.
MAX_CELLS = 3000
MARKS = {"killed": "✓", "survived": "✗", "not judged": "–", "not tried": "·"}


def matrix(verdict: ContractVerdict) -> Html:
    """Return the section of a contract's mutants; nothing if it has none."""
    rows = [result for result in verdict.results if _judges(result)]
    mutants = {mutant.id: mutant.fault for mutant in verdict.contract.mutants}
    automatic = any(not result.falsifier.kills and result.mutants for result in rows)
    equations = any(result.trial is not None and result.trial.equation_mutants for result in rows)
    if not rows:
        return joined(None)
    small = len(rows) * len(mutants) <= MAX_CELLS
    shown = _small(rows, mutants, automatic, equations) if small else _list(rows, mutants)
    return tag("details", tag("summary", f"Planted faults ({len(mutants)} declared)"), shown, open=small)


def _judges(result: Result) -> bool:
    equations = result.trial is not None and result.trial.equation_mutants is not None
    return result.device == "cpu" and bool(result.falsifier.kills or result.mutants or equations)


def _small(rows: list[Result], mutants: Mapping[str, str], automatic: bool, equations: bool) -> Html:
    heads = ["falsifier", *(tag("span", id_, title=fault) for id_, fault in mutants.items())]
    heads += ["automatic mutants"] if automatic else []
    heads += ["equation mutants"] if equations else []
    return table("Falsifiers and the faults they kill", heads, [_row(r, mutants, automatic, equations) for r in rows])


def _row(result: Result, mutants: Mapping[str, str], automatic: bool, equations: bool) -> Html:
    trials = {trial.mutant: trial for trial in result.mutants}
    cells = [_cell(said(result, id_, trials.get(id_))) for id_ in mutants]
    cells += [tag("td", _automatic(result), class_="mutant")] if automatic else []
    cells += [tag("td", _equations(result), class_="mutant")] if equations else []
    return tag("tr", tag("th", result.falsifier.id, scope="row"), cells, data_search=True)


def said(result: Result, mutant: str, trial: Trial | None) -> str:
    """Return the outcome of a declared mutant under a falsifier; "" if the falsifier does not name it."""
    if mutant not in result.falsifier.kills:
        return ""
    if trial is None or trial.status is TrialStatus.CANCELLED:
        return "not tried"
    if killed(trial):
        return "killed"
    return "survived" if trial.status is TrialStatus.HELD else "not judged"


def _cell(text: str) -> Html:
    if not text:
        return tag("td", hidden("not named"), class_="mutant")
    mark = tag("span", MARKS[text], aria_hidden="true")
    return tag("td", mark, " ", tag("span", text, class_="word"), class_=f"mutant {text.replace(' ', '-')}")


def _automatic(result: Result) -> str:
    if result.falsifier.kills or not result.mutants:
        return ""
    return f"{sum(map(killed, result.mutants))} of {len(result.mutants)} killed"


def _equations(result: Result) -> str:
    found = result.trial.equation_mutants if result.trial is not None else None
    return f"{found.killed} of {found.total} killed" if found is not None else ""


def _list(rows: list[Result], mutants: Mapping[str, str]) -> Html:
    """Return a row for each mutant with its falsifiers, for a matrix that would be too large."""
    found: dict[str, list[str]] = {id_: [] for id_ in mutants}
    for result in rows:
        trials = {trial.mutant: trial for trial in result.mutants}
        for id_ in result.falsifier.kills:
            found.setdefault(id_, []).append(f"{result.falsifier.id}: {said(result, id_, trials.get(id_))}")
    lines = [
        tag(
            "tr",
            tag("th", id_, scope="row"),
            tag("td", mutants.get(id_, "")),
            tag("td", "; ".join(by)),
            data_search=True,
        )
        for id_, by in found.items()
    ]
    return table("Faults and their falsifiers", ["mutant", "fault", "falsifiers"], lines)
