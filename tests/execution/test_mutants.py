"""The outcome of a falsifier whose mutants survive, cannot be planted, or break other code."""

import itertools
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import pv
from pv.engines.trial import TrialStatus
from pv.errors import UsageError
from pv.execution.consumers import Journal
from pv.execution.plan import Result
from pv.execution.validation import Validation, supports
from pv.mutation import summary
from pv.results.evidence import STOPPED
from pv.results.outcome import Outcome
from tests.commands.small import edit, result, run
from tests.results.handmade import falsifier, trial
from tests.support.projects import Project


def test_a_falsifier_that_kills_nothing_is_vacuous(project: Project) -> None:
    folder = project("small")
    edit(folder / "falsifiers/falsify_counting.py", "== sorted([limit, epochs * steps])[0]", ">= 0")
    report = pv.validate()
    assert report.exit_code == 1
    assert result(report, "C-LIMIT").outcome is Outcome.VACUOUS
    assert result(report, "C-LIMIT").reason == "the mutant 'limit-ignored' survived (the mutated code was reached)"
    assert report.contracts[0].killed == {"epoch-lost", "last-step-lost", "from-zero"}


def test_a_mutant_that_breaks_the_import_is_not_killed(project: Project) -> None:
    folder = project("small")
    contract = folder / "contracts/counting.yaml"
    edit(contract, 'replace: "True"}', "replace: '[][0]'}")
    edit(contract, '"counting:total", find: limit is None', '"counting:FIRST", find: "1"')
    edit(folder / "counting.py", "def total(", "FIRST = 1\n\n\ndef total(")
    claim_result = result(pv.validate(), "C-LIMIT")
    assert claim_result.outcome is Outcome.ERROR
    assert claim_result.reason == "the mutant 'limit-ignored' could not be judged: IndexError: list index out of range"


def test_small_arguments_must_satisfy_the_claim(project: Project) -> None:
    folder = project("small")
    edit(folder / "counting.py", "return [step for step in", "return [step + (epochs == 2) for step in")
    edit(folder / "contracts/counting.yaml", "kills: [last-step-lost]", "kills: [last-step-lost, from-zero]")
    claim_result = result(pv.validate(only=["C-RUN-FIRST"]), "C-RUN-FIRST")
    assert claim_result.outcome is Outcome.ERROR
    assert claim_result.reason.startswith("the clean subject fails at the run's `small` arguments")


def test_code_that_ran_only_at_import_does_not_count_as_reached(project: Project) -> None:
    folder = project("small")
    edit(folder / "counting.py", "def total(", "def _first():\n    return 1\n\n\nFIRST = _first()\n\n\ndef total(")
    test = folder / "falsifiers/falsify_counting.py"
    edit(test, "subject.total(epochs, steps, limit) == sorted([limit, epochs * steps])[0]", "1 >= 0")
    claim_result = result(pv.validate(only=["C-LIMIT"]), "C-LIMIT")
    assert (claim_result.outcome, claim_result.reason) == (
        Outcome.VACUOUS,
        "the subject was never reached: no function of it ran",
    )


def test_falsifier_without_a_declared_mutant_is_judged_by_generated_mutants(shop: Any) -> None:
    report = pv.validate()
    assert result(report, "S-PRICE").outcome is Outcome.HELD
    assert "1 of 1 falsifier without a declared mutant killed a generated mutant" in pv.render(report, verbose=True)
    assert 0 < len(result(report, "S-PRICE").mutants) <= 20


def test_falsifier_that_kills_no_generated_mutant_is_vacuous(shop: Any) -> None:
    edit(shop.folder / "falsifiers/falsify_shop.py", "subject.leave(3) == 3", "[subject.leave(3)]")
    shop.add("S-LEAVE", "falsify_leave")
    report = pv.validate(only=["S-LEAVE"])
    reason = "it kills no mutant: 3 generated mutants of the code it reaches survived"
    assert (result(report, "S-LEAVE").outcome, result(report, "S-LEAVE").reason) == (Outcome.VACUOUS, reason)
    assert "shop:leave: status > 100 -> status >= 100: held" in pv.render(report)


