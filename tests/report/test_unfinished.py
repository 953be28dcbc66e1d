"""Reports of a validation that ended early: contracts without a result are counted in one line, the others shown."""

import json
from dataclasses import replace

import pytest

from pv.contract.model import Gate
from pv.report import render
from pv.results.outcome import Selection
from pv.results.saved import report as saved
from pv.results.trial import STOPPED, Trial, TrialStatus
from pv.results.verdict import Report, decide
from tests.report.handmade import PLAIN
from tests.results.handmade import BOTH, FOUND, contract, evidence, judged, recorded, trial

SKIPPED = trial(TrialStatus.SKIPPED, detail="no network")
REFUTED = trial(TrialStatus.REFUTED, counterexample=FOUND)
MOST = Gate(mutation_score=0.9)
ENDED = {"--fail-fast": "--fail-fast stopped at the first failure", "Ctrl-C": "interrupted"}


def ended(how: str, contracts: dict[str, tuple[Trial, ...]], gate: Gate | None = None) -> Report:
    """Return a report of a validation that ended early. contracts: by id, the ended trials of two claims each."""
    verdicts = []
    for id_, trials in contracts.items():
        known = {each.falsifier for each in trials}
        # --fail-fast reports cancelled trials; after Ctrl-C there are none.
        lost = [trial(TrialStatus.CANCELLED, claim.id, detail=STOPPED) for claim in BOTH if claim.id not in known]
        lost += [judged(TrialStatus.CANCELLED, detail=STOPPED)] if trials == (trial(),) else []
        found = evidence(*trials, *(lost if how == "--fail-fast" else ()), recorded=(recorded(),))
        given = contract(*(replace(claim, devices=("cpu", "cuda")) for claim in BOTH), gate=gate, id=id_)
        verdicts.append(decide(given, replace(found, interrupted=how == "Ctrl-C"), Selection()))
    return replace(PLAIN, contracts=tuple(verdicts), findings=(), interrupted=how == "Ctrl-C")


@pytest.fixture(params=ENDED)
def how(request: pytest.FixtureRequest) -> str:
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
def test_contracts_without_a_result_are_counted_in_one_line(form: str, how: str) -> None:
    report = ended(how, PARTS)
    shown = rows(report, form)
    assert len(shown) == 3
    assert all(f" {id_} " in line for id_, line in zip(("c-failing", "c-held", "c-other"), shown, strict=True))
    line = f"{ENDED[how]}: 9 claims of 6 contracts not run, 3 contracts not judged"
    text = render(report, form, width=200)
    assert text.count(line) == text.count("no network") == 1
    assert form == "markdown" or text.count("not run") == 1
    assert "1 fail, 5 undecided, 0 pass" in text


def test_json_and_the_verbose_text_have_every_contract(how: str) -> None:
    report = ended(how, PARTS)
    assert [each["id"] for each in json.loads(render(report, "json"))["contracts"]] == list(PARTS)
    assert len(rows(report, "text", verbose=True)) == 2 * len(PARTS) and "-v" in render(report, "text")
    lost = [line.strip() for line in render(report, "text", verbose=True).splitlines() if line.startswith(" " * 12)]
    assert "c-first: F on cpu, G on cpu" in lost and "c-first: F on cpu, G on cpu" not in render(report, "text")
    again = saved.parse(render(report, "json"), "report.json")
    assert rows(again, "text") == rows(report, "text")


def test_contract_that_lacks_a_score_too_is_shown(how: str) -> None:
    report = ended(how, {"c-first": ()}, gate=MOST)
    assert rows(report, "text") and "not judged" not in render(report, "text")
    assert rows(report, "markdown") and "not judged" not in render(report, "markdown")


def test_report_without_any_result_begins_with_the_reason(how: str) -> None:
    report = ended(how, {"c-first": (), "c-second": ()})
    line = f"UNDECIDED  {ENDED[how]}: 4 claims of 2 contracts not run, 2 contracts not judged (-v lists them)\n"
    assert render(report, "text", width=200).startswith(line)
    assert "| contract |" not in render(report, "markdown")


def test_github_annotates_contracts_without_a_result_once(how: str) -> None:
    lines = render(ended(how, PARTS), "github").splitlines()
    assert [line.partition("title=")[2].partition("::")[0] for line in lines if line.startswith("::")] == [
        "falsified%3A F on cpu",
        "undecided%3A c-held 1.0.0",
        "undecided%3A c-other 1.0.0",
        *["pv"] * (1 + (how == "Ctrl-C")),
    ]
    assert sum("9 claims of 6 contracts not run, 3 contracts not judged" in line for line in lines) == 1
