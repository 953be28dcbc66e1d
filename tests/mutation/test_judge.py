"""How each mutant is judged: by whom, what it may do, and what it is counted as."""

from typing import Any

import pytest

from pv.mutation import judge, summary
from pv.mutation.judge import MutantStatus


def test_each_mutant_of_a_function_that_was_reached_is_killed_survives_or_is_never_reached(shop: Any) -> None:
    assert shop.fates(shop.mutate("shop")) == {
        "price: False -> True": MutantStatus.KILLED,
        "price: cents * pieces -> cents / pieces": MutantStatus.KILLED,
        "price: member and pieces > 10 -> member or pieces > 10": MutantStatus.KILLED,
        "price: pieces > 10 -> pieces >= 10": MutantStatus.SURVIVED,
        "price: 10 -> 11 (place 1)": MutantStatus.SURVIVED,
        "price: member and pieces > 10 -> not (member and pieces > 10)": MutantStatus.KILLED,
        "price: whole = whole * 9 // 10 -> pass": MutantStatus.NO_COVERAGE,
        "price: whole * 9 // 10 -> whole * 9 / 10": MutantStatus.NO_COVERAGE,
        "price: whole * 9 -> whole / 9": MutantStatus.NO_COVERAGE,
        "price: 9 -> 10": MutantStatus.NO_COVERAGE,
        "price: 10 -> 11 (place 2)": MutantStatus.NO_COVERAGE,
        "price: whole < 0 -> whole <= 0": MutantStatus.KILLED,
        "price: 0 -> 1": MutantStatus.KILLED,
        "price: whole < 0 -> not whole < 0": MutantStatus.KILLED,
        "price: raise ValueError(whole) -> pass": MutantStatus.NO_COVERAGE,
    }


def test_a_mutant_is_planted_in_child_processes_too(shop: Any) -> None:
    shop.add("S-CHILD", "falsify_price_in_a_child")
    assert shop.fates(shop.mutate("S-CHILD"))["price: cents * pieces -> cents / pieces"] is MutantStatus.KILLED


def test_a_mutant_that_never_ends_falls_to_its_time_limit_and_is_counted_apart(
    shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "LEAST_LIMIT_S", 0.5)
    shop.add("S-COUNTDOWN", "falsify_countdown")
    result = shop.mutate("S-COUNTDOWN")
    assert shop.fates(result)["countdown: seconds -= 1 -> seconds += 1"] is MutantStatus.TIMEOUT
    assert f"{result.count(MutantStatus.TIMEOUT)} of them by timeout" in summary.summary(result)


def test_a_mutant_that_leaves_the_process_falls_by_an_error_and_is_counted_apart(shop: Any) -> None:
    shop.add("S-LEAVE", "falsify_leave")
    result = shop.mutate("S-LEAVE")
    assert shop.fates(result)["leave: status > 100 -> not status > 100"] is MutantStatus.ERROR
    assert "1 of them by error" in summary.summary(result)


def test_a_mutant_cannot_remove_files_of_the_project(shop: Any) -> None:
    (shop.folder / "precious.tmp").write_text("kept")
    shop.add("S-FORGET", "falsify_forget")
    result = shop.mutate("S-FORGET")
    assert (shop.folder / "precious.tmp").read_text() == "kept"
    (turned,) = (j for j in result.judged if "folder is None -> folder is not None" in j.mutant.mutant.id)
    assert turned.status is MutantStatus.INVALID
    assert turned.seen == f"BrokenMutant: it may not do os.remove on {shop.folder}/precious.tmp"
    assert "1 invalid" in summary.summary(result)


def test_a_falsifier_that_fails_on_the_code_itself_is_no_judge(shop: Any) -> None:
    shop.add("S-LEAVE", "falsify_leave")
    source = shop.folder / "shop.py"
    source.write_text(source.read_text().replace("return status", "return status + 1"))
    result = shop.mutate("shop")
    assert result.falsifiers == ("S-PRICE",)
    (problem,) = summary.problems(result)
    assert problem.startswith("S-LEAVE does not hold on the code itself: ")
    assert summary.exit_code([result]) == 1
    (refused,) = summary.problems(shop.mutate("shop", record=True))
    assert refused == f"no score was recorded: {problem}"
    assert not (shop.folder / "evidence").exists()


def test_what_ran_at_import_is_mutated_and_judged_by_whoever_uses_what_it_made(shop: Any) -> None:
    source = shop.folder / "shop.py"
    made = "def _times():\n    return lambda one, other: one * other\n\n\nTIMES = _times()\n\n\ndef price("
    text = source.read_text().replace("def price(", made).replace("cents * pieces", "TIMES(cents, pieces)")
    source.write_text(text)
    assert shop.fates(shop.mutate("shop"))["_times: one * other -> one / other"] is MutantStatus.KILLED
