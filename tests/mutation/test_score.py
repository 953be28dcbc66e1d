"""The recorded score and its gate; mutants accepted as equivalent, and mutants of packages and runs."""

import json
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import pv
from pv.contract.load import load
from pv.contract.model import Gate, Run
from pv.errors import UsageError
from pv.execution.mutants import MutantTrials
from pv.mutation import score, summary
from pv.mutation.judge import MutantStatus
from pv.results.evidence import MutationScore
from pv.results.verdict import Status
from pv.source.project import find_project
from pv.workers.pool import Pool
from tests.commands.small import edit
from tests.mutation.handmade import result
from tests.results.handmade import contract, falsifier


def test_a_score_is_recorded_and_stands_in_the_report_until_something_changes(shop: Any) -> None:
    (shop.folder / "rates.txt").write_text("1")
    edit(shop.folder / "shop.py", "import helper\n", "import helper\n\nopen('rates.txt').read()\n")
    result = shop.mutate("shop", record=True)
    kept = json.loads((shop.folder / "evidence/shop.mutants.json").read_text())
    Draft202012Validator(pv.schema("mutants")).validate(kept)
    assert (kept["killed"], kept["judged"], kept["no_coverage"]) == (7, 15, 6)
    assert {s["mutant"] for s in kept["survivors"]} == {
        j.mutant.mutant.id for j in result.judged if j.status in (MutantStatus.SURVIVED, MutantStatus.NO_COVERAGE)
    }
    report = pv.validate()
    assert f"mutation score 46.6 % (7 of 15 killed; recorded {kept['when']}, fresh)" in pv.render(report, verbose=True)
    shown = json.loads(pv.render(report, "json"))["contracts"][0]["mutation_score"]
    assert (shown["value"], shown["changed"]) == (7 / 15, [])
    assert "fresh" in pv.render(report, "markdown")
    for name, text in {"helper.py": "def rounded(cents):\n    return cents\n", "rates.txt": "2"}.items():
        (shop.folder / name).write_text(text)
    assert f"recorded {kept['when']}, stale, changed: helper.py, rates.txt)" in pv.render(pv.validate(), verbose=True)


def test_a_gate_demands_a_score_that_is_there_fresh_and_high_enough(shop: Any) -> None:
    shop.gate(0.46)
    missing = pv.validate()
    assert missing.contracts[0].status is Status.UNDECIDED
    says = "mutation score not recorded; the gate requires 46 %: pv mutate shop --record"
    assert says in pv.render(missing, verbose=True)
    shop.mutate("shop", record=True)
    assert pv.validate().contracts[0].status is Status.PASS
    text = (shop.folder / "shop.py").read_text()
    (shop.folder / "shop.py").write_text(text.replace("return 1 + 1", "return 2"))
    assert pv.validate().contracts[0].status is Status.UNDECIDED, "stale"
    (shop.folder / "shop.py").write_text(text)
    edit(shop.folder / "contracts/shop.yaml", "mutation_score: 0.46", "mutation_score: 0.47")
    assert pv.validate().contracts[0].status is Status.FAIL
    assert pv.validate(only=["S-*"]).contracts[0].status is Status.FAIL, "every claim is selected"
    (shop.folder / "evidence/shop.mutants.json").unlink()
    low = "the mutation score is 46.6 %, the contract's gate requires 47 %; survivors are listed above"
    assert summary.problems(shop.mutate("shop", record=True)) == [low]
    assert (shop.folder / "evidence/shop.mutants.json").exists(), "a low score is a score"


def test_a_recorded_sample_satisfies_no_gate(shop: Any) -> None:
    shop.gate(0.01)
    assert summary.problems(shop.mutate("shop", sample=14, seed=3, record=True)) == []
    assert '"pv mutate shop --sample 14 --seed 3 --record"' in (shop.folder / "evidence/shop.mutants.json").read_text()
    report = pv.validate()
    assert report.contracts[0].status is Status.UNDECIDED
    assert "fresh; the gate requires 1 %, and a sample satisfies no gate)" in pv.render(report, verbose=True)
    edit(shop.folder / "evidence/shop.mutants.json", '"contract": "shop"', '"contract": "shoe"')
    assert "it is the score of shoe" in pv.render(pv.validate())


def test_a_sample_follows_from_its_seed_and_keeps_the_order_of_the_mutants(shop: Any) -> None:
    (contract,), project = load(["contracts"]).contracts, find_project(shop.folder)
    samples = [MutantTrials(project, contract, (), jobs=1, sample=5, seed=seed) for seed in (0, 0, 1)]
    first, again, other = (sample.choose(range(20)) for sample in samples)
    assert first == again == sorted(first) != other


