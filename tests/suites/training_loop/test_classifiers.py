"""A correct loop of a classifier, with one label for each example, and faults in it."""

import math
from collections.abc import Mapping
from contextlib import nullcontext
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import SkipTest

import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader

from pv.suites.training_loop.adapters.handwritten import HandWritten
from pv.suites.training_loop.adapters.usual import Classifier, classified
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.cases import EVALUATED, equal, unequal
from pv.suites.training_loop.claims.checks import require_rate
from pv.suites.training_loop.features import missing_features, restrict_job
from pv.suites.training_loop.job import Job, Report
from tests.suites.training_loop.planting import attack, contract

IMAGE = (1, 4, 4)


class Epochs(HandWritten):
    """Trains and evaluates in epochs; its optimizer holds all parameters, and its loss is a mean over examples."""

    features: Mapping[str, bool | str] = dict.fromkeys(
        ("sequences", "freeze", "accumulate", "cadence", "clip", "max_steps", "warmup"), False
    )
    not_claimed: Mapping[str, str] = {"TL-STEP-003": "it counts no steps"}
    divisor = 1
    trial = 0
    again = False
    restores = ("optimizer", "schedule", "random")
    has_own_generator = True
    on_training_data = False
    steps_rate = False

    def run(self, job: Job) -> Report:
        torch.manual_seed(job.seed)
        model = Classifier(job.model())
        kind = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[job.optimizer]
        optimizer: Any = kind(model.parameters(), lr=job.rate)
        factor = 0.5 if job.schedule == "linear" else 1.0
        rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: factor**epoch)
        loader: Any = DataLoader(classified(job.train, IMAGE), job.batch, shuffle=True)  # type: ignore[arg-type]
        held = classified(job.evaluated if job.eval_every else (), IMAGE)
        generator = torch.Generator() if self.has_own_generator else None
        tests: Any = DataLoader(held, job.eval_batch, generator=generator)  # type: ignore[arg-type]
        report, first, steps = Report(model=model), 0, -(-len(job.train) // job.batch)
        if job.resume:
            state = torch.load(job.resume)
            model.load_state_dict(state["model"])
            first = state["epoch"]
            for name, load in self.loads(optimizer, rate).items():
                if name in self.restores:
                    load(state[name])
        if self.trial and held:
            self.evaluate_set(model, list(tests)[: self.trial])
        for epoch in range(first + 1, job.epochs + 1):
            model.train()
            for x, y in loader:
                optimizer.zero_grad()
                (F.cross_entropy(model(x), y) / self.divisor).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                if self.steps_rate:
                    rate.step()
            if not self.steps_rate:
                rate.step()
            if held:
                if self.again and epoch == 1:
                    self.evaluate_set(model, list(tests)[:1])
                loss = self.evaluate_set(model, loader if self.on_training_data else tests)
                report.evaluations.append((steps * epoch, loss))
            if job.save_every:
                report.checkpoints[steps * epoch] = path = job.directory / f"{epoch}.pt"
                parts = {"optimizer": optimizer.state_dict(), "schedule": rate.state_dict()}
                parts |= {"model": model.state_dict(), "random": torch.get_rng_state()}
                torch.save(parts | {"epoch": epoch}, path)
        return report

    def expected_rate(self, job: Job, step: int, _: int) -> float:
        epoch = step // -(-len(job.train) // job.batch)
        return job.rate * 0.5**epoch if job.schedule == "linear" else job.rate

    @staticmethod
    def loads(optimizer: Any, rate: Any) -> dict[str, Any]:
        return {"optimizer": optimizer.load_state_dict, "schedule": rate.load_state_dict, "random": torch.set_rng_state}

    @torch.no_grad()
    def evaluate_set(self, model: Any, loader: Any) -> float:
        model.eval()
        losses = [(F.cross_entropy(model(x), y, reduction="sum").item(), len(y)) for x, y in loader]
        return sum(loss for loss, _ in losses) / sum(n for _, n in losses)


class Trial(Epochs):
    """Evaluates a first batch before it trains, to see early whether evaluations work."""

    trial = 1


@cache
def bench(kind: type[Epochs]) -> Bench:
    return Bench(kind())


MADE = [claim for claim in contract().falsifiers if not bench(Epochs).missing(claim.id, claim.options["needs"])]


@pytest.mark.parametrize("claim", MADE, ids=lambda claim: claim.id)
def test_no_claim_accuses_a_correct_classifier(claim: Any) -> None:
    attack(claim.id, bench(Epochs))


def test_claims_about_tokens_are_not_made_of_a_classifier() -> None:
    ids = {claim.id for claim in MADE}
    assert {"TL-GRAD-001", "TL-EVAL-002", "TL-RATE-001", "TL-RESUME-002", "TL-FREEZE-002"} <= ids
    assert not ids & {"TL-FREEZE-001", "TL-GRAD-002", "TL-MASK-001", "TL-PAD-001", "TL-RESUME-007"}
    assert bench(Epochs).missing("", ("masks",)).startswith("no masks: an example has one label")


def test_examples_of_a_classifier_that_is_declared_have_one_label() -> None:
    (first, *_), collate = restrict_job(Job(train=unequal(3)), ("sequences",)).train, classified
    assert (len(first.tokens), first.scored) == (2, 1)
    ((x, y),) = collate([first], IMAGE)
    assert x.shape == IMAGE and x.dtype == torch.float32 and y == first.tokens[1]
    with pytest.raises(SkipTest, match="name `sequences` as missing in `features`"):
        classified(equal(2))


class TrialOfBoth(Trial):
    """Evaluates the training data, too, each time."""

    def evaluate_set(self, model: Any, loader: Any) -> float:
        train = restrict_job(Job(train=unequal(6)), missing_features(self)).train
        super().evaluate_set(model, DataLoader(classified(train, IMAGE)))  # type: ignore[arg-type]
        return super().evaluate_set(model, loader)


class TrialAndWhole(Trial):
    """Evaluates all examples after the trial, before it trains."""

    def evaluate_set(self, model: Any, loader: Any) -> float:
        if isinstance(loader, list):
            held = classified(restrict_job(Job(train=EVALUATED), missing_features(self)).train, IMAGE)
            super().evaluate_set(model, DataLoader(held))  # type: ignore[arg-type]
        return super().evaluate_set(model, loader)


@pytest.mark.parametrize("kind", [Trial, TrialOfBoth, TrialAndWhole])
def test_trial_of_an_evaluation_before_the_training_is_no_evaluation(kind: type[Epochs]) -> None:
    attack("TL-EVAL-004", bench(kind))


@pytest.mark.parametrize("expected", [0.0, 0.5])
def test_first_rate_of_0_is_undecided_where_it_is_documented(expected: float) -> None:
    trainer = SimpleNamespace(expected_rate=lambda job, step, planned: expected)
    bench: Any = SimpleNamespace(lacks={}, trainer=trainer)
    run: Any = SimpleNamespace(job=None, steps=[SimpleNamespace(rate=0.0)])
    with nullcontext() if expected else pytest.raises(SkipTest, match="the first step has the rate 0"):
        require_rate(bench, run)


def test_schedule_that_is_undefined_after_its_end_is_not_accused() -> None:
    class Defined(Epochs):
        def expected_rate(self, job: Job, step: int, planned: int) -> float:
            return super().expected_rate(job, step, planned) * math.sqrt(planned - step) / math.sqrt(planned - step)

    attack("TL-RATE-001", Bench(Defined()))
    with pytest.raises(AssertionError, match="rates"):
        attack("TL-RATE-001", Bench(type("Faulty", (Defined,), {"steps_rate": True})()))


FAULTS: list[tuple[str, dict[str, Any], str]] = [
    ("TL-GRAD-001", {"divisor": 2}, "is 0.5 times the gradient of the token mean"),
    ("TL-EVAL-003", {"has_own_generator": False}, "each pass over a DataLoader"),
    ("TL-EVAL-004", {"on_training_data": True}, "it is an evaluation of training examples"),
    ("TL-EVAL-004", {"again": True}, "numbers of forwards in eval mode: {20: 3, 21: 3, 22: 2"),  # which is no trial
    ("TL-RATE-001", {"steps_rate": True}, "a per-epoch schedule that is advanced at every step"),
    ("TL-RESUME-002", {"restores": ("optimizer", "random")}, "it is a schedule that starts over"),
    ("TL-RESUME-003", {"restores": ("schedule", "random")}, "weights"),
    ("TL-FREEZE-002", {"features": {"freeze": True}}, "name `freeze` as missing in `features`"),
]


@pytest.mark.parametrize(("claim", "change", "text"), FAULTS)
def test_fault_of_a_classifier_is_found_and_named(claim: str, change: dict[str, Any], text: str) -> None:
    with pytest.raises(AssertionError, match=text):
        attack(claim, Bench(type("Faulty", (Epochs,), change)()))
