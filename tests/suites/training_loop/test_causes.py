"""The cause that a failing claim names is the fault that was planted, and a correct loop is not accused."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest
import torch
import yaml
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pv.contract.claims import Falsifier
from pv.suites.training_loop import loop, plan, saving
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims import data, gradients
from pv.suites.training_loop.claims.cases import saved_job, unequal
from pv.suites.training_loop.claims.checks import judge, telling
from pv.suites.training_loop.claims.logs import FILTERED
from pv.suites.training_loop.claims.resume import number_fault
from pv.suites.training_loop.diagnosis import explain_order, table
from pv.suites.training_loop.job import IGNORED, Job
from pv.suites.training_loop.probe import PAD, token_loss
from pv.suites.training_loop.saving import Training
from tests.suites.training_loop.planting import attack_of, by_id, claims, correct, loop_of, planted, refutation

CAUSES: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("causes.yaml").read_text())


@pytest.mark.parametrize(("claim", "mutant"), [(claim, mutant) for claim in CAUSES for mutant in CAUSES[claim]])
def test_cause_is_named(claim: str, mutant: str) -> None:
    causes, message = CAUSES[claim][mutant], refutation(mutant, claim)
    assert [each for each in ([causes] if isinstance(causes, str) else causes) if each not in message] == []


def input_tokens(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    ids = batch["input_ids"]
    labels = ids[:, :-1].masked_fill(batch["labels"][:, 1:] == IGNORED, IGNORED)
    return cross_entropy(model(ids)[:, :-1].flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")


def unshifted(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    logits = model(batch["input_ids"]).flatten(0, 1)
    return cross_entropy(logits, batch["labels"].flatten(), ignore_index=IGNORED, reduction="sum")


def padding_of_shifted_labels(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    ids, real = batch["input_ids"].clone(), batch["attention_mask"]
    ids[range(len(ids)), real.sum(1) - 1] = PAD
    return token_loss(model(ids), batch["labels"].masked_fill(real == 0, PAD), "sum")


def another_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    logits: Tensor = model(batch["input_ids"], batch["attention_mask"])
    return logits[:, :-1].square().mean(-1)[batch["labels"][:, 1:] != IGNORED].sum()


def of_all_steps(training: Training, window: Any, backward: Any = loop.backward) -> Any:
    """Divide by the scored tokens of all steps since the start, or since a resume."""
    with pytest.MonkeyPatch.context() as patch:
        before = training.state.tokens if training.job.resume is None else 0
        patch.setattr(loop, "factors", lambda counts: [1 / (before + sum(counts) or 1) for _ in counts])
        return backward(training, window)


def sums_averaged(counts: Sequence[int]) -> list[float]:
    return [1 / len(counts) for _ in counts]


backward, begin = loop.backward, loop.begin


def in_eval_mode(training: Training, window: Any) -> Any:
    training.model.eval()
    return backward(training, window)


def begun(change: Callable[[Training], object]) -> Callable[[Job], Training]:
    """Return what begins a training, and changes it."""

    def begin_(job: Job) -> Training:
        training: Training = begin(job)
        change(training)
        return training

    return begin_


def shared_average(training: Training) -> None:
    training.average = training.model


def from_above_zero(job: Job, done: int, planned: int) -> float:
    return (done + 1) / job.warmup if done < job.warmup else plan.factor(job, done, planned)


def per_micro_batch(job: Job, done: int, planned: int) -> float:
    return from_above_zero(job, min(done * job.accumulate, planned), planned)


def planned_per_micro_batch(job: Job, done: int, planned: int) -> float:
    return plan.factor(job, done, planned * job.accumulate)


def from_batches_as_examples(job: Job, done: int) -> Any:
    """Go on in the cut epoch after as many examples as there were batches."""
    steps = len(plan.epoch_windows(job, 0))
    for epoch in range(done // steps, job.epochs):
        rows = plan.order(len(job.train), job.seed, epoch)
        start = done % steps * job.accumulate if epoch == done // steps else 0
        yield plan.windows(plan.batches(rows[start:], job.batch), job.accumulate)


def from_the_first_step(job: Job, done: int) -> Any:
    """Take the steps that are left on the data of the first ones."""
    steps = islice(chain.from_iterable(plan.remaining(job, 0)), plan.planned_steps(job) - done)
    yield list(steps)


def of_the_epoch_before(job: Job, done: int) -> Any:
    """Count the epochs of a checkpoint before the one that ends is counted."""
    steps = len(plan.epoch_windows(job, 0))
    return plan.remaining(job, max(0, done - steps) if done % steps == 0 else done)


def drawn_from(seed: int) -> Callable[[Job, int], Any]:
    """Draw the orders of a resumed run from another seed."""
    return lambda job, done: plan.remaining(replace(job, seed=job.seed + seed * bool(done)), done)


drawn_anew, drawn_again = drawn_from(99), drawn_from(1000)


def clipped_by_largest(parameters: Iterable[Tensor], limit: float | None) -> float:
    return float(nn.utils.clip_grad_norm_(parameters, limit or math.inf, norm_type=math.inf))


def clipped_by_element(parameters: Iterable[Tensor], limit: float | None) -> float:
    nn.utils.clip_grad_value_(parameters, limit or math.inf)
    return 0.0


def filtered(step: int, since: Any, rate: float, norm: float) -> dict[str, float]:
    """Log as `logging_nan_inf_filter` of transformers does."""
    total = 0.0
    for done, window in enumerate(since):
        nats, tokens = (sum(part) for part in zip(*window, strict=True))
        total += nats / tokens if tokens else total / (done + 1)
    return {"step": step, "loss": total / len(since), "rate": rate, "norm": norm}


def another_first(job: Job, done: int) -> Any:
    """Draw the order of the first epoch from another seed where there are workers."""
    epochs = plan.remaining(job, done)
    if job.workers:
        next(epochs)
        yield next(plan.remaining(replace(job, seed=1000), done))
    yield from epochs


@pytest.mark.parametrize(
    ("name", "fault", "claim", "cause"),
    [
        ("loss_sum", input_tokens, "TL-GRAD-001", "labels that are the input tokens, not the next ones"),
        ("loss_sum", unshifted, "TL-GRAD-001", "it is that of labels that are not shifted"),
        (
            "factors",
            sums_averaged,
            "TL-GRAD-001",
            "divided by the number of micro-batches, not by the scored tokens \\(",
        ),
        (
            "backward",
            of_all_steps,
            "TL-GRAD-001",
            "divided by the scored tokens of all steps so far: their count is not",
        ),
        ("backward", of_all_steps, "TL-RESUME-003", r"other weights or random numbers before it \("),
        ("loss_sum", padding_of_shifted_labels, "TL-PAD-001", "the padding of labels shifted by the loop scored"),
        ("backward", in_eval_mode, "TL-DATA-001", "it is a training in eval mode"),
        ("backward", in_eval_mode, "TL-GRAD-001", "it is a training in eval mode"),
        ("clip", clipped_by_largest, "TL-CLIP-001", r"it is clipped by its largest element, and not by .* norm \("),
        ("clip", clipped_by_element, "TL-CLIP-001", r"it is clipped element by element \("),
        ("evaluating", nullcontext, "TL-EVAL-003", "it is an evaluation in training mode, with dropout"),
        ("remaining", from_the_first_step, "TL-RESUME-001", r"those after it: the data start again \("),
        ("remaining", from_the_first_step, "TL-RESUME-009", r"those after it: the data start again \("),
        ("factor", per_micro_batch, "TL-RATE-001", "a schedule that advances with every micro-batch"),
        ("factor", planned_per_micro_batch, "TL-RATE-001", "planned for as many steps as there are micro-"),
        ("factor", planned_per_micro_batch, "TL-RATE-005", "planned for as many steps as there are micro-"),
        ("remaining", from_batches_as_examples, "TL-RESUME-001", "the number of batches, taken for one of examples"),
        (
            "remaining",
            of_the_epoch_before,
            "TL-RESUME-008",
            r"not [0-9]; it is a run of one epoch more than plan",
        ),
        ("log_row", filtered, "TL-LOG-005", re.escape(f"it is the mean of the steps' means, {FILTERED} (")),
        ("remaining", drawn_again, "TL-RESUME-001", "has: examples from before the cut are used again, and others le"),
        ("remaining", drawn_again, "TL-RESUME-009", "an order that no epoch of the run that was not cut has: the"),
        ("remaining", drawn_anew, "TL-RESUME-001", "it is an order that no epoch of the run that was not cut has: "),
        ("remaining", drawn_anew, "TL-RESUME-009", "it is an order that no epoch of the run that was not cut has: "),
        ("remaining", another_first, "TL-DATA-006", "order of the same examples in epoch 1: with workers it is drawn"),
        ("begin", begun(shared_average), "TL-AVERAGE-001", "the average shares their storage"),
        (
            "begin",
            begun(lambda training: torch.manual_seed(training.job.seed)),
            "TL-RESUME-004",
            "other random numbers, those of the start of the run",
        ),
    ],
)
def test_other_cause_is_named(name: str, fault: Any, claim: str, cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, name, fault)
    with pytest.raises(AssertionError, match=cause):
        attack_of(by_id(claim))(bench=Bench(loop.Loop()))


@pytest.mark.parametrize(
    ("causes", "named"),
    [([["a"], [], []], ("a",)), ([["a"], ["b"], [], []], ("a",)), ([["a"], [], [], []], ())],
)
def test_cause_that_one_of_many_failures_has_is_a_coincidence(causes: list[list[str]], named: tuple[str, ...]) -> None:
    assert telling(dict(enumerate(causes)))[1] == named


def test_micro_batches_of_a_training_in_eval_mode_are_not_called_short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "backward", in_eval_mode)
    with pytest.raises(SkipTest, match="the training examples have theirs in eval mode"):
        attack_of(by_id("TL-DATA-004"))(bench=Bench(loop_of(without=("short_windows",))()))


def test_evaluations_of_a_part_of_the_examples_can_be_known_to_change_nothing() -> None:
    bench, claim = planted("evaluation-drops-last"), by_id("TL-EVAL-003")
    for each in (*claim.options["premises"], claim.id):
        attack_of(by_id(each))(bench=bench)


def next_epoch_in_its_place(job: Job, done: int) -> Any:
    """Leave out incomplete windows, and take as many steps as planned."""
    size = job.batch * job.accumulate
    full, planned, epoch = len(job.train) // size * size, plan.planned_steps(job), 0
    while done < planned:
        rows = plan.order(len(job.train), job.seed, epoch)[:full]
        yield plan.windows(plan.batches(rows, job.batch), job.accumulate)[: planned - done]
        done, epoch = done + full // size, epoch + 1


def test_micro_batches_that_are_used_again_are_not_called_the_next_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []

    def again(training: Training, window: Any, backward: Any = loop.backward) -> Any:
        kept[:] = [*kept, *window] if training.state.step else window
        return backward(training, kept)

    monkeypatch.setattr(loop, "backward", again)
    attack: Any = data.falsify_each_example_once_an_epoch
    with pytest.raises(AssertionError, match=r"and 5 are: \[[^]]*\]$"):
        attack.hypothesis.inner_test(Bench(loop.Loop()), train=unequal(3), batch=1, accumulate=2, epochs=1)


def test_lost_windows_of_a_run_without_a_step_are_named() -> None:
    attack: Any = data.falsify_every_batch_reaches_the_optimizer
    with pytest.raises(AssertionError, match="it is the last, incomplete window: no step is taken for it"):
        attack.hypothesis.inner_test(planted("no-partial-step"), train=unequal(2), batch=2, accumulate=2, epochs=2)


def test_window_that_the_next_epoch_replaces_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "remaining", next_epoch_in_its_place)
    attack: Any = data.falsify_each_example_once_an_epoch
    with pytest.raises(AssertionError, match="incomplete window of each epoch: the next epoch begins in its place"):
        attack.hypothesis.inner_test(Bench(loop.Loop()), train=unequal(3), batch=1, accumulate=2, epochs=1)


def test_failure_of_a_fixed_job_is_not_shown_as_that_of_the_drawn_one() -> None:
    attack: Any = gradients.falsify_unequal_full_windows
    with pytest.raises(AssertionError, match=r"^a fixed job, not the one below, of 10 examples, batch 2"):
        attack.hypothesis.inner_test(planted("window-of-means"), train=unequal(2), batch=2, accumulate=1, epochs=1)


@pytest.mark.parametrize("wrong", ["evaluation-mean-of-means", "evaluation-drops-last"])
def test_a_checkpoint_is_not_blamed_for_a_wrong_loss_that_was_reported(wrong: str) -> None:
    attack_of(by_id("TL-BEST-005"))(bench=planted(wrong))


@claims("rates")
def test_a_warmup_that_begins_above_zero_is_no_fault(claim: Falsifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "factor", from_above_zero)
    attack_of(claim)(bench=Bench(loop.Loop()))


def test_a_loss_is_not_called_another_one_where_the_cause_is_known() -> None:
    assert "if the loss" not in refutation("sum-of-means", "TL-GRAD-001")


def test_gradients_that_are_kept_are_not_called_other_weights_after_a_resume() -> None:
    assert "weights that are not those of the checkpoint" not in refutation("gradient-kept", "TL-RESUME-003")


def test_logged_rates_of_a_schedule_of_the_loop_are_tried() -> None:
    claim = by_id("TL-RATE-002")
    assert Bench(loop_of(without=("schedule",))()).missing(claim.id, claim.options["needs"]) == ""


def test_decay_that_warms_up_is_named_and_can_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Saying(loop.Loop):
        def expected_decay(self, job: Job, done: int) -> float:
            return min(job.average or 0.0, (1 + done) / (10 + done))

    updates = {"done": 0}

    @torch.no_grad()
    def average(mean: torch.nn.Module, model: torch.nn.Module, decay: float | None) -> None:
        warm = min(decay or 0.0, (1 + updates["done"]) / (10 + updates["done"]))
        updates["done"] += 1
        for each, new in zip(mean.parameters(), model.parameters(), strict=True):
            each.copy_(warm * each + (1 - warm) * new)

    def begin(job: Job) -> Training:
        updates["done"] = 0
        return original(job)

    original = loop.begin
    monkeypatch.setattr(loop, "average", average)
    monkeypatch.setattr(loop, "begin", begin)
    attack = attack_of(by_id("TL-AVERAGE-001"))
    attack(bench=Bench(Saying()))
    with pytest.raises(AssertionError, match="expected_decay"):
        attack(bench=Bench(loop.Loop()))


@pytest.mark.parametrize("claim", ["TL-NETWORK-009", "TL-NETWORK-010"])
def test_a_flag_without_an_effect_leaves_the_claim_undecided(claim: str) -> None:
    class Plain(loop.Loop):
        def network_loss(self, network: nn.Module, rows: Any, *, checkpointing: bool, autocast: bool) -> Tensor:
            return super().network_loss(network, rows, checkpointing=False, autocast=False)

    with pytest.raises(SkipTest, match=r"turn (checkpointing|autocast) on"):
        attack_of(by_id(claim))(bench=Bench(Plain()))


def test_a_scale_that_hardly_grows_leaves_the_claim_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "begin", begun(lambda training: training.scaler.set_growth_interval(2000)))
    with pytest.raises(SkipTest, match=r"the scale grows 0 times.*growth interval of at most 4"):
        attack_of(by_id("TL-SCALER-003"))(bench=Bench(loop.Loop()))


def test_few_examples_explain_no_order() -> None:
    run = correct().run(saved_job())
    names = [name for step in run.order for name in step]
    assert explain_order(names[4:6], run, 6) == ()
    assert explain_order(names[4:7], run, 6) == (
        "the order of its epoch, of which some before the cut is replayed: 1 step",
    )


def test_a_number_that_counts_all_tokens_from_the_cut_is_named() -> None:
    straight = correct().run(saved_job())
    again, before = correct().resume(straight, 2), straight.named(name for step in straight.order[:2] for name in step)
    counted = sum(len(each.tokens) for each in before)
    logs = [{"step": step, "num_tokens": 100.0 + 10 * step} for step in (3, 6)]
    less = [row | {"num_tokens": row["num_tokens"] - counted} for row in logs]
    fault, causes = number_fault(replace(straight, logs=tuple(logs)), replace(again, logs=tuple(less)), 2, "num_tokens")
    assert fault == f"num_tokens (step 3: {130 - counted}, not 130, step 6: {160 - counted}, not 160)"
    assert causes == ("num_tokens counted from 0 after the cut",)


def test_a_claim_without_a_case_is_undecided() -> None:
    with pytest.raises(SkipTest, match="no case of the claim can be tried"):
        judge({})


class Rounding(loop.Loop):
    """A loop that computes the rates of a resumed run with factors of their own."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def run(self, job: Job) -> Any:
        def make_scheduler(job: Job, optimizer: Any) -> Any:
            by = self.factor if job.resume else 1.0
            planned = plan.planned_steps(job)
            return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: plan.factor(job, done, planned) * by)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "make_scheduler", make_scheduler)
            return loop.Loop.run(self, job)


