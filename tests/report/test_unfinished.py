"""Reports of a validation that ended early count contracts without a result in one line, and show the others."""

import json
from dataclasses import replace

import pytest

from pv.contract.model import Gate
from pv.engines.trial import Trial, TrialStatus
from pv.report import render
from pv.results.evidence import STOPPED
from pv.results.outcome import Selection
from pv.results.saved import report as saved
from pv.results.verdict import Report, decide
from tests.report.handmade import PLAIN
from tests.results.handmade import BOTH, FOUND, contract, evidence, judged, recorded, trial

SKIPPED = trial(TrialStatus.SKIPPED, detail="no network")
REFUTED = trial(TrialStatus.REFUTED, counterexample=FOUND)
MOST = Gate(mutation_score=0.9)
ENDED = {"--fail-fast": "--fail-fast stopped at the first failure", "Ctrl-C": "interrupted"}


def report_of(cause: str, contracts: dict[str, tuple[Trial, ...]], gate: Gate | None = None) -> Report:
    """Return a report of a validation that ended early.

    Args:
        cause: A key of `ENDED`.
        contracts: By id of a contract with two claims, the trials that had ended.
        gate: The gate of the contracts.
    """
    verdicts = []
    for id_, trials in contracts.items():
        tried = {item.falsifier for item in trials}
        # --fail-fast reports cancelled trials; after Ctrl-C there are none.
        cancelled = [trial(TrialStatus.CANCELLED, claim.id, detail=STOPPED) for claim in BOTH if claim.id not in tried]
        cancelled += [judged(TrialStatus.CANCELLED, detail=STOPPED)] if trials == (trial(),) else []
        evidence_ = evidence(*trials, *(cancelled if cause == "--fail-fast" else ()), recorded=(recorded(),))
        contract_ = contract(*(replace(claim, devices=("cpu", "cuda")) for claim in BOTH), gate=gate, id=id_)
        verdicts.append(decide(contract_, replace(evidence_, interrupted=cause == "Ctrl-C"), Selection()))
    return replace(PLAIN, contracts=tuple(verdicts), findings=(), interrupted=cause == "Ctrl-C")


@pytest.fixture(params=ENDED)
def cause(request: pytest.FixtureRequest) -> str:
    return str(request.param)


PARTS: dict[str, tuple[Trial, ...]] = {
    "c-failing": (REFUTED,),
    "c-first": (),
    "c-held": (trial(), judged()),
    "c-other": (SKIPPED,),
    "c-second": (),
    "c-unjudged": (trial(),),
}


def rows(report: Report, form: str, *, verbose: bool = False) -> list[str]:
    """Return the lines that name a contract with its status, and with `verbose` also the lines of its figures."""
    shown = [line.replace("`", "") for line in render(report, form, verbose=verbose, width=200).splitlines()]
    return [line for line in shown if any(f" {id_} " in line for id_ in PARTS)]


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_contracts_without_a_result_are_counted_in_one_line(form: str, cause: str) -> None:
    report = report_of(cause, PARTS)
    shown = rows(report, form)
    assert len(shown) == 3
    assert all(f" {id_} " in line for id_, line in zip(("c-failing", "c-held", "c-other"), shown, strict=True))
    line = f"{ENDED[cause]}: 9 claims of 6 contracts not run, 3 contracts not judged"
    text = render(report, form, width=200)
    assert text.count(line) == text.count("no network") == 1
    assert form == "markdown" or text.count("not run") == 1
    assert "1 fail, 5 undecided, 0 pass" in text


def test_json_and_the_verbose_text_have_every_contract(cause: str) -> None:
    report = report_of(cause, PARTS)
    assert [item["id"] for item in json.loads(render(report, "json"))["contracts"]] == list(PARTS)
    assert len(rows(report, "text", verbose=True)) == 2 * len(PARTS) and "-v" in render(report, "text")
    lost = [line.strip() for line in render(report, "text", verbose=True).splitlines() if line.startswith(" " * 12)]
    assert "c-first: F on cpu, G on cpu" in lost and "c-first: F on cpu, G on cpu" not in render(report, "text")
    again = saved.parse(render(report, "json"), "report.json")
    assert rows(again, "text") == rows(report, "text")


def test_contract_that_also_lacks_a_score_is_shown(cause: str) -> None:
    report = report_of(cause, {"c-first": ()}, gate=MOST)
    assert rows(report, "text") and "not judged" not in render(report, "text")
    assert rows(report, "markdown") and "not judged" not in render(report, "markdown")


def test_report_without_any_result_begins_with_the_reason(cause: str) -> None:
    report = report_of(cause, {"c-first": (), "c-second": ()})
    line = f"UNDECIDED  {ENDED[cause]}: 4 claims of 2 contracts not run, 2 contracts not judged (-v lists them)\n"
    assert render(report, "text", width=200).startswith(line)
    assert "| contract |" not in render(report, "markdown")


def test_github_annotates_contracts_without_a_result_once(cause: str) -> None:
    lines = render(report_of(cause, PARTS), "github").splitlines()
    assert [line.partition("title=")[2].partition("::")[0] for line in lines if line.startswith("::")] == [
        "falsified%3A F on cpu",
        "undecided%3A c-held 1.0.0",
        "undecided%3A c-other 1.0.0",
        *["pv"] * (1 + (cause == "Ctrl-C")),
    ]
    assert sum("9 claims of 6 contracts not run, 3 contracts not judged" in line for line in lines) == 1
