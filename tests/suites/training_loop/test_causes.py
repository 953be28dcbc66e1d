"""The cause that a failing claim names is the fault that was planted, and a correct loop is not accused."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest import SkipTest

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pv.contract.claims import Falsifier
from pv.suites.training_loop import loop, plan
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims import data
from pv.suites.training_loop.claims.cases import unequal
from pv.suites.training_loop.job import IGNORED, Job, Report
from pv.suites.training_loop.probe import PAD, token_loss
from pv.suites.training_loop.saving import Training
from tests.suites.training_loop.planting import attack_of, by_id, claims, planted, refutation

CAUSES = [
    # Gradients
    ("shifts-twice", "TL-GRAD-001", "it is that of labels shifted twice, up to a factor"),
    ("sum-of-means", "TL-GRAD-001", "the sum of the micro-batches' means, not divided by their number"),
    ("gradient-kept", "TL-GRAD-001", "it is its own plus the gradient of the step before, which was not reset"),
    ("window-of-means", "TL-GRAD-002", "it is the mean of the micro-batches' means"),
    ("mean-over-examples", "TL-GRAD-002", "it is the mean of the examples' means"),
    ("divides-by-all-tokens", "TL-GRAD-002", "divided by all positions, padding included"),
    ("planned-window", "TL-GRAD-003", "by the planned number of micro-batches, not by those of the window"),
    ("first-label-counted", "TL-GRAD-005", "it is divided by all labels, also those that are not predicted"),
    ("pads-on-the-left", "TL-GRAD-005", "with the first tokens scored, which padding on the left precedes"),
    ("padding-scored", "TL-PAD-001", "it is that with the padding scored"),
    ("never-clips", "TL-CLIP-001", "clipped after the step, or not at all"),
    ("clips-all-but-the-first", "TL-CLIP-001", "clipped, but for embed.weight"),
    ("clips-scaled-gradient", "TL-CLIP-003", "`unscale_` is called after the clipping"),
    ("rate-of-skipped-step", "TL-SCALER-001", "a schedule that moves on with the skipped step"),
    ("gradient-stays-after-overflow", "TL-SCALER-001", "a gradient that is not cleared after the skipped step"),
    ("resume-counts-good-steps-anew", "TL-SCALER-002", "a count of good steps that is not restored"),
    ("scale-keeps-growing", "TL-SCALER-003", "a count of good steps that is not reset"),
    ("end-token-not-scored", "TL-END-001", "without the last token of each row, which is counted"),
    ("crops-one-more", "TL-CROP-001", "it is that of rows cropped to 3 tokens, not to 4"),
    ("empty-micro-batch-counted", "TL-MASK-001", "by the scored tokens and one for each micro-batch without them"),
    ("empty-step-repeats", "TL-MASK-002", "it is the gradient of the step before"),
    ("thaws", "TL-FREEZE-001", "it is trained like the others"),
    ("last-parameter-left-out", "TL-FREEZE-003", "it is not in the optimizer"),
    ("clips-micro-batches", "TL-CLIP-001", "clipped after each of them"),
    ("logs-norm-after-clipping", "TL-CLIP-002", "it is the norm after clipping"),
    # Order and steps
    ("one-order", "TL-DATA-002", "it does not depend on the epoch"),
    ("order-without-seed", "TL-DATA-003", "it is an order that the seed does not determine"),
    ("no-partial-step", "TL-DATA-004", "the last, incomplete window"),
    ("accumulation-ignored", "TL-STEP-001", "it is a step for each micro-batch"),
    ("counts-micro-batches", "TL-STEP-002", "it is max_steps in micro-batches"),
    ("counts-one-more", "TL-STEP-003", "it is one more than the steps taken"),
    ("stops-late", "TL-STOP-001", "it is a stop that takes effect when the epoch ends"),
    ("step-end-lost", "TL-EVENT-002", "it is `step_end` called"),
    ("drop-last", "TL-DATA-001", "it is without the last, incomplete batch"),
    ("window-dropped", "TL-DATA-001", "it is without the last, incomplete window"),
    ("order-of-seed-plus-epoch", "TL-DATA-005", "an order depends on seed + epoch only"),
    ("dropout-without-seed", "TL-DATA-003", "same examples, another gradient"),
    ("steps-twice", "TL-STEP-001", "it is a second step of the optimizer without a micro-batch (step 2)"),
    # Rates and decay
    ("rate-late", "TL-RATE-001", "it is the rate of the step before"),
    ("rate-per-micro-batch", "TL-RATE-001", "it is a schedule that advances with every micro-batch"),
    ("decay-from-the-first-step", "TL-RATE-001", "its decay is counted from the first step"),
    ("bias-decays", "TL-DECAY-001", "head.bias has the weight decay 0.1, not 0.0"),
    ("decay-in-the-gradient", "TL-DECAY-002", "a decay that is added to the gradient"),
    ("schedules-first-group", "TL-RATE-003", "it is a schedule of the first group alone"),
    ("groups-joined", "TL-RATE-003", "it is the rate of the first group in every group"),
    ("restores-one-rate", "TL-RATE-004", "it is the rate of the first group in every group"),
    # Logs, evaluations and averages
    ("logs-nan", "TL-LOG-005", "it is 0/0"),
    ("counts-last-micro-batch", "TL-LOG-006", "it is the tokens of the last micro-batches alone"),
    ("evaluates-late", "TL-EVAL-007", "one evaluation every 3 steps"),
    ("evaluation-draws-numbers", "TL-EVAL-003", "it is random numbers that evaluations change"),
    ("average-left-in-place", "TL-EVAL-003", "it is the running average left in the model"),
    ("evaluation-in-training-mode", "TL-EVAL-004", "it is an evaluation in training mode"),
    ("trains-on-evaluated", "TL-EVAL-006", "they are in the training data"),
    ("saves-late", "TL-SAVE-002", "it is a first checkpoint at twice the cadence"),
    ("keeps-by-name", "TL-KEEP-001", "it is those whose names sort last as text"),
    ("removes-best", "TL-KEEP-002", "the best is removed when it is old"),
    ("logs-next-rate", "TL-RATE-002", "it is the rate of the next step"),
    ("logs-sum-over-tokens", "TL-LOG-001", "it is the sum over the tokens, not divided"),
    ("logs-last-micro-batch", "TL-LOG-002", "it is that of the last micro-batch"),
    ("logs-sum-of-micro-batches", "TL-LOG-002", "it is the token mean times the micro-batches of the window"),
    ("logs-last-step", "TL-LOG-003", "it is that of the last step"),
    ("log-keeps-its-tokens", "TL-LOG-003", "/ the tokens of the whole run"),
    ("logs-mean-of-means", "TL-LOG-004", "it is the mean of the steps' means"),
    ("evaluation-by-examples", "TL-EVAL-001", "it is the sum over the tokens / the number of examples"),
    ("evaluation-mean-of-means", "TL-EVAL-002", "it is the mean of the batches' means"),
    ("greatest-is-best", "TL-BEST-001", "it is the greatest loss"),
    ("nan-is-best", "TL-BEST-002", "an evaluation with a NaN loss"),
    ("tie-is-best", "TL-BEST-003", "a tie replaces the best"),
    ("best-has-other-weights", "TL-BEST-005", "the weights of the best checkpoint have the loss"),
    ("average-before-step", "TL-AVERAGE-001", "so it is updated before the step"),
    ("average-never", "TL-AVERAGE-001", "the weights at the start: it is never updated"),
    # Resume
    ("resume-starts-epoch-over", "TL-RESUME-001", "from its start"),
    ("resume-replays", "TL-RESUME-001", "of which some before the cut is replayed: 1 step"),
    ("resume-without-schedule", "TL-RESUME-002", "the schedule of a run that has taken 0 steps (last_epoch 0)"),
    ("resume-without-moments", "TL-RESUME-003", "another state of the optimizer: embed.weight.step (1, not 2)"),
    ("resume-without-window", "TL-RESUME-005", "it is the mean over the steps after the cut only"),
    ("resume-counts-tokens-anew", "TL-RESUME-006", "it is tokens counted from 0 after the cut"),
    ("resume-without-best", "TL-BEST-004", "the least loss before it is forgotten"),
    ("resume-without-average", "TL-AVERAGE-002", "starts anew with the weights of the checkpoint"),
    ("resume-without-scale", "TL-SCALER-002", "is 2 times that of the run that was not cut"),
    ("resume-without-moments", "TL-RESUME-003", "it is the state of a new optimizer"),
    ("resume-without-random-state", "TL-RESUME-004", "it is other random numbers"),
    ("resume-newest-by-name", "TL-RESUME-008", "from the checkpoint of step 9, whose name sorts last as text"),
    ("resume-loses-epoch", "TL-RESUME-008", "it is a run without the epoch that begins after the cut"),
    ("saves-in-place", "TL-RESUME-013", "it is a checkpoint that is written in place"),
    ("unties", "TL-RESUME-012", "a parameter of its own"),
    # The network
    ("head-copies-the-embedding", "TL-NETWORK-012", "it is a copy in place of a tied weight"),
    ("use-detached", "TL-NETWORK-012", "another use is detached"),
    ("frozen-table-rescaled", "TL-NETWORK-013", "position.weight has requires_grad False and changes"),
    ("frozen-part-in-training-mode", "TL-NETWORK-014", "position is frozen, and in training mode"),
    ("sees-next-token", "TL-NETWORK-001", "is replaced, and the logits of the earlier positions"),
    ("sees-padding", "TL-NETWORK-002", ": padding is seen"),
    ("counts-padding", "TL-NETWORK-002", ": positions count the padding"),
    ("dropout-in-eval-mode", "TL-NETWORK-003", "dropout is active"),
    ("trains-frozen-part", "TL-NETWORK-004", "position.weight is to be frozen"),
    ("optimizer-holds-frozen", "TL-NETWORK-005", "position.weight is frozen, and the optimizer holds it"),
    ("bias-decays", "TL-NETWORK-006", "norm.weight has the weight decay 0.1"),
    ("parameters-in-a-set", "TL-NETWORK-007", "a saved state is loaded by position"),
    ("evaluation-trains-frozen-part", "TL-NETWORK-008", "position is in training mode"),
    ("recomputes-with-other-dropout", "TL-NETWORK-009", "other numbers are drawn"),
    ("loss-in-bfloat16", "TL-NETWORK-010", "the loss is computed in torch.bfloat16"),
    ("frozen-part-cuts-the-graph", "TL-NETWORK-011", "scale is trained and has no gradient"),
]


@pytest.mark.parametrize(("mutant", "claim", "cause"), CAUSES, ids=lambda value: value if "-" in value else "")
def test_cause_is_named(mutant: str, claim: str, cause: str) -> None:
    assert cause in refutation(mutant, claim)


def input_tokens(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    ids = batch["input_ids"]
    labels = ids[:, :-1].masked_fill(batch["labels"][:, 1:] == IGNORED, IGNORED)
    return cross_entropy(model(ids)[:, :-1].flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")


def padding_of_shifted_labels(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    ids, real = batch["input_ids"].clone(), batch["attention_mask"]
    ids[range(len(ids)), real.sum(1) - 1] = PAD
    return token_loss(model(ids), batch["labels"].masked_fill(real == 0, PAD), "sum")


backward, begin = loop.backward, loop.begin


def in_eval_mode(training: Training, window: Any) -> Any:
    training.model.eval()
    return backward(training, window)


def from_above_zero(job: Job, done: int, planned: int) -> float:
    return (done + 1) / job.warmup if done < job.warmup else plan.factor(job, done, planned)


def per_micro_batch(job: Job, done: int, planned: int) -> float:
    return from_above_zero(job, min(done * job.accumulate, planned), planned)


def planned_per_micro_batch(job: Job, done: int, planned: int) -> float:
    return plan.factor(job, done, planned * job.accumulate)


def shared_average(job: Job) -> Training:
    training: Training = begin(job)
    training.average = training.model
    return training


def seeded_anew(job: Job) -> Training:
    training: Training = begin(job)
    torch.manual_seed(job.seed)
    return training


def from_batches_as_examples(job: Job, done: int) -> Any:
    """Go on in the cut epoch after as many examples as there were batches."""
    steps = len(plan.epoch_windows(job, 0))
    for epoch in range(done // steps, job.epochs):
        rows = plan.order(len(job.train), job.seed, epoch)
        start = done % steps * job.accumulate if epoch == done // steps else 0
        yield plan.windows(plan.batches(rows[start:], job.batch), job.accumulate)


@pytest.mark.parametrize(
    ("name", "fault", "claim", "cause"),
    [
        ("loss_sum", input_tokens, "TL-GRAD-001", "labels that are the input tokens, not the next ones"),
        ("loss_sum", padding_of_shifted_labels, "TL-PAD-001", "the padding of labels shifted by the loop scored"),
        ("backward", in_eval_mode, "TL-DATA-001", "it is a training in eval mode"),
        ("factor", per_micro_batch, "TL-RATE-001", "a schedule that advances with every micro-batch"),
        ("factor", planned_per_micro_batch, "TL-RATE-001", "planned for as many steps as there are micro-"),
        ("factor", planned_per_micro_batch, "TL-RATE-005", "planned for as many steps as there are micro-"),
        ("remaining", from_batches_as_examples, "TL-RESUME-001", "the number of batches, taken for one of examples"),
        ("begin", shared_average, "TL-AVERAGE-001", "the average shares their storage"),
        ("begin", seeded_anew, "TL-RESUME-004", "other random numbers, those of the start of the run"),
    ],
)
def test_cause_that_no_mutant_has_is_named(
    name: str, fault: Any, claim: str, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, name, fault)
    with pytest.raises(AssertionError, match=cause):
        attack_of(by_id(claim))(bench=Bench(loop.Loop()))


def next_epoch_in_its_place(job: Job, done: int) -> Any:
    """Leave out incomplete windows, and take as many steps as planned."""
    size = job.batch * job.accumulate
    full, planned, epoch = len(job.train) // size * size, plan.planned_steps(job), 0
    while done < planned:
        rows = plan.order(len(job.train), job.seed, epoch)[:full]
        yield plan.windows(plan.batches(rows, job.batch), job.accumulate)[: planned - done]
        done, epoch = done + full // size, epoch + 1


def test_window_that_the_next_epoch_replaces_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "remaining", next_epoch_in_its_place)
    attack: Any = data.falsify_each_example_once_an_epoch
    with pytest.raises(AssertionError, match="incomplete window of each epoch: the next epoch begins in its place"):
        attack.hypothesis.inner_test(Bench(loop.Loop()), train=unequal(3), batch=1, accumulate=2, epochs=1)


@pytest.mark.parametrize("wrong", ["evaluation-mean-of-means", "evaluation-drops-last"])
def test_a_checkpoint_is_not_blamed_for_a_wrong_loss_that_was_reported(wrong: str) -> None:
    attack_of(by_id("TL-BEST-005"))(bench=planted(wrong))


def test_data_that_draw_nothing_leave_the_claim_about_them_undecided() -> None:
    class Still(loop.Loop):
        def run(self, job: Job) -> Report:
            return super().run(replace(job, noise=False) if job.noise else job)

    with pytest.raises(SkipTest, match=r"with `job\.noise` the data draw no random numbers"):
        attack_of(by_id("TL-RESUME-007"))(bench=Bench(Still()))


@claims("rates")
def test_a_warmup_that_begins_above_zero_is_no_fault(claim: Falsifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "factor", from_above_zero)
    attack_of(claim)(bench=Bench(loop.Loop()))


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
        def network_loss(
            self, network: nn.Module, rows: Sequence[Sequence[int]], *, checkpointing: bool, autocast: bool
        ) -> Tensor:
            return super().network_loss(network, rows, checkpointing=False, autocast=False)

    with pytest.raises(SkipTest, match=r"turn (checkpointing|autocast) on"):
        attack_of(by_id(claim))(bench=Bench(Plain()))


def test_a_scale_that_hardly_grows_leaves_the_claim_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    def rarely(job: Job) -> Training:
        training: Training = begin(job)
        training.scaler.set_growth_interval(2000)
        return training

    monkeypatch.setattr(loop, "begin", rarely)
    with pytest.raises(SkipTest, match=r"the scale grows 0 times.*growth interval of at most 4"):
        attack_of(by_id("TL-SCALER-003"))(bench=Bench(loop.Loop()))