AFTER_A_CUT = ("TL-RATE-004", "TL-RESUME-002", "TL-RESUME-003", "TL-RESUME-004", "TL-AVERAGE-002")


@pytest.mark.parametrize("claim", AFTER_A_CUT)
def test_a_resumed_run_may_round_its_rates_otherwise(claim: str) -> None:
    attack_of(by_id(claim))(bench=Bench(Rounding(1 + 2**-51)))
    with pytest.raises(AssertionError):
        attack_of(by_id(claim))(bench=Bench(Rounding(1 + 1e-7)))


def test_other_weights_are_not_taken_for_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    @torch.no_grad()
    def restore(training: Training, saved: Any) -> None:
        saving.restore(training, saved)
        for each in (*training.model.parameters(), *training.average.parameters()):
            each.mul_(1 + 1e-7)

    monkeypatch.setattr(loop, "restore", restore)
    for claim in ("TL-RESUME-003", "TL-AVERAGE-002"):
        with pytest.raises(AssertionError):
            attack_of(by_id(claim))(bench=Bench(Rounding(1 + 2**-51)))


def test_steps_of_a_resumed_run_are_numbered_as_in_the_whole_run() -> None:
    straight = correct().run(saved_job())
    rows = table(correct().resume(straight, 5)).splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["6", "7", "8"]
