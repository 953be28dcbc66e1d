"""The text and Markdown reports: their content; user text cannot change their structure or control a terminal."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from pv.contract.finding import Location
from pv.engines.trial import TrialStatus
from pv.report import FORMATS, render
from pv.report.contract_line import line_cells, sentence
from pv.report.wrapping import excerpt, plain, wrap_line
from pv.results.evidence import MutationScore
from pv.results.outcome import Selection
from pv.results.verdict import Report, decide
from tests.report.handmade import (
    FILE,
    HOSTILE,
    PLAIN,
    claim,
    counterexample,
    report_of_equation,
    report_of_many,
    trial_of,
)
from tests.results.handmade import contract, decided, evidence


@pytest.mark.parametrize("color", [False, True])
def test_text_report_escapes_terminal_control_characters(color: bool) -> None:
    shown = re.sub(r"\x1b\[[0-9;]*m", "", render(HOSTILE, "text", color=color).replace("\x1b[31mred", "\x1b!"))
    assert re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown) == []
    assert "a\\x00b\\x1b[31mred\\x07" in shown.replace("\n", "").replace(" " * 12, "")
    assert plain("\x1b \x7f \x9b") == r"\x1b \x7f \x9b"


def test_words_that_users_copy_are_not_broken_and_a_caret_far_to_the_right_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "-".join(["long"] * 12)
    assert wrap_line(f"at: {path.name} now", 44) == f"at:\n    {path.name}\n    now"
    path.write_text("x" * 200)
    shown = [len(list(excerpt(replace(PLAIN.findings[0], location=Location(path, 1, at))))) for at in (120, 121)]
    assert shown == [3, 1]


def test_text_shows_results_worst_first_with_details() -> None:
    lines = render(PLAIN, "text", width=200).splitlines()
    assert lines[0] == "FAIL  c  falsifiers 1/5  mutants 1/1  cuda 1/1 recorded  1 undecided"
    heads = [line for line in lines if re.match("[A-Z]+ +F-", line)]
    outcomes = "FALSIFIED F-REFUTED, ERROR F-BROKEN, VACUOUS F-BARREN, UNDECIDED F-SKIPPED"
    assert ", ".join(" ".join(head.split()[:2]) for head in heads) == outcomes
    assert heads[0] == "FALSIFIED  F-REFUTED on cpu  c.yaml:6:3"
    start = lines.index(heads[0])
    assert lines[start + 1 : start + 12] == [
        "  claim     rule plainly said",
        "  predicted prediction plainly said",
        "  seen      AssertionError: plainly said",
        "  with      number = 1",
        "            values = tensor([nan], float32)",
        "  at        falsifiers/falsify_tiny.py:9 in falsify_double: plainly said",
        "  author    if this fails: cause plainly said",
        "  tried     12 valid examples, seed 7, 0.00 s",
        "  rerun     pv validate --only F-REFUTED",
        "  replay    pv validate --only F-REFUTED --replay 6.0:AAE=",
        "",
    ]
    assert "refusal    e.yaml:3:4 PV002 plainly said; plainly said" in lines
    assert not any("PV201" in line for line in lines), "notices are counted"
    undecided = replace(PLAIN, contracts=(decided(trial_of("F", TrialStatus.SKIPPED, detail="no network")),))
    assert "UNDECIDED  F on cpu: no network\n" in render(undecided, "text"), "the only claim is named"
    assert lines[-1] == "1 fail, 0 undecided, 0 pass, 1 notice (pv lint shows them); 1.2 s on cpu; seed 0; exit 3"


def report_with_output(text: str) -> Report:
    trial = trial_of("F-REFUTED", TrialStatus.REFUTED, counterexample=replace(counterexample("seen"), printed=text))
    example = contract(claim("F-REFUTED", "plainly", 5), location=FILE)
    return replace(PLAIN, contracts=(decide(example, evidence(trial), Selection()),), findings=())


def test_repeated_and_early_lines_of_output_are_shown_only_with_v() -> None:
    shown = render(report_with_output("on device cpu\n" * 6 + "step 1\nstep 2\n"), "text", width=200)
    note = "(5 repeated or earlier lines are left out; -v shows them)"
    assert f"printed   {note}\n            on device cpu\n            step 1\n            step 2\n" in shown
    long = report_with_output("\n".join(f"line {n}" for n in range(40)))
    assert "(10 repeated or earlier" in (short := render(long, "text")) and "line 9\n" not in short
    assert "line 9\n" in render(long, "text", verbose=True) and "line 39\n" in short
    assert "left out" not in render(report_with_output("one\ntwo\n"), "text")
    last = report_with_output("\n".join(["loss is nan", *(f"line {n}" for n in range(40)), "loss is nan"]))
    assert "            line 39\n            loss is nan\n" in render(last, "text")


@pytest.mark.parametrize(("valid", "asked", "few"), [(1, 200, True), (19, 200, True), (20, 200, False), (1, 1, False)])
def test_text_names_claims_that_held_on_a_fraction_of_their_examples(valid: int, asked: int, few: bool) -> None:
    """Only F-HELD can be named, since the other claims did not hold."""
    verdict = PLAIN.contracts[0]
    tried = [result for result in verdict.results if result.trial is not None]
    tried = [replace(result, trial=replace(result.trial, valid=valid, asked=asked)) for result in tried]
    shown = render(replace(PLAIN, contracts=(replace(verdict, results=tuple(tried)),)), "text", width=200)
    noun = "example" if valid == 1 else "examples"
    line = f"HELD       F-HELD on cpu: on only {valid} {noun} of {asked} requested\n"
    assert shown.count("requested") == shown.count(line) == few


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_claims_with_the_same_failed_premise_are_in_one_line(form: str) -> None:
    verdict = PLAIN.contracts[0]
    (base,) = (result for result in verdict.results if result.falsifier.id == "F-BARREN")
    base, results = replace(base, trial=replace(base.trial, status=TrialStatus.NO_PREMISE)), []
    for id_, premise in (("F-B", "F-A"), ("F-C", "F-B"), ("F-D", "F-B")):
        claim = replace(base.falsifier, id=id_, options={"premises": (premise,)})
        results.append(replace(base, falsifier=claim, reason=f"its premise {premise} does not hold"))
    shown = render(replace(PLAIN, contracts=(replace(verdict, results=tuple(results)),)), form, width=200)
    line = "3 claims were not tried because F-A does not hold: F-B, F-C, F-D"
    assert shown.replace("`", "").count(line) == 1
    assert "because F-B" not in shown and "### vacuous" not in shown


def test_text_names_every_failed_claim_that_it_shows_without_details() -> None:
    tried = [trial_of(f"F-{n}", TrialStatus.REFUTED, counterexample=counterexample("no")) for n in range(21)]
    tried += [trial_of(id_, TrialStatus.RAISED, counterexample=counterexample("same")) for id_ in ("F-A", "F-B")]
    example = contract(*(claim(trial.falsifier, "said", 1) for trial in tried), location=FILE)
    shown = render(replace(PLAIN, contracts=(decide(example, evidence(*tried), Selection()),)), "text", width=200)
    assert re.findall("(. MORE) +(.*):", shown) == [("3 MORE", "F-20 on cpu, F-A on cpu, F-B on cpu")]


PASSING, FAILING = report_of_equation(None).contracts[0], PLAIN.contracts[0]


def test_claims_on_fewer_examples_are_counted() -> None:
    verdict = replace(PASSING, results=(replace(PASSING.results[0], fewer=True),))
    remark = "1 result on fewer examples than the contract asks for"
    assert line_cells(verdict)["remarks"] == remark
    assert remark in sentence(verdict)
    assert "1 of 1 mutants killed (1 not tried)" in sentence(replace(FAILING, untried=1))
    assert remark in render(replace(PLAIN, contracts=(verdict,)), "junit")


def test_a_claim_whose_test_is_prose_does_not_hide_the_figures_of_the_other_claims() -> None:
    held = trial_of("F-HELD", TrialStatus.HELD, valid=5)
    example = contract(claim("F-HELD", "held", 1), claim("F-PROSE", "prose", 2, test=None), location=FILE)
    shown = sentence(decide(example, evidence(held), Selection(mutants=False)))
    assert shown.startswith("1 of 2 falsifiers held, 1 claim not run, with prose in place of a test"), shown


def test_score_is_rounded_down_and_marked_if_it_satisfies_no_gate() -> None:
    score = MutationScore(total=10_000, judged=10_000, killed=9_999, sampled=10_000)
    stale, sample = replace(score, changed=("loss.py",)), replace(score, sampled=100)
    for shown, mark in ((score, ""), (stale, " (stale)"), (sample, " (a sample)")):
        assert line_cells(replace(PASSING, score=shown))["score"] == f"score 99.9 %{mark}"


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_a_tolerance_that_a_contract_sets_is_shown_with_its_reason(form: str) -> None:
    report = report_of_equation(None, tolerance={"relative": 1e-3, "absolute": 0, "why": "a table of 10 bits"})
    note = "sets the tolerance of double to relative 0.001, absolute 0: a table of 10 bits"
    assert note in render(report, form, verbose=True)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "json"])
def test_if_fails_follows_the_failure_and_is_marked_as_a_guess(name: str) -> None:
    text = render(PLAIN, name, width=200)
    seen, guess = text.find("AssertionError: plainly said"), text.rfind("if this fails: cause plainly said")
    assert guess > seen if seen >= 0 else guess < 0
    assert text.count("cause plainly said") == text.count("if this fails: cause plainly said")


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "json"])
def test_guess_and_prediction_are_not_shown_if_the_failure_names_its_cause(name: str) -> None:
    for explained in (False, True):
        trial = trial_of(
            "F-REFUTED", TrialStatus.REFUTED, counterexample=replace(counterexample("seen"), explained=explained)
        )
        verdict = decide(contract(claim("F-REFUTED", "plainly", 5), location=FILE), evidence(trial), Selection())
        shown = render(replace(PLAIN, contracts=(verdict,), findings=()), name)
        assert ("if this fails" in shown) == (not explained and "AssertionError: seen" in shown)
        if name != "sarif":  # whose description of a rule is about all its results
            assert not explained or "prediction plainly" not in shown


def tokens(markdown: str) -> list[Token]:
    """Return the tokens of a CommonMark parser, with the children of a token in place of the token."""
    parsed = MarkdownIt("commonmark").enable("table").parse(markdown)
    return [part for token in parsed for part in (token.children or [token])]


def test_markdown_keeps_user_text_in_fences_and_its_structure_unchanged() -> None:
    plain, hostile = (tokens(render(report, "markdown")) for report in (PLAIN, HOSTILE))
    assert [token.type for token in hostile if token.nesting] == [token.type for token in plain if token.nesting]
    outside = [token for token in hostile if token.type != "fence"]
    assert {"html_inline", "link_open"}.isdisjoint(token.type for token in outside)
    assert not [token for token in outside if token.content.startswith("::")]


def test_text_in_a_markdown_table_adds_no_column() -> None:
    for report in (PLAIN, HOSTILE):
        rows = [line for line in render(report, "markdown").split("\n") if line.startswith("| `F-")]
        assert len(rows) == 6
        assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6}


def test_markdown_respects_its_size_limit_and_counts_omitted_parts() -> None:
    whole = render(report_of_many(300), "markdown")
    for most in (1024, 4000, 20_000):
        short = render(report_of_many(300), "markdown", max_bytes=most)
        assert len(short.encode()) <= most < len(whole.encode())
        assert re.search(r"\nLeft out because of the size limit: \d+ parts\.", short)
        assert short.endswith("exit 1\n") and tokens(short)[-1].type != "fence"
    assert "Left out" not in whole
