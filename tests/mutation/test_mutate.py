"""Whole mutation runs of a small project: what is tried on whom, what is shown, kept and demanded."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import pv
from pv.cells import Outcome
from pv.errors import UsageError
from pv.mutation import judge, report
from pv.mutation.judge import Fate
from pv.mutation.result import Result
from pv.verdict import Report, Status

Project = Callable[[str], Path]
CLAIM = """- id: {id}
  rule: as the test says
  prediction: as the test says
  if_fails: the code differs
  test: falsifiers/falsify_shop.py::{test}
"""


def add(folder: Path, id_: str, test: str, more: str = "") -> None:
    contract = folder / "contracts/shop.yaml"
    contract.write_text(contract.read_text() + CLAIM.format(id=id_, test=test) + more)


def append(folder: Path, text: str) -> None:
    contract = folder / "contracts/shop.yaml"
    contract.write_text(contract.read_text() + text)


def one(*names: str, **options: Any) -> Result:
    (result,) = pv.mutate(names, jobs=2, **options)
    return result


def fates(result: Result) -> dict[str, Fate]:
    return {judged.mutant.mutant.id.removeprefix("shop:"): judged.fate for judged in result.judged}


def outcome(said: Report, falsifier: str) -> tuple[Outcome, str]:
    (cell,) = (c for v in said.contracts for c in v.cells if c.falsifier.id == falsifier)
    return cell.outcome, cell.reason


def test_mutants_are_of_the_functions_that_falsifiers_reached_in_the_subject(project: Project) -> None:
    project("mutable")
    found = one("shop")
    assert {judged.mutant.function for judged in found.judged} == {"shop:price"}
    assert fates(one("shop")) == fates(found), "the same twice"


def test_each_mutant_is_killed_survives_or_is_never_reached(project: Project) -> None:
    project("mutable")
    assert fates(one("shop")) == {
        "price: False -> True": Fate.KILLED,
        "price: cents * pieces -> cents / pieces": Fate.KILLED,
        "price: member and pieces > 10 -> member or pieces > 10": Fate.KILLED,
        "price: pieces > 10 -> pieces >= 10": Fate.SURVIVED,
        "price: 10 -> 11 (place 1)": Fate.SURVIVED,
        "price: member and pieces > 10 -> not (member and pieces > 10)": Fate.KILLED,
        "price: whole = whole * 9 // 10 -> pass": Fate.UNREACHED,
        "price: whole * 9 // 10 -> whole * 9 / 10": Fate.UNREACHED,
        "price: whole * 9 -> whole / 9": Fate.UNREACHED,
        "price: 9 -> 10": Fate.UNREACHED,
        "price: 10 -> 11 (place 2)": Fate.UNREACHED,
        "price: whole < 0 -> whole <= 0": Fate.KILLED,
        "price: 0 -> 1": Fate.KILLED,
        "price: whole < 0 -> not whole < 0": Fate.KILLED,
        "price: raise ValueError(whole) -> pass": Fate.UNREACHED,
    }


def test_a_falsifier_is_judged_by_itself_alone(project: Project) -> None:
    folder = project("mutable")
    add(folder, "S-NOTHING", "falsify_nothing")
    result = one("S-NOTHING")
    assert result.falsifiers == ("S-NOTHING",)
    assert fates(result)["price: cents * pieces -> cents / pieces"] is Fate.KILLED, "it divides by zero pieces"
    assert fates(result)["price: 10 -> 11 (place 1)"] is Fate.SURVIVED


def test_a_survivor_is_shown_as_a_diff_with_its_place_and_who_tried(project: Project) -> None:
    project("mutable")
    said = report.text([one("shop")], 0.5)
    assert (
        "shop.py:12 shop:price [comparison] reached\n"
        "  -    if member and pieces > 10:\n"
        "  +    if member and pieces >= 10:\n"
        "  tried by S-PRICE\n"
    ) in said
    assert "shop.py:13 shop:price [dropped] never reached\n" in said
    assert said.startswith("shop by S-PRICE: mutation score 46.6% (7 of 15 killed, 6 never reached)\n")


def test_the_wider_scope_takes_in_what_the_subject_imports(project: Project) -> None:
    project("mutable")
    widely = {j.mutant.function for j in one("shop", widely=True).judged}
    assert widely == {"shop:price", "helper:rounded"}


def test_a_sample_is_drawn_by_its_seed_and_named_with_its_whole(project: Project) -> None:
    project("mutable")
    first, again, other = one("shop", sample=4), one("shop", sample=4), one("shop", sample=4, seed=1)
    assert fates(first) == fates(again) != fates(other)
    assert len(first.judged) == 4
    assert f"a sample of 4 of {first.total}" in report.summary(first)


def test_a_mutant_is_planted_in_child_processes_too(project: Project) -> None:
    folder = project("mutable")
    add(folder, "S-CHILD", "falsify_price_in_a_child")
    assert fates(one("S-CHILD"))["price: cents * pieces -> cents / pieces"] is Fate.KILLED


def test_a_mutant_that_never_ends_falls_to_its_time_limit_and_is_counted_apart(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "LEAST_LIMIT_S", 2.0)
    folder = project("mutable")
    add(folder, "S-COUNTDOWN", "falsify_countdown")
    result = one("S-COUNTDOWN")
    assert fates(result)["countdown: seconds -= 1 -> seconds += 1"] is Fate.BY_LIMIT
    assert f"{result.count(Fate.BY_LIMIT)} of them by the time limit" in report.summary(result)


def test_a_mutant_that_leaves_the_process_falls_by_an_error_and_is_counted_apart(project: Project) -> None:
    folder = project("mutable")
    add(folder, "S-LEAVE", "falsify_leave")
    result = one("S-LEAVE")
    assert fates(result)["leave: status > 100 -> not status > 100"] is Fate.BY_ERROR
    assert "1 of them by an error" in report.summary(result)


def test_a_mutant_cannot_remove_files_of_the_project(project: Project) -> None:
    folder = project("mutable")
    (folder / "precious.tmp").write_text("kept")
    add(folder, "S-FORGET", "falsify_forget")
    result = one("S-FORGET")
    assert (folder / "precious.tmp").read_text() == "kept"
    (turned,) = (j for j in result.judged if "folder is None -> folder is not None" in j.mutant.mutant.id)
    assert turned.fate is Fate.VOID
    assert turned.seen == f"BrokenMutant: it may not do os.remove on {folder}/precious.tmp"
    assert "1 void" in report.summary(result)


def test_a_falsifier_that_fails_on_the_code_itself_is_no_judge(project: Project) -> None:
    folder = project("mutable")
    add(folder, "S-LEAVE", "falsify_leave")
    (folder / "shop.py").write_text((folder / "shop.py").read_text().replace("return status", "return status + 1"))
    result = one("shop")
    assert result.falsifiers == ("S-PRICE",)
    (problem,) = report.problems(result)
    assert problem.startswith("S-LEAVE does not hold on the code itself: ")
    assert report.exit_code([result]) == 1
    (refused,) = report.problems(one("shop", record=True))
    assert refused == f"no score was recorded: {problem}"
    assert not (folder / "evidence").exists()


def test_a_contract_says_what_is_mutated_by_module_and_by_function(project: Project) -> None:
    folder = project("mutable")
    add(folder, "S-LEAVE", "falsify_leave")
    assert {j.mutant.function for j in one("shop").judged} == {"shop:price", "shop:leave"}
    append(folder, 'mutated: [helper, "shop:leave"]\n')
    found = one("shop")
    assert {j.mutant.function for j in found.judged} == {"helper:rounded", "shop:leave"}
    assert json.loads(report.data([found], 0.5))["contracts"][0]["mutated"] == ["helper", "shop:leave"]


def test_widely_is_widely_whatever_the_contract_names(project: Project) -> None:
    append(project("mutable"), "mutated: [helper]\n")
    assert {j.mutant.function for j in one("shop", widely=True).judged} == {"shop:price", "helper:rounded"}


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("shop:os", "shop defines no function or class 'os'"),
        ("shop:pric", "shop defines no function or class 'pric'; did you mean 'price'?"),
        ("falsifiers.falsify_shop", "no subject of this contract imports falsifiers.falsify_shop"),
        ("shopp", "there is no module 'shopp'"),
    ],
)
def test_only_code_under_contract_can_be_named(project: Project, named: str, says: str) -> None:
    append(project("mutable"), f'mutated: ["{named}"]\n')
    with pytest.raises(UsageError, match=f"PV138 {re.escape(says)}"):
        one("shop")


def test_a_place_that_nobody_runs_is_no_part_of_a_score_that_counts(project: Project) -> None:
    folder = project("mutable")
    append(folder, 'mutated: [shop, helper, "shop:never_called"]\n')
    problem = "shop:never_called is to be mutated, and no falsifier of the contract runs anything of it"
    assert report.problems(one("shop", record=True)) == [f"no score was recorded: {problem}"]
    assert not (folder / "evidence").exists()


def test_an_equivalent_outside_of_what_is_mutated_is_refused(project: Project) -> None:
    folder = project("mutable")
    append(folder, EQUIVALENT.format(find="pieces > 10", replace="pieces >= 10", reason="no member buys here"))
    append(folder, "mutated: [helper]\n")
    with pytest.raises(UsageError, match="PV137 shop:price is not in `mutated`, so it needs no equivalent"):
        one("shop")


def test_what_was_noticed_is_recalled_until_something_that_it_rests_on_changes(project: Project) -> None:
    folder = project("mutable")
    first = one("shop")
    again = one("shop")
    assert fates(again) == fates(first)
    assert [j.recalled for j in again.judged] == [j.fate is Fate.KILLED for j in first.judged]
    assert f"{first.count(Fate.KILLED)} recalled" in report.summary(again)
    assert not any(judged.recalled for judged in one("shop", fresh=True).judged)
    helper = folder / "helper.py"
    helper.write_text(helper.read_text() + "\n\nUNUSED = 1\n")
    assert not any(judged.recalled for judged in one("shop").judged), "what the subject imports is another"
    assert any(judged.recalled for judged in one("shop").judged)
    attack = folder / "falsifiers/falsify_shop.py"
    attack.write_text(attack.read_text().replace("pieces = st.integers(0, 20)", "pieces = st.integers(0, 0)"))
    assert fates(one("shop")) != fates(first), "a falsifier that tries less notices less"


def test_a_memory_that_cannot_be_read_remembers_nothing(project: Project) -> None:
    folder = project("mutable")
    first = one("shop")
    for content in ("", "[1]", "nonsense", "{}", '{"a": 1}', '{"a": ["odd", ""]}', "\udcff"):
        (folder / ".pv_cache/mutants/shop.json").write_text(content, errors="surrogateescape")
        again = one("shop")
        assert fates(again) == fates(first) and not any(judged.recalled for judged in again.judged)
    assert (folder / ".pv_cache/.gitignore").read_text() == "*\n"


def test_what_ran_at_import_is_mutated_and_judged_by_whoever_uses_what_it_made(project: Project) -> None:
    folder = project("mutable")
    shop = folder / "shop.py"
    made = "def _times():\n    return lambda one, other: one * other\n\n\nTIMES = _times()\n\n\ndef price("
    text = shop.read_text().replace("def price(", made).replace("cents * pieces", "TIMES(cents, pieces)")
    shop.write_text(text)
    assert fates(one("shop"))["_times: one * other -> one / other"] is Fate.KILLED


def test_another_choice_of_what_is_mutated_is_another_score(project: Project) -> None:
    folder = project("mutable")
    append(folder, "mutated: [shop]\n")
    one("shop", record=True)
    assert ", of 1 named place; recorded " in pv.render(pv.validate())
    text = (folder / "contracts/shop.yaml").read_text()
    (folder / "contracts/shop.yaml").write_text(text.replace("mutated: [shop]", "mutated: [helper]"))
    assert ", stale, changed: " in pv.render(pv.validate())


EQUIVALENT = """equivalents:
- {{function: "shop:price", find: "{find}", replace: "{replace}", reason: "{reason}"}}
"""


def test_an_accepted_equivalent_is_counted_apart_and_tried_harder(project: Project) -> None:
    folder = project("mutable")
    append(folder, EQUIVALENT.format(find="pieces > 10", replace="pieces >= 10", reason="no member buys here"))
    result = one("shop")
    assert fates(result)["price: pieces > 10 -> pieces >= 10"] is Fate.EQUIVALENT
    assert "1 equivalent" in report.summary(result)
    assert report.problems(result) == [], "one is allowed in any case"


def accept_two(folder: Path) -> None:
    append(folder, EQUIVALENT.format(find="pieces > 10", replace="pieces >= 10", reason="no member buys here"))
    more = '{function: "shop:price", find: pieces > 10, replace: pieces > 11, reason: no member buys here}'
    append(folder, f"- {more}\n")


def test_too_many_equivalents_fail_a_run_of_all_and_say_what_to_try(project: Project) -> None:
    accept_two(project("mutable"))
    assert report.problems(one("shop")) == [
        "2 accepted as equivalent; at most 5% of all mutants may be, here 1: "
        "write a falsifier that tells them apart, or simpler code"
    ]
    drawn = one("shop", sample=14)
    assert (drawn.count(Fate.EQUIVALENT), report.problems(drawn)) == (2, [])
    part = one("shop", modules=["shop"])
    assert (part.count(Fate.EQUIVALENT), report.problems(part)) == (2, [])


@pytest.mark.parametrize("replace", ["whole <= 0", "whole < -5", ""], ids=["told apart", "no mutant", "too many"])
def test_a_result_with_problems_is_not_recorded(project: Project, replace: str) -> None:
    folder = project("mutable")
    if replace:
        append(folder, EQUIVALENT.format(find="whole < 0", replace=replace, reason="nothing is free"))
    else:
        accept_two(folder)
    result = one("shop", record=True)
    assert report.problems(result) == [f"no score was recorded: {text}" for text in report.objections(result)] != []
    assert report.exit_code([result]) == 1
    assert f"error: no score was recorded: {report.objections(result)[0]}" in report.text([result], 0.5)
    assert not (folder / "evidence").exists()


def test_a_part_of_a_contract_says_nothing_of_equivalents_and_gates_of_the_whole(project: Project) -> None:
    folder = project("mutable")
    add(folder, "S-LEAVE", "falsify_leave")
    gate(folder, 1.0)
    append(folder, EQUIVALENT.format(find="whole < 0", replace="whole < -5", reason="it is"))
    assert report.problems(one("S-LEAVE")) == []
    assert report.problems(one("shop", modules=["help*"])) == []
    assert "no automatic mutant of this contract: contracts/shop.yaml:" in report.problems(one("shop"))[0]


def test_an_equivalent_that_can_be_told_apart_is_an_error(project: Project) -> None:
    folder = project("mutable")
    append(folder, EQUIVALENT.format(find="whole < 0", replace="whole <= 0", reason="nothing is free"))
    result = one("shop")
    assert fates(result)["price: whole < 0 -> whole <= 0"] is Fate.NOT_EQUIVALENT
    assert "not equivalent, S-PRICE can tell: shop:price: whole < 0 -> whole <= 0" in report.problems(result)
    assert report.exit_code([result]) == 1


def test_an_equivalent_that_is_no_automatic_mutant_is_an_error(project: Project) -> None:
    folder = project("mutable")
    append(folder, EQUIVALENT.format(find="whole < 0", replace="whole < -5", reason="it is"))
    (problem,) = report.problems(one("shop"))
    assert problem.endswith("shop.yaml:11:3: whole < 0 -> whole < -5")


def gate(folder: Path, least: float) -> None:
    append(folder, f"qa_gate: {{id: G, name: all, require: {{mutation_score: {least}}}}}\n")


def test_a_score_is_recorded_and_stands_in_the_report_until_something_changes(project: Project) -> None:
    folder = project("mutable")
    result = one("shop", record=True)
    kept = json.loads((folder / "evidence/shop.mutants.json").read_text())
    Draft202012Validator(pv.schema("mutants")).validate(kept)
    assert (kept["killed"], kept["judged"], kept["unreached"]) == (7, 15, 6)
    assert {s["mutant"] for s in kept["survivors"]} == {
        j.mutant.mutant.id for j in result.judged if j.fate in (Fate.SURVIVED, Fate.UNREACHED)
    }
    said = pv.validate()
    assert f"mutation score 46.6 % (7 of 15 killed; recorded {kept['when']}, fresh)" in pv.render(said)
    shown = json.loads(pv.render(said, "json"))["contracts"][0]["mutation_score"]
    assert (shown["value"], shown["changed"]) == (7 / 15, [])
    assert "fresh" in pv.render(said, "markdown")
    (folder / "helper.py").write_text("def rounded(cents):\n    return cents\n")
    assert f"recorded {kept['when']}, stale, changed: helper.py)" in pv.render(pv.validate())


def test_a_gate_demands_a_score_that_is_there_fresh_and_high_enough(project: Project) -> None:
    folder = project("mutable")
    gate(folder, 0.46)
    missing = pv.validate()
    assert missing.contracts[0].status is Status.UNDECIDED
    assert "mutation score not recorded; the gate asks for 46%: pv mutate shop --record" in pv.render(missing)
    one("shop", record=True)
    assert pv.validate().contracts[0].status is Status.PASS
    text = (folder / "shop.py").read_text()
    (folder / "shop.py").write_text(text.replace("return 1 + 1", "return 2"))
    assert pv.validate().contracts[0].status is Status.UNDECIDED, "stale"
    (folder / "shop.py").write_text(text)
    contract = folder / "contracts/shop.yaml"
    contract.write_text(contract.read_text().replace("mutation_score: 0.46", "mutation_score: 0.47"))
    assert pv.validate().contracts[0].status is Status.FAIL
    assert pv.validate(only=["S-*"]).contracts[0].status is Status.PASS, "part of a contract has no score"
    (folder / "evidence/shop.mutants.json").unlink()
    low = "the mutation score is 46.6%, the contract's gate asks for 47.0%; survivors are shown above"
    assert report.problems(one("shop", record=True)) == [low]
    assert (folder / "evidence/shop.mutants.json").exists(), "a low score is a score"


def test_a_recorded_sample_satisfies_no_gate(project: Project) -> None:
    gate(project("mutable"), 0.01)
    assert report.problems(one("shop", sample=14, record=True)) == []
    said = pv.validate()
    assert said.contracts[0].status is Status.UNDECIDED
    assert "fresh; the gate asks for 1%, and a sample satisfies no gate)" in pv.render(said)


def test_a_score_that_cannot_be_read_is_an_error(project: Project) -> None:
    folder = project("mutable")
    (folder / "evidence").mkdir()
    (folder / "evidence/shop.mutants.json").write_text("{}")
    said = pv.validate()
    assert said.exit_code == 1
    assert "PV170 the evidence file cannot be used" in pv.render(said)


def test_a_falsifier_without_a_declared_mutant_is_judged_against_automatic_ones(project: Project) -> None:
    folder = project("mutable")
    said = pv.validate()
    assert outcome(said, "S-PRICE") == (Outcome.SURVIVED, "")
    assert "1 of 1 falsifier without a declared mutant killed an automatic one" in pv.render(said)
    (cell,) = said.contracts[0].cells
    assert 0 < len(cell.mutants) <= 20
    add(folder, "S-COUNTDOWN", "falsify_countdown")
    assert outcome(pv.validate(only=["S-COUNTDOWN"]), "S-COUNTDOWN")[0] is Outcome.SURVIVED


def test_one_that_kills_none_is_vacuous_and_says_how_many_were_tried(project: Project) -> None:
    folder = project("mutable")
    test = folder / "falsifiers/falsify_shop.py"
    test.write_text(test.read_text().replace("subject.leave(3) == 3", "[subject.leave(3)]"))
    add(folder, "S-LEAVE", "falsify_leave")
    said = pv.validate(only=["S-LEAVE"])
    assert outcome(said, "S-LEAVE") == (
        Outcome.VACUOUS,
        "it kills no mutant: none of 3 automatic ones in what it reaches fell to it",
    )
    assert "shop:leave: status > 100 -> status >= 100: held" in pv.render(said)


def test_one_that_reaches_nothing_to_mutate_is_vacuous(project: Project) -> None:
    folder = project("mutable")
    (folder / "shop.py").write_text("def leave(status):\n    return status\n")
    contract = folder / "contracts/shop.yaml"
    contract.write_text(contract.read_text().replace("falsify_price", "falsify_leave"))
    reason = "it kills no mutant: there is nothing to mutate in what it reaches; declare one"
    assert outcome(pv.validate(), "S-PRICE") == (Outcome.VACUOUS, reason)


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (["nothing"], {}, "nothing matches nothing; the contracts are shop"),
        (["S-PRICE"], {"record": True, "paths": ["two"]}, "a score is recorded for a contract as it stands"),
        (["shop"], {"record": True, "widely": True}, "a score is recorded for a contract as it stands"),
        (["shop"], {"sample": 0}, "sample is 0; it must be at least 1"),
        (["shop"], {"paths": ["broken"]}, "shop cannot be run: "),
    ],
)
def test_what_cannot_be_measured_is_refused(
    project: Project, names: list[str], options: dict[str, Any], message: str
) -> None:
    folder = project("mutable")
    text = (folder / "contracts/shop.yaml").read_text()
    two, broken = text + CLAIM.format(id="S-2", test="falsify_leave"), text.replace("subject: shop", "subject: shoe")
    for name, changed in (("two", two), ("broken", broken)):
        (folder / name).mkdir()
        (folder / name / "shop.yaml").write_text(changed)
    with pytest.raises(UsageError, match=message):
        pv.mutate(names, **options)


def test_the_command_shows_survivors_and_ends_with_its_exit_code(project: Project) -> None:
    project("mutable")
    command = [sys.executable, "-m", "pv", "mutate", "shop", "--sample", "6"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("shop by ") and done.stdout.endswith("s; exit 0\n")
    done = subprocess.run([*command, "--format", "json"], capture_output=True, text=True, timeout=120)
    said = json.loads(done.stdout)
    assert (said["contracts"][0]["sampled"], len(said["contracts"][0]["mutants"])) == (6, 6)


def test_nothing_is_left_running(project: Project, marked: Callable[[], list[int]]) -> None:
    folder = project("mutable")
    add(folder, "S-COUNTDOWN", "falsify_countdown")
    one("S-COUNTDOWN", sample=2)
    assert marked() == []
    left = {path.name for path in folder.iterdir() if path.name not in (".hypothesis", ".pv_cache")}
    assert left == {"contracts", "falsifiers", "helper.py", "pyproject.toml", "shop.py"}


def test_only_the_modules_that_are_asked_for_are_mutated(project: Project) -> None:
    project("mutable")
    assert {j.mutant.function for j in one("shop", widely=True, modules=["help*"]).judged} == {"helper:rounded"}
    assert one("shop", modules=["helper"]).judged == (), "it is no subject"
    assert report.exit_code([one("shop", modules=["helper"])]) == 2


def test_a_module_in_which_the_contract_names_a_fault_is_mutated_too(project: Project) -> None:
    folder = project("mutable")
    fault = '{id: lost, fault: nothing, edit: {function: "helper:rounded", find: cents + 0, replace: cents + 1}}'
    append(folder, f"  kills: [lost]\nmutants:\n- {fault}\n")
    assert {j.mutant.function for j in one("shop").judged} == {"shop:price", "helper:rounded"}
