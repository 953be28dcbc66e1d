"""A claim holds only if it was tried: not for a run that does nothing, nor for two that do not differ in its matter."""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from pv.errors import NotClaimed
from pv.suites.training_loop import loop, network
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.together import falsify_weights_of_two_ranks
from pv.suites.training_loop.job import Job, Report
from pv.suites.training_loop.loop import Loop, planned_steps
from pv.suites.training_loop.network import Attention
from pv.suites.training_loop.run import Run
from tests.suites.training_loop.planting import attack, contract, correct, loop_of


class Idle(Loop):
    """Reads every setting, calls the callbacks, and takes no step."""

    def run(self, job: Job) -> Report:
        for field in fields(Job):
            getattr(job, field.name)
        model = job.model()
        events = ["train_begin", *["epoch_begin", "epoch_end"] * job.epochs, "train_end"]
        return Report(model=model, events=events, final_step=0, average=model, best_model=model if job.best else None)


IDLE = Bench(Idle())
OF_RUNS = [
    claim.id
    for claim in contract().falsifiers
    if not any(feature == "ranks" or feature.startswith("network") for feature in claim.options["needs"])
]


@pytest.mark.parametrize("claim", OF_RUNS)
def test_no_claim_holds_for_a_loop_that_takes_no_step(claim: str) -> None:
    with pytest.raises((AssertionError, SkipTest)):
        attack(claim, IDLE)


def at_the_end(job: Job) -> Job:
    return replace(job, eval_every=job.eval_every and planned_steps(job))


def without_numbers(job: Job, report: Report) -> None:
    report.logs = [{"step": row["step"], "loss": row["loss"]} for row in report.logs]


def without_losses(job: Job, report: Report) -> None:
    for row in report.logs:
        row.pop("loss", None)


UNSCALED = loop_of(lambda job: replace(job, scaler=job.scaler and False))
NEVER_NAN = loop_of(lambda job: replace(job, nan_evaluations=()))
CALM = loop_of(lambda job: replace(job, rate=job.rate and 0.01))


@pytest.mark.parametrize(
    ("kind", "claim", "reason"),
    [
        (
            loop_of(lambda job: replace(job, eval_every=3), features={"cadence": False}),
            "TL-EVAL-003",
            r"a run with `job\.eval_every` 0 has as many evaluations as a run with 1",
        ),
        (
            loop_of(lambda job: replace(job, save_every=job.save_every or 1)),
            "TL-SAVE-001",
            r"a run with `job\.save_every` 0 has as many checkpoints",
        ),
        (
            loop_of(lambda job: replace(job, workers=0)),
            "TL-DATA-006",
            r"`job\.workers` 2, no more processes or threads",
        ),
        (loop_of(lambda job: replace(job, pad_multiple=None)), "TL-PAD-001", "no row is longer than 8 tokens"),
        (loop_of(lambda job: replace(job, eval_batch=9)), "TL-EVAL-002", "every evaluation has one batch of 5"),
        (loop_of(at_the_end), "TL-EVAL-005", "no step is taken after an evaluation"),
        (UNSCALED, "TL-CLIP-003", "no gradient is scaled"),
        (UNSCALED, "TL-SCALER-001", "no gradient is scaled"),
        (UNSCALED, "TL-SCALER-002", "no gradient is scaled"),
        (loop_of(lambda job: replace(job, overflows=())), "TL-SCALER-001", "no gradient overflows"),
        (NEVER_NAN, "TL-KEEP-003", "no evaluation with a NaN loss"),
        (NEVER_NAN, "TL-BEST-002", "no evaluation with a NaN loss"),
        (Idle, "TL-EVAL-001", "in 0 steps, no evaluation is due"),
        (CALM, "TL-KEEP-002", "the best checkpoint is always one of the newest"),
        (CALM, "TL-BEST-003", "no two evaluations have the same loss"),
        (CALM, "TL-BEST-004", "the best step never comes before a cut"),
        (
            loop_of(lambda job: replace(job, rate=1e-30)),
            "TL-BEST-001",
            "no run has evaluations with different losses, so every step is the best",
        ),
        (loop_of(after=without_losses), "TL-RESUME-005", "the adapter reports no loss in its `logs`"),
        (loop_of(after=without_numbers), "TL-RESUME-006", "no number in its `logs` besides the loss"),
        (
            loop_of(lambda job: replace(job, tied=False)),
            "TL-RESUME-012",
            "two parameters also at the end of the uninterrupted run",
        ),
        (loop_of(lambda job: replace(job, train=job.train[:3])), "TL-MASK-001", "without scored tokens is never used"),
    ],
)
def test_claim_about_what_a_run_does_not_show_is_undecided(kind: type[Loop], claim: str, reason: str) -> None:
    with pytest.raises(SkipTest, match=reason):
        attack(claim, Bench(kind()))


