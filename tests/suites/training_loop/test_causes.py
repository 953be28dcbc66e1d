"""The cause that a failing claim names is the fault that was planted, and a correct loop is not accused."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import SkipTest

import pytest
import torch
import yaml

from pv.engines.failures import FailureClassifier
from pv.engines.property.attack import Settings
from pv.engines.property.attack import attack as search
from pv.engines.stream import Silent
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.cases import SAVED, unequal
from pv.suites.training_loop.claims import data, gradients
from pv.suites.training_loop.claims.checks import judge, most_informative
from pv.suites.training_loop.claims.resume import number_fault
from pv.suites.training_loop.claims.updates import causes_of_clipping
from pv.suites.training_loop.diagnosis import explain_order, table
from tests.suites.training_loop.loop_faults import faulty, refutation
from tests.suites.training_loop.planting import attack, by_id, contract, correct, loop_of, planted

CAUSES: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("causes.yaml").read_text())


def test_too_few_steps_are_not_called_a_step_for_each_micro_batch() -> None:
    run = correct().run(data.Job(train=unequal(5), batch=2, accumulate=1, epochs=1))
    few, many = replace(run, steps=run.steps[:2]), replace(run, steps=(*run.steps, run.steps[0]))
    assert (data._causes_of_steps(few), data._causes_of_steps(many)) == ((), ())


def test_orders_that_depend_on_seed_plus_epoch_are_named_if_the_last_epoch_is_incomplete() -> None:
    class Incomplete:
        used = (correct().run(data.Job(train=unequal(1), epochs=1)),)

        def run(self, job: data.Job) -> Any:
            names = [job.seed + epoch + k for epoch in range(3) for k in range(data.ORDERED)][:-1]
            return SimpleNamespace(steps=[SimpleNamespace(names=names)], leftover=[])

    with pytest.raises(AssertionError, match=r"seed \+ epoch only"):
        data.falsify_neighbouring_seeds_share_no_order(Incomplete())


@pytest.mark.parametrize(("claim", "fault"), [(claim, fault) for claim in CAUSES for fault in CAUSES[claim]])
def test_cause_is_named(claim: str, fault: str) -> None:
    causes, message = CAUSES[claim][fault], refutation(fault, claim)
    assert [cause for cause in ([causes] if isinstance(causes, str) else causes) if cause not in message] == []


@pytest.mark.parametrize(
    ("claim", "fault", "cause"),
    [
        ("TL-GRAD-001", "sum-of-means", "if the loss"),
        ("TL-GRAD-001", "backward = sums_in_bfloat16", "not_claimed"),
        ("TL-GRAD-001", "loss_sum = slightly_off", "not_claimed"),
        ("TL-RESUME-003", "gradient-kept", "weights that differ from the checkpoint"),
        ("TL-RESUME-003", "begin = ties, update_average = not_averaged", "weights that differ from the checkpoint"),
        ("TL-RATE-004", "restore = schedule_advanced_again", "the rate of the first group"),
    ],
)
def test_another_cause_is_not_named_where_the_cause_is_known(claim: str, fault: str, cause: str) -> None:
    assert cause not in refutation(fault, claim)


ONCE, REACHING = data.falsify_each_example_once_an_epoch, data.falsify_every_batch_reaches_the_optimizer


@pytest.mark.parametrize(
    ("falsify", "fault", "examples", "batch", "accumulate", "epochs", "says"),
    [
        (
            ONCE,
            "backward = micro_batches_used_again",
            3,
            1,
            2,
            1,
            r"and 5 are used: \[[^]]*\]$",
        ),  # not of the next epoch
        (
            ONCE,
            "remaining_epochs = next_epoch_in_place_of_window",
            3,
            1,
            2,
            1,
            "epoch: the next epoch begins in its place",
        ),
        (REACHING, "no-partial-step", 2, 2, 2, 2, "it is the last, incomplete window: no step is taken for it"),
    ],
)
def test_cause_is_named_for_a_given_job(
    falsify: Any, fault: str, examples: int, batch: int, accumulate: int, epochs: int, says: str
) -> None:
    settings = {"train": unequal(examples), "batch": batch, "accumulate": accumulate, "epochs": epochs}
    with faulty(fault) as bench, pytest.raises(AssertionError, match=says):
        falsify.hypothesis.inner_test(bench, **settings)


def test_job_that_is_explained_is_the_one_that_is_reported_and_replayed() -> None:
    bench, arguments = planted("window-of-means"), ""
    for replay in (False, True):
        options = Settings(examples=1, seed=0, replay=arguments if replay else "")
        record = search(
            gradients.falsify_unequal_full_windows, {"bench": bench}, options, FailureClassifier(Path(), ()), Silent()
        )
        arguments = json.dumps(record["arguments"])
        job = {name: record["arguments"][name] for name in ("batch", "accumulate", "epochs")}
        assert job == {name: gradients.DISTINGUISHING[name] for name in job}
        assert record["error"].startswith("10 examples, batch 2, accumulation 3, seed 1, ")
        assert record["exact"] and record["explained"]


RATES = [claim.id for claim in contract().falsifiers if claim.id.startswith("TL-RATE-")]
EVALUATION = (*by_id("TL-EVAL-003").options["premises"], "TL-EVAL-003", "TL-BEST-005")
AFTER_A_CUT = ("TL-RATE-004", "TL-RESUME-002", "TL-RESUME-003", "TL-RESUME-004", "TL-AVERAGE-002")


@pytest.mark.parametrize(
    ("claim", "change"),
    [
        *((claim, "evaluation-drops-last") for claim in EVALUATION),
        ("TL-BEST-005", "evaluation-mean-of-means"),
        *((claim, "remaining_epochs = fixed_batches_shuffled") for claim in ("TL-DATA-002", "TL-DATA-005")),
        *((claim, "rate_factor = warmup_from_above_zero") for claim in RATES),
        ("TL-AVERAGE-001", "update_average = average_warming_up, Loop.expected_decay = warm_decay"),
        *((claim, "make_scheduler = rates_rounded") for claim in AFTER_A_CUT),
    ],
)
def test_claim_holds_for_what_is_no_fault_or_one_of_other_claims(claim: str, change: str) -> None:
    with faulty(change) as bench:
        attack(claim, bench)


@pytest.mark.parametrize(
    ("claim", "fault"),
    [
        *((claim, "make_scheduler = rates_off") for claim in AFTER_A_CUT),
        ("TL-RESUME-003", "make_scheduler = rates_rounded, restore = weights_off"),
        ("TL-AVERAGE-002", "make_scheduler = rates_rounded, restore = weights_off"),
    ],
)
def test_fault_is_not_taken_for_rounding(claim: str, fault: str) -> None:
    assert refutation(fault, claim)


IN_EVAL_MODE = "backward = trained_in_eval_mode, Loop.features = short_windows"


@pytest.mark.parametrize(
    ("claim", "fault", "reason"),
    [
        ("TL-DATA-004", IN_EVAL_MODE, "the forwards of the training examples are in eval mode"),
        ("TL-NETWORK-009", "Loop.network_loss = flags_ignored", "turn checkpointing on"),
        ("TL-NETWORK-010", "Loop.network_loss = flags_ignored", "turn autocast on"),
        ("TL-SCALER-003", "begin = scale_hardly_growing", "scale grows 0 times.*growth interval of at most 4"),
    ],
)
def test_fault_that_keeps_a_claim_from_being_tried_leaves_it_undecided(claim: str, fault: str, reason: str) -> None:
    with faulty(fault) as bench, pytest.raises(SkipTest, match=reason):
        attack(claim, bench)


def test_a_claim_without_a_case_is_undecided() -> None:
    with pytest.raises(SkipTest, match="no case of the claim can be tried"):
        judge({})


@pytest.mark.parametrize(
    ("causes", "named"),
    [([["a"], [], []], ("a",)), ([["a"], ["b"], [], []], ("a",)), ([["a"], [], [], []], ())],
)
def test_cause_that_one_of_many_failures_has_is_a_coincidence(causes: list[list[str]], named: tuple[str, ...]) -> None:
    assert most_informative(dict(enumerate(causes)))[1] == named


def test_average_that_a_later_evaluation_leaves_in_the_model_is_not_called_random_numbers() -> None:
    cls = type(planted("average-left-in-place").trainer)
    late = type("Late", (cls,), {"run": lambda self, job: cls.run(self, replace(job, eval_every=job.eval_every and 3))})
    with pytest.raises(AssertionError, match="weights that change between the steps; it is the running average left"):
        attack("TL-EVAL-003", Bench(late()))


def test_norms_that_are_logged_with_other_steps_are_refuted() -> None:
    def from_zero(job: Any, report: Any) -> None:
        report.logs[:] = [row | {"step": row["step"] - 1} for row in report.logs]

    with pytest.raises(AssertionError, match=r"norms are logged for the steps \[0, 1\], not for 1 to 2"):
        attack("TL-CLIP-002", Bench(loop_of(after=from_zero)()))


def test_gradients_clipped_before_their_division_are_named() -> None:
    causes = causes_of_clipping({"w": torch.tensor([0.12, 0.16])}, {"w": torch.tensor([3.0, 4.0])}, 1.0, 5)
    assert causes == ("clipped before it is divided by the scored tokens",)


def test_logged_rates_of_a_schedule_of_the_loop_are_tried() -> None:
    claim = by_id("TL-RATE-002")
    assert Bench(loop_of(features={"schedule": False})()).missing(claim.id, claim.options["needs"]) == ""


def test_few_examples_explain_no_order_and_steps_of_a_resumed_run_are_numbered_as_in_the_whole_run() -> None:
    run = correct().run(SAVED)
    names = [name for step in run.order for name in step]
    assert explain_order(names[4:6], run, 6) == ()
    replayed = "the order of its epoch, but a part before the cut is replayed: 1 step"
    assert explain_order(names[4:7], run, 6) == (replayed,)
    rows = table(correct().resume(run, 5)).splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["6", "7", "8"]


def test_a_number_that_counts_all_tokens_from_the_cut_is_named() -> None:
    straight = correct().run(SAVED)
    again, before = (
        correct().resume(straight, 2),
        straight.examples(name for step in straight.order[:2] for name in step),
    )
    counted = sum(len(example.tokens) for example in before)
    logs = [{"step": step, "num_tokens": 100.0 + 10 * step} for step in (3, 6)]
    less = [row | {"num_tokens": row["num_tokens"] - counted} for row in logs]
    fault, causes = number_fault(replace(straight, logs=tuple(logs)), replace(again, logs=tuple(less)), 2, "num_tokens")
    assert fault == f"num_tokens (step 3: {130 - counted}, not 130, step 6: {160 - counted}, not 160)"
    assert causes == ("num_tokens counted from 0 after the cut",)