def test_equivalents_and_small_arguments_belong_to_the_fingerprint_of_a_score(shop: Any) -> None:
    project, clauses = find_project(shop.folder), set()
    shop.accept(find="pieces > 10", replace="pieces >= 10", reason="no member buys here")
    (contract,) = load(["contracts"]).contracts
    run = Run(name="R", small={"n": 1}, location=contract.location)
    for changes in ({}, {"equivalents": ()}, {"runs": (run,)}, {"runs": (replace(run, small={"n": 2}),)}):
        clauses.add(score.fingerprint(project, replace(contract, **changes)).clause)
    assert len(clauses) == 4


def test_a_score_that_cannot_be_read_is_an_error(shop: Any) -> None:
    (shop.folder / "evidence").mkdir()
    (shop.folder / "evidence/shop.mutants.json").write_text("{}")
    report = pv.validate()
    assert report.exit_code == 1
    assert "PV170 the evidence file cannot be used" in pv.render(report)


KILLED, SURVIVED = MutantStatus.KILLED, MutantStatus.SURVIVED


def test_exit_code_follows_problems_then_empty_results() -> None:
    assert summary.exit_code([result(SURVIVED)]) == 0
    assert summary.exit_code([result(SURVIVED), result()]) == 2
    assert summary.exit_code([]) == 2
    assert summary.exit_code([result(), result(KILLED, unused=("c.yaml:1:1",)), result(SURVIVED)]) == 1


TEXT = """\
c by F: mutation score 66.6 % (4 of 6 killed, 1 of them by timeout, 1 of them by error, 1 cached, 1 without coverage, \
1 equivalent, 1 invalid, a sample of 8 of 9)

contract.yaml:3 tiny:double [constant] survived
  -    return 2
  +    return 3
  tried by F, G
  seen: why

contract.yaml:3 tiny:double [constant] no coverage
  -    return 2
  +    return 3

contract.yaml:3 tiny:double [constant] not equivalent
  -    return 2
  +    return 3
  tried by F

error: declared equivalent, but F kills it: tiny:double: 2 -> 3
c by 2 falsifiers: nothing to judge: no subject

1.5 s; exit 1
"""


def test_result_with_mutants_of_every_status_is_written_as_text_and_json() -> None:
    sampled = result(*MutantStatus, total=9)
    changes = {KILLED: {"cached": True}, MutantStatus.NO_COVERAGE: {"tried": ()}}
    changes[SURVIVED] = {"seen": "why", "tried": ("F", "G")}
    judged = tuple(replace(judgement, **changes.get(judgement.status, {})) for judgement in sampled.judged)
    results = [replace(sampled, judged=judged), result(elsewhere="no subject", falsifiers=("F", "G"))]
    assert summary.text(results, 1.46) == TEXT
    content = json.loads(summary.data(results, 1.46))
    assert (content["format"], content["exit_code"], content["seconds"]) == ("pv-mutants-report/1", 1, 1.46)
    first, second = content["contracts"]
    counts = [first[name] for name in ("total", "sampled", "judged", "killed", "by_timeout", "by_error", "no_coverage")]
    assert (counts, first["equivalent"], first["score"]) == ([9, 8, 6, 4, 1, 1, 1], 1, 4 / 6)
    assert f"c by F: {first['summary']}" == TEXT.splitlines()[0]
    assert first["problems"] == ["declared equivalent, but F kills it: tiny:double: 2 -> 3"]
    assert (second["falsifiers"], second["score"], second["mutants"]) == (["F", "G"], None, [])
    assert [mutant["status"] for mutant in first["mutants"]] == [status.value for status in MutantStatus]
    assert first["mutants"][3] == {
        "id": "tiny:double: 2 -> 3",
        "operator": "constant",
        "function": "tiny:double",
        "path": "contract.yaml",
        "line": 3,
        "status": "survived",
        "tried": ["F", "G"],
        "seen": "why",
        "diff": "-    return 2\n+    return 3",
    }


def test_too_many_equivalents_fail_a_run_of_all_and_say_what_to_try(shop: Any) -> None:
    shop.accept(find="pieces > 10", replace="pieces >= 10", reason="no member buys here")
    more = '{function: "shop:price", find: pieces > 10, replace: pieces > 11, reason: no member buys here}'
    shop.append(f"- {more}\n")
    assert summary.problems(shop.mutate("shop")) == [
        "2 mutants declared equivalent, at most 1 allowed (`equivalents` of the gate: 5 % of all mutants): "
        "write a falsifier that kills them, or simplify the code"
    ]
    drawn = shop.mutate("shop", sample=14)
    assert (drawn.count(MutantStatus.EQUIVALENT), summary.problems(drawn)) == (2, [])
    part = shop.mutate("shop", modules=["shop"])
    assert (part.count(MutantStatus.EQUIVALENT), summary.problems(part)) == (2, [])