def test_ranks_with_the_same_examples_leave_their_weights_undecided() -> None:
    class Alike(Bench):
        def ranks(self, job: Job, size: int) -> list[Run]:
            return [self.run(job)] * size

    with pytest.raises(SkipTest, match="both ranks have the same examples"):
        falsify_weights_of_two_ranks(Alike(Loop()))


def test_killed_run_that_refuses_every_checkpoint_is_undecided() -> None:
    class Killed(Bench):
        def kill(self, straight: Run, operation: int) -> Path | None:
            return None if operation else straight.job.directory

        def resume_run(self, straight: Run, place: Path, saved: Path, **others: Any) -> Run:
            raise OSError("the directory is locked")

    with pytest.raises(SkipTest, match="also the oldest: OSError: the directory is locked"):
        attack("TL-RESUME-011", Killed(Loop()))


@pytest.mark.parametrize(("claim", "times"), [("TL-CLIP-001", 5), ("TL-CLIP-003", 1)])
def test_step_that_is_left_out_for_its_long_gradient_is_not_clipped(
    claim: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    norms, update, clip = [0.0], loop.update, loop.clip

    def noted(parameters: Any, limit: float | None) -> float:
        norms.append(clip(parameters, limit))
        return norms[-1]

    def lenient(training: Any) -> float:
        limit = training.job.clip
        if limit is None or norms[-1] <= times * limit:
            return update(training)
        training.scaler.update()
        return 0.0

    monkeypatch.setattr(loop, "clip", noted)
    monkeypatch.setattr(loop, "update", lenient)
    with pytest.raises(
        AssertionError, match=r"0 steps are taken with a limit of 0\.[13], and . without one; it is a loop that skips"
    ):
        attack(claim, Bench(Loop()))


def test_row_that_begins_with_another_token_is_named() -> None:
    run = correct().run(Job(directory=Path(), train=()))
    with pytest.raises(SkipTest, match="begins with the token 40, which is the name of no example"):
        run.uncropped([40])


class Gated(Loop):
    """Has a network that begins with a gate of zeros, which hides what is below it."""

    def network(self) -> nn.Module:
        attention = Attention()
        with torch.no_grad():
            attention.norm.weight.zero_()
        return attention


def test_gate_of_zeros_is_no_missing_gradient() -> None:
    attack("TL-NETWORK-011", Bench(Gated()))


@pytest.mark.parametrize(
    ("claim", "name", "fault"),
    [
        ("TL-NETWORK-001", "causal", lambda square: square.tril(1)),
        ("TL-NETWORK-002", "visible", lambda mask: network.causal(torch.ones(1, *mask.shape[1:] * 2).bool())),
        ("TL-NETWORK-003", "logits_of", None),
    ],
)
def test_gate_of_zeros_hides_no_fault(claim: str, name: str, fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault is None:
        right = network.logits_of
        monkeypatch.setattr(nn.Module, "eval", lambda self: self.train())
        fault = right
    monkeypatch.setattr(network, name, fault)
    with pytest.raises(AssertionError):
        attack(claim, Bench(Gated()))


class Constant(Loop):
    def logits(self, network: nn.Module, rows: Sequence[Sequence[int]]) -> Sequence[Tensor]:
        return [torch.ones(len(row), 16) for row in rows]


class Unevaluated(Loop):
    def evaluate_network(self, network: nn.Module) -> None:
        pass


@pytest.mark.parametrize(
    ("kind", "claim", "error", "reason"),
    [
        *((Constant, f"TL-NETWORK-00{k}", SkipTest, "rows with other tokens have the same logits") for k in (1, 2, 3)),
        (Unevaluated, "TL-NETWORK-008", SkipTest, "runs no forward of the network"),
        (type("Thawed", (Loop,), {"frozen": ()}), "TL-NETWORK-004", NotClaimed, "no frozen parts"),
        (type("Untied", (Loop,), {"tied": ()}), "TL-NETWORK-012", NotClaimed, "no tied weights"),
    ],
)
def test_claim_about_what_a_network_does_not_show_does_not_hold(
    kind: type[Loop], claim: str, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        attack(claim, Bench(kind()))


class Foreign(Loop):
    """Makes the optimizer of a second network."""

    def network_optimizer(self, network: nn.Module) -> Optimizer:
        return super().network_optimizer(Attention())


@pytest.mark.parametrize(("claim", "error"), [("TL-NETWORK-005", AssertionError), ("TL-NETWORK-006", SkipTest)])
def test_parameter_of_another_network_is_named(claim: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"norm\.weight of another network"):
        attack(claim, Bench(Foreign()))
