"""How each mutant is judged: by whom, what it may do, what it is counted as, and when a cached kill is used."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pv.engines.trial import Trial, TrialStatus
from pv.mutation import judge, summary
from pv.mutation.judge import MutantStatus
from pv.results.reuse.cache import FILE
from tests.commands.small import edit
from tests.results.handmade import FOUND
from tests.results.handmade import trial as ended


def damage_trials(folder: Path) -> None:
    """Overwrite every cached trial of a project."""
    with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as database:
        database.execute("UPDATE results SET trial = ?", (b"damaged",))


def damage_file(folder: Path) -> None:
    """Overwrite the cache of a project."""
    for path in (folder / FILE).parent.glob("*.sqlite3*"):
        path.write_text("no database\n" * 100)


def test_every_mutant_of_a_function_is_judged_also_with_a_damaged_cache(shop: Any) -> None:
    first = shop.mutate("shop")
    assert shop.fates(first) == {
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
    assert "\nshop.py:" in summary.text([first], 0.5), "a path from the working directory"
    damages: list[Callable[[], None]] = [partial(damage_trials, shop.folder), partial(damage_file, shop.folder)]
    for damage in damages:
        damage()
        again = shop.mutate("shop")
        assert shop.fates(again) == shop.fates(first) and not any(judged.cached for judged in again.judged)
    assert (shop.folder / ".pv_cache/.gitignore").read_text() == "*\n"


@pytest.mark.parametrize(
    ("trial", "status"),
    [
        (ended(TrialStatus.HELD), None),
        (ended(TrialStatus.RAISED, valid=0), MutantStatus.KILLED),
        (ended(TrialStatus.TIMEOUT), MutantStatus.TIMEOUT),
        (ended(TrialStatus.TIMEOUT, counterexample=FOUND), MutantStatus.KILLED),
        (ended(TrialStatus.CRASHED, counterexample=FOUND), MutantStatus.KILLED),
        (ended(TrialStatus.ERROR, counterexample=FOUND), MutantStatus.ERROR),
        (ended(TrialStatus.ERROR, valid=0, asked=1), MutantStatus.ERROR),  # the falsifier raised in its first example
        (ended(TrialStatus.ERROR, valid=0, asked=0), MutantStatus.INVALID),  # the import failed
        (ended(TrialStatus.INVALID_MUTANT), MutantStatus.INVALID),
        (ended(TrialStatus.NO_EXAMPLES, valid=0), MutantStatus.ERROR),
        *((ended(TrialStatus[n]), MutantStatus.ERROR) for n in ("FLAKY", "CRASHED", "NO_RESULT", "OUT_OF_MEMORY")),
    ],
)
def test_status_of_a_mutant_follows_from_its_trial(trial: Trial, status: MutantStatus | None) -> None:
    assert judge.status(trial) is status


def test_the_line_that_is_shown_is_the_first_of_the_counterexample_else_of_the_detail() -> None:
    trials = [ended(TrialStatus.CRASHED, counterexample=FOUND, detail="signal 11")]
    trials += [ended(TrialStatus.ERROR, detail=detail) for detail in (f"{'x' * 300}\nmore", "")]
    assert [judge.error_line(trial) for trial in trials] == [FOUND.error, "x" * 200, "error"]


def test_detected_mutant_is_not_equivalent_and_its_limit_follows_from_the_longer_time() -> None:
    for last in (MutantStatus.KILLED, MutantStatus.TIMEOUT, MutantStatus.ERROR):
        assert judge.final_status(last, equivalent=True) is MutantStatus.NOT_EQUIVALENT
        assert judge.final_status(last, equivalent=False) is last
    times = ((0.1, 0.1), (2.0, 8.0), (8.0, 2.0))  # wall and CPU time on the clean code
    assert [judge.limit_on_mutant(ended(seconds=wall, cpu_s=cpu)) for wall, cpu in times] == [5.0, 40.0, 40.0]


def test_endless_mutant_is_killed_by_its_limit_and_counted_apart(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "MIN_LIMIT_S", 0.5)
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
    assert turned.seen == f"a mutant may not call os.remove on {shop.folder}/precious.tmp"
    assert "1 invalid" in summary.summary(result)


def test_the_clean_code_cannot_remove_files_either(shop: Any) -> None:
    (shop.folder / "precious.tmp").write_text("kept")
    edit(shop.folder / "falsifiers/falsify_shop.py", "subject.leave(3) == 3", "subject.forget() == []")
    shop.add("S-LEAVE", "falsify_leave")
    (unfit,) = shop.mutate("S-LEAVE").unfit
    assert unfit.detail.startswith("a mutant may not call os.remove on ")
    assert (shop.folder / "precious.tmp").exists()


def test_a_falsifier_that_fails_on_the_code_itself_is_no_judge(shop: Any) -> None:
    shop.add("S-LEAVE", "falsify_leave")
    edit(shop.folder / "shop.py", "return status", "return status + 1")
    # A claim that is skipped here, and one for another device, are no problem and judge nothing.
    shop.add("S-SKIP", "falsify_skipped")
    shop.append(f"{shop.claim('S-CUDA', 'falsify_on_cuda')}  devices: [cuda]\n")
    shop.gate(1.0)
    with (shop.folder / "falsifiers/falsify_shop.py").open("a") as test:
        test.write("\n\ndef falsify_skipped(subject):\n    import pytest\n\n    pytest.skip('no package')\n")
        test.write("\n\ndef falsify_on_cuda(subject, device):\n    assert subject.leave(1)\n")
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
    factory = "def _times():\n    return lambda one, other: one * other\n\n\nTIMES = _times()\n\n\ndef price("
    text = source.read_text().replace("def price(", factory).replace("cents * pieces", "TIMES(cents, pieces)")
    source.write_text(text)
    assert shop.fates(shop.mutate("shop"))["_times: one * other -> one / other"] is MutantStatus.KILLED


def test_kill_is_cached_until_one_of_its_dependencies_changes(shop: Any) -> None:
    first = shop.mutate("shop")
    again = shop.mutate("shop")
    assert shop.fates(again) == shop.fates(first)
    assert [j.cached for j in again.judged] == [j.status is MutantStatus.KILLED for j in first.judged]
    assert f"{first.count(MutantStatus.KILLED)} cached" in summary.summary(again)
    assert not any(judged.cached for judged in shop.mutate("shop", fresh=True).judged)
    helper = shop.folder / "helper.py"
    helper.write_text(helper.read_text() + "\n\nUNUSED = 1\n")
    assert not any(judged.cached for judged in shop.mutate("shop").judged), "what the subject imports is another"
    assert any(judged.cached for judged in shop.mutate("shop").judged)
    edit(shop.folder / "falsifiers/falsify_shop.py", "pieces = st.integers(0, 20)", "pieces = st.integers(0, 0)")
    assert shop.fates(shop.mutate("shop")) != shop.fates(first), "a falsifier that tries less notices less"


def test_interrupted_run_goes_on_from_its_kills(shop: Any) -> None:
    def interrupt(progress: Any) -> None:
        if 10 < progress.total == progress.done + 1:  # there are fewer falsifiers
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shop.mutate("shop", on_progress=interrupt)
    again = shop.mutate("shop")
    assert sum(judged.cached for judged in again.judged) >= again.count(MutantStatus.KILLED) - 2