@pytest.mark.parametrize(
    ("replace", "says"),
    [
        ("whole <= 0", "declared equivalent, but S-PRICE kills it: shop:price: whole < 0 -> whole <= 0"),
        ("whole < -5", "declared equivalent matches no generated mutant: contracts/shop.yaml:11:3: whole < 0 -> whole"),
    ],
)
def test_a_result_with_problems_is_not_recorded(shop: Any, replace: str, says: str) -> None:
    shop.accept(find="whole < 0", replace=replace, reason="nothing is free")
    result = shop.mutate("shop", record=True)
    (problem,) = summary.problems(result)
    assert problem.startswith(f"no score was recorded: {says}")
    assert summary.exit_code([result]) == 1
    assert f"error: {problem}" in summary.text([result], 0.5)
    assert not (shop.folder / "evidence").exists()


def test_a_killed_mutant_that_is_then_declared_equivalent_is_tried_again(shop: Any) -> None:
    shop.mutate("shop")
    shop.accept(find="whole < 0", replace="whole <= 0", reason="nothing is free")
    says = "declared equivalent, but S-PRICE kills it: shop:price: whole < 0 -> whole <= 0"
    assert summary.problems(shop.mutate("shop")) == [says]


def test_a_part_of_a_contract_says_nothing_of_equivalents_and_gates_of_the_whole(shop: Any) -> None:
    shop.add("S-LEAVE", "falsify_leave")
    shop.gate(1.0)
    shop.accept(find="whole < 0", replace="whole < -5", reason="it is")
    assert summary.problems(shop.mutate("S-LEAVE")) == []
    assert summary.problems(shop.mutate("shop", modules=["help*"])) == []
    assert summary.problems(shop.mutate("shop", widely=True, sample=1)) == []
    says = "declared equivalent matches no generated mutant: contracts/shop.yaml:"
    assert says in summary.problems(shop.mutate("shop"))[0]


def test_an_equivalent_outside_of_what_is_mutated_is_refused(shop: Any) -> None:
    shop.accept(find="pieces > 10", replace="pieces >= 10", reason="no member buys here")
    shop.append("mutation_scope: [helper]\n")
    with pytest.raises(UsageError, match="PV137 shop:price is not in `mutation_scope`: remove the equivalent"):
        shop.mutate("shop")


def test_an_equivalent_in_a_package_is_tried_with_ten_times_the_examples_and_the_limit(
    shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    effort: dict[str, tuple[int | None, float]] = {}
    submit = Pool.submit

    def note(pool: Pool, task: Any) -> None:
        mutant = task.key.mutant.id if task.key.mutant is not None else "clean"
        effort[mutant] = (task.key.conditions.examples, task.limit_s)
        submit(pool, task)

    monkeypatch.setattr(Pool, "submit", note)
    (shop.folder / "shop").mkdir()
    (shop.folder / "shop.py").rename(shop.folder / "shop/__init__.py")
    (shop.folder / "shop/till.py").write_text("def ring():\n    return 1\n")
    shop.accept(find="pieces > 10", replace="pieces >= 10", reason="no member buys here")
    assert shop.fates(shop.mutate("shop"))["price: pieces > 10 -> pieces >= 10"] is MutantStatus.EQUIVALENT
    equivalent, other = (effort[f"shop:price: {text}"] for text in ("pieces > 10 -> pieces >= 10", "False -> True"))
    assert (equivalent, other[0]) == ((1000, 10 * other[1]), None)


def test_a_name_that_is_not_there_is_no_fault_in_a_run_either(shop: Any) -> None:
    source = shop.folder / "shop.py"
    lost = "def size(n):\n    if n > 10:\n        word = 'many'\n    else:\n        word = 'few'\n    return word\n"
    source.write_text(f"{source.read_text()}\n\n{lost}")
    test = shop.folder / "falsifiers/falsify_shop.py"
    asking = "def ask(subject, *, device, directory, trace):\n    return subject.size(3)\n"
    test.write_text(f"{asking}\ndef falsify_size(run):\n    assert run.result == 'few'\n")
    edit(shop.folder / "contracts/shop.yaml", "falsify_price", "falsify_size")
    shop.append("  run: R\nruns: [{name: R, callable: falsifiers/falsify_shop.py::ask, arguments: {}, small: {}}]\n")
    (unnamed,) = (j for j in shop.mutate("shop").judged if j.mutant.mutant.id == "shop:size: word = 'few' -> pass")
    assert (unnamed.status, unnamed.seen.partition(": ")[0]) == (MutantStatus.INVALID, "UnboundLocalError")


@pytest.mark.parametrize(("judged", "allowed"), [(5, 1), (38, 1), (39, 2)])
def test_a_share_of_the_mutants_may_be_equivalent_but_at_least_one(judged: int, allowed: int) -> None:
    all_but_one = MutationScore(total=judged + 1, judged=judged, killed=judged, sampled=judged + 1, equivalent=1)
    assert score.max_equivalent(all_but_one, 0.05) == allowed


def test_the_gate_declares_the_share_of_equivalents() -> None:
    allowing = contract(falsifier(), gate=Gate(equivalents=0.7))
    assert summary.problems(result(KILLED, *[MutantStatus.EQUIVALENT] * 2, contract=allowing)) == []
