"""The recorded score: what is kept, when it is stale, what a gate demands, and the exit code."""

import json
from typing import Any

from jsonschema import Draft202012Validator

import pv
from pv.mutation import summary
from pv.mutation.judge import MutantStatus
from pv.results.verdict import Status
from tests.mutation.handmade import result


def test_a_score_is_recorded_and_stands_in_the_report_until_something_changes(shop: Any) -> None:
    result = shop.mutate("shop", record=True)
    kept = json.loads((shop.folder / "evidence/shop.mutants.json").read_text())
    Draft202012Validator(pv.schema("mutants")).validate(kept)
    assert (kept["killed"], kept["judged"], kept["no_coverage"]) == (7, 15, 6)
    assert {s["mutant"] for s in kept["survivors"]} == {
        j.mutant.mutant.id for j in result.judged if j.status in (MutantStatus.SURVIVED, MutantStatus.NO_COVERAGE)
    }
    said = pv.validate()
    assert f"mutation score 46.6 % (7 of 15 killed; recorded {kept['when']}, fresh)" in pv.render(said, verbose=True)
    shown = json.loads(pv.render(said, "json"))["contracts"][0]["mutation_score"]
    assert (shown["value"], shown["changed"]) == (7 / 15, [])
    assert "fresh" in pv.render(said, "markdown")
    (shop.folder / "helper.py").write_text("def rounded(cents):\n    return cents\n")
    assert f"recorded {kept['when']}, stale, changed: helper.py)" in pv.render(pv.validate(), verbose=True)


def test_a_gate_demands_a_score_that_is_there_fresh_and_high_enough(shop: Any) -> None:
    shop.gate(0.46)
    missing = pv.validate()
    assert missing.contracts[0].status is Status.UNDECIDED
    says = "mutation score not recorded; the gate asks for 46 %: pv mutate shop --record"
    assert says in pv.render(missing, verbose=True)
    shop.mutate("shop", record=True)
    assert pv.validate().contracts[0].status is Status.PASS
    text = (shop.folder / "shop.py").read_text()
    (shop.folder / "shop.py").write_text(text.replace("return 1 + 1", "return 2"))
    assert pv.validate().contracts[0].status is Status.UNDECIDED, "stale"
    (shop.folder / "shop.py").write_text(text)
    contract = shop.folder / "contracts/shop.yaml"
    contract.write_text(contract.read_text().replace("mutation_score: 0.46", "mutation_score: 0.47"))
    assert pv.validate().contracts[0].status is Status.FAIL
    assert pv.validate(only=["S-*"]).contracts[0].status is Status.FAIL, "every claim is selected"
    (shop.folder / "evidence/shop.mutants.json").unlink()
    low = "the mutation score is 46.6 %, the contract's gate requires 47 %; survivors are listed above"
    assert summary.problems(shop.mutate("shop", record=True)) == [low]
    assert (shop.folder / "evidence/shop.mutants.json").exists(), "a low score is a score"


def test_a_recorded_sample_satisfies_no_gate(shop: Any) -> None:
    shop.gate(0.01)
    assert summary.problems(shop.mutate("shop", sample=14, record=True)) == []
    said = pv.validate()
    assert said.contracts[0].status is Status.UNDECIDED
    assert "fresh; the gate asks for 1 %, and a sample satisfies no gate)" in pv.render(said, verbose=True)


def test_a_score_that_cannot_be_read_is_an_error(shop: Any) -> None:
    (shop.folder / "evidence").mkdir()
    (shop.folder / "evidence/shop.mutants.json").write_text("{}")
    said = pv.validate()
    assert said.exit_code == 1
    assert "PV170 the evidence file cannot be used" in pv.render(said)


KILLED, SURVIVED = MutantStatus.KILLED, MutantStatus.SURVIVED


def test_exit_code_follows_problems_then_empty_results() -> None:
    assert summary.exit_code([result(SURVIVED)]) == 0
    assert summary.exit_code([result(SURVIVED), result()]) == 2
    assert summary.exit_code([]) == 2
    assert summary.exit_code([result(), result(KILLED, unused=("c.yaml:1:1",))]) == 1