@pytest.mark.parametrize("before", ["_mutant_attempts", "_next_generated"])
def test_claim_is_undecided_if_fail_fast_cancels_its_mutants(
    shop: Any, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """Another claim fails before the first mutant of the claim, or before its second mutant."""
    edit(shop.folder / "falsifiers/falsify_shop.py", "subject.leave(3) == 3", "[subject.leave(3)]")
    shop.add("S-LEAVE", "falsify_leave")
    _fail_another(monkeypatch, before)
    report = pv.validate(only=["S-LEAVE"], fail_fast=True)
    claim_result = result(report, "S-LEAVE")
    assert (claim_result.outcome, claim_result.reason) == (
        Outcome.UNDECIDED,
        "not run: --fail-fast stopped at the first failure",
    )
    statuses = [mutant_trial.status for mutant_trial in claim_result.mutants]
    tried = before == "_next_generated"
    assert statuses == [TrialStatus.HELD] * tried + [TrialStatus.CANCELLED] * (3 - tried)
    line = "UNDECIDED  --fail-fast stopped at the first failure: 1 claim of 1 contract not run, 1 contract not judged"
    assert pv.render(report).startswith(f"{line} (-v lists them)\n\n")
    assert f"\n{line}\n            shop: S-LEAVE on cpu\n" in pv.render(report, verbose=True)


def test_cached_mutant_that_is_killed_is_enough_after_fail_fast(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("pv.execution.validation.killed", lambda _: False)  # so all are tried and stored
        first, *other_trials = result(pv.validate(reuse=True), "S-PRICE").mutants
    lookup = Journal.lookup

    def all_but_first(self: Any, attempt: Any) -> Any:
        return None if attempt.mutant and attempt.mutant.id == first.mutant else lookup(self, attempt)

    monkeypatch.setattr(Journal, "lookup", all_but_first)
    _fail_another(monkeypatch, "_mutant_attempts")
    claim_result = result(pv.validate(reuse=True, fail_fast=True), "S-PRICE")
    assert (claim_result.outcome, claim_result.mutants[0].status) == (Outcome.HELD, TrialStatus.CANCELLED)
    assert claim_result.mutants[1].status is other_trials[0].status


def test_claim_is_undecided_if_fail_fast_cancels_its_small_run(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project("small")
    _fail_another(monkeypatch, "_start_mutants")
    claim_result = result(pv.validate(only=["C-RUN-FIRST"], fail_fast=True), "C-RUN-FIRST")
    assert (claim_result.outcome, claim_result.reason) == (Outcome.UNDECIDED, STOPPED)


def _fail_another(monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    """Let another claim fail before a claim that held is tried on its first mutant, or on its second mutant."""
    method, calls = getattr(Validation, before), itertools.count(1)

    def stopped(self: Validation, contract: Any, claim: Any) -> Iterator[Any]:
        if next(calls) == (2 if before == "_next_generated" else 1):
            attempt = self._attempts.clean(contract, claim)
            yield Result(attempt, self._trials[contract.id][claim.id, "cpu"], failed=True)
        yield from method(self, contract, claim)

    monkeypatch.setattr(Validation, before, stopped)


def test_survivor_is_shown_as_a_diff_with_location_and_falsifiers(shop: Any) -> None:
    report = summary.text([shop.mutate("shop")], 0.5)
    assert (
        "shop.py:12 shop:price [comparison] survived\n"
        "  -    if member and pieces > 10:\n"
        "  +    if member and pieces >= 10:\n"
        "  tried by S-PRICE\n"
    ) in report
    assert "shop.py:13 shop:price [dropped] no coverage\n" in report
    assert report.startswith("shop by S-PRICE: mutation score 46.6 % (7 of 15 killed, 6 without coverage)\n")


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (["nothing"], {}, r"no contract or falsifier matches nothing \(choose from shop\)"),
        (["S-PRICE"], {"record": True, "paths": ["two"]}, "--record needs all falsifiers and the declared scope"),
        (["shop"], {"record": True, "modules": ["shop"]}, "--record needs all falsifiers and the declared scope"),
        (["shop"], {"record": True, "widely": True}, "--record needs all falsifiers and the declared scope"),
        (["shop"], {"sample": 0}, "invalid value 0 for 'sample': expected a positive integer"),
        (["shop"], {"paths": ["broken"]}, "shop cannot be run: "),
    ],
)
def test_request_that_cannot_be_measured_is_refused(
    shop: Any, names: list[str], options: dict[str, Any], message: str
) -> None:
    text = (shop.folder / "contracts/shop.yaml").read_text()
    two, broken = text + shop.claim("S-2", "falsify_leave"), text.replace("subject: shop", "subject: shoe")
    for name, changed in (("two", two), ("broken", broken)):
        (shop.folder / name).mkdir()
        (shop.folder / name / "shop.yaml").write_text(changed)
    with pytest.raises(UsageError, match=message):
        pv.mutate(names, **options)


def test_the_command_shows_survivors_and_ends_with_its_exit_code(shop: Any) -> None:
    (shop.folder / "contracts/broken.yaml").write_text("schema: pv/2\n")
    assert "PV014" in run("mutate").stderr, "all contracts are meant, and one cannot be read"
    done = run("mutate", "shop", "--sample", "6")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("shop by ") and done.stdout.endswith("s; exit 0\n")
    report = json.loads(run("mutate", "shop", "--sample", "6", "--format", "json").stdout)
    assert (report["contracts"][0]["sampled"], len(report["contracts"][0]["mutants"])) == (6, 6)


def test_only_trials_that_support_their_claim_are_cached() -> None:
    attempts: dict[str, Any] = {
        "held, not claimed": SimpleNamespace(mutant=None, claim=falsifier()),
        "raised, refuted": SimpleNamespace(mutant="m", claim=falsifier(kills=("m",))),
        "held, raised, refuted": SimpleNamespace(mutant="m", claim=falsifier(kills=())),  # a generated mutant
    }
    for cached, attempt in attempts.items():
        assert ", ".join(sorted(s.value for s in TrialStatus if supports(attempt, trial(s)))) == cached
