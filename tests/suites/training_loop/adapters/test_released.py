"""Adapters of released trainers: their loops are whole, and an own loss, sampler or module is under attack."""

import importlib
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest import SkipTest

import pytest
import torch
from torch import nn

from pv.suites.training_loop.adapters import NoAdapter, adapted
from pv.suites.training_loop.features import missing_features
from pv.suites.training_loop.job import Job, Trainer
from pv.suites.training_loop.probe import token_loss
from tests.suites.training_loop.conftest import Benches, Check, Jobs, Ratios
from tests.suites.training_loop.planting import attack

NEEDS = {"accelerate": "torchdata", "lightning": "torchdata", "trl": "datasets"}
"""What an extra has beside the library that it is named for."""
EVENTS = ("train_begin", *("epoch_begin", "epoch_end") * 2, "train_end")


def library(name: str) -> Any:
    """Return a library, or skip the test if it or what its extra needs is not installed."""
    extra = "pytorch-ignite" if name == "ignite" else name
    for package in (NEEDS.get(name, name), name):
        result = pytest.importorskip(package, reason=f"install it with `pip install 'pv-contracts[{extra}]'`")
    return result


def adapter(name: str, kind: str) -> Any:
    library(name)
    return getattr(importlib.import_module(f"pv.suites.training_loop.adapters.{name}"), kind)


def derive(name: str, trainer: str) -> Trainer:
    """Return the adapter of a class of a library, as of one that a user derives from it."""
    return adapted(getattr(library(name), trainer))


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (lambda: adapter("accelerate", "Accelerate")(), {}),
        (lambda: adapter("accelerate", "TokensAccelerate")(), {}),
        (lambda: adapter("accelerate", "StatefulAccelerate")(), {}),
        (lambda: derive("trl", "SFTTrainer"), {"unequal": True}),
    ],
)
def test_run_is_whole(make: Callable[[], Any], settings: Any, bench: Benches, job: Jobs, assert_whole: Check) -> None:
    assert_whole(bench(make()).run(job(accumulate=2, epochs=2, eval_every=1, save_every=1, **settings)))


def test_run_of_lightning_is_whole_with_logs_and_events(bench: Benches, job: Jobs, assert_whole: Check) -> None:
    run = bench(adapter("lightning", "Lightning")()).run(job(accumulate=2, epochs=2, eval_every=1, save_every=1))
    assert_whole(run)
    assert [row["step"] for row in run.logs] == [1, 2, 3, 4]
    assert run.events == EVENTS


@pytest.mark.parametrize(("name", "kind", "steps"), [("fastai", "Fastai", [2, 4]), ("ignite", "Ignite", [1, 2, 3, 4])])
def test_run_has_gradients_checkpoints_and_events(
    name: str, kind: str, steps: list[int], bench: Benches, job: Jobs, gradient_ratios: Ratios
) -> None:
    run = bench(adapter(name, kind)()).run(job(accumulate=2, epochs=2, eval_every=1, save_every=1))
    assert gradient_ratios(run) == pytest.approx([1.0] * 4, rel=1e-9 if name == "ignite" else 1e-6)
    assert [step for step, _ in run.evaluations] == sorted(run.checkpoints) == steps
    assert run.events == EVENTS


def test_run_of_transformers_is_whole_with_logs_and_events(bench: Benches, job: Jobs, assert_whole: Check) -> None:
    settings = job(unequal=True, accumulate=2, epochs=2, eval_every=1, save_every=1, clip=1e9)
    run = bench(adapter("transformers", "Transformers")()).run(settings)
    assert_whole(run)
    assert [row["step"] for row in run.logs if {"loss", "rate", "norm"} <= row.keys()] == [1, 2, 3, 4]
    assert (run.events[0], run.events.count("step_end")) == ("train_begin", 4)


@pytest.mark.parametrize(
    ("name", "kind", "after", "settings"),
    [
        *(("accelerate", f"{kind}Accelerate", 2, {"schedule": "linear"}) for kind in ("", "Tokens", "Stateful")),
        ("fastai", "Fastai", 4, {"epochs": 2, "schedule": "linear", "warmup": 2}),
        ("ignite", "Ignite", 4, {"epochs": 2, "schedule": "linear"}),
        ("lightning", "Lightning", 2, {}),
    ],
)
def test_resumed_run_goes_on(name: str, kind: str, after: int, settings: Any, bench: Benches, job: Jobs) -> None:
    subject = bench(adapter(name, kind)())
    straight = subject.run(job(save_every=1, **settings))
    again = subject.resume(straight, after)
    assert [step.rate for step in again.steps] == [step.rate for step in straight.steps[after:]]
    if name == "fastai":  # it has another order
        assert [step.rate for step in straight.steps[:3]] == pytest.approx([0.0, 0.25, 0.5])
    else:
        assert [step.names for step in again.steps] == [step.names for step in straight.steps[after:]]


@pytest.mark.parametrize("claim", ["TL-DATA-004", "TL-STEP-001", "TL-RATE-001"])
def test_windows_of_ignite_that_go_on_over_the_ends_of_epochs_are_not_accused(claim: str, bench: Benches) -> None:
    subject = bench(adapter("ignite", "Ignite")())
    assert "no short_windows" in subject.missing("TL-GRAD-003", ("short_windows",))
    attack(claim, subject)


def test_best_and_newest_checkpoints_of_ignite_are_those_of_their_steps(bench: Benches, job: Jobs) -> None:
    settings = job(epochs=2, eval_every=1, save_every=1, keep=1, best=True, rate=40.0)
    run = bench(adapter("ignite", "Ignite")()).run(settings)
    assert set(run.checkpoints) == {min(run.evaluations, key=lambda evaluation: evaluation[1])[0], 8}


@pytest.mark.parametrize(("name", "kind"), [("fastai", "Fastai"), ("ignite", "Ignite")])
def test_run_that_is_stopped_or_of_max_steps_has_as_many_steps(name: str, kind: str, bench: Benches, job: Jobs) -> None:
    subject = bench(adapter(name, kind)())
    assert len(subject.run(job(accumulate=2, epochs=2, stop_at=1)).steps) == 1
    with pytest.raises(SkipTest, match="takes a number of epochs") if name == "fastai" else nullcontext():
        assert len(subject.run(job(accumulate=2, max_steps=3)).steps) == 3


def test_resumed_run_of_transformers_ends_as_the_straight_one(bench: Benches, job: Jobs) -> None:
    subject = bench(adapter("transformers", "Transformers")())
    straight = subject.run(job(epochs=2, save_every=1, optimizer="adamw", rate=0.01, schedule="linear", tied=True))
    again = subject.resume(straight, 3)
    assert [step.names for step in again.steps] == [step.names for step in straight.steps[3:]]
    assert [step.rate for step in again.steps] == [step.rate for step in straight.steps[3:]]
    assert all((again.weights[name] == weight).all() for name, weight in straight.weights.items())
    assert again.tied


def test_loop_for_variable_samples_divides_by_their_tokens(bench: Benches, job: Jobs, gradient_ratios: Ratios) -> None:
    kinds = (adapter("accelerate", kind) for kind in ("Accelerate", "TokensAccelerate"))
    means, tokens = (gradient_ratios(bench(kind()).run(job(unequal=True, accumulate=2))) for kind in kinds)
    assert means != pytest.approx([1.0, 1.0], rel=1e-2)
    assert tokens == pytest.approx([1.0, 1.0], rel=1e-9)


@pytest.mark.parametrize(("name", "trainer"), [("transformers", "Trainer"), ("trl", "SFTTrainer")])
def test_first_labels_do_not_count(name: str, trainer: str, bench: Benches, job: Jobs, gradient_ratios: Ratios) -> None:
    run = bench(derive(name, trainer)).run(job(first=True, accumulate=2))
    assert gradient_ratios(run) == pytest.approx([1.0, 1.0], rel=1e-4)


def test_own_loss_of_transformers_is_under_attack(bench: Benches, job: Jobs, gradient_ratios: Ratios) -> None:
    plain = library("transformers").Trainer

    class MeanOfMeans(plain):  # type: ignore[misc]
        """Ignores the number of items, as trainers before 4.46 did."""

        def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
            return model(**inputs).loss / self.args.gradient_accumulation_steps

    right, wrong = (bench(adapted(kind)).run(job(unequal=True, accumulate=2)) for kind in (plain, MeanOfMeans))
    assert gradient_ratios(right) == pytest.approx([1.0, 1.0], rel=1e-5)
    assert gradient_ratios(wrong) != pytest.approx([1.0, 1.0], rel=1e-2)


def test_trainer_of_a_classifier_is_given_one_label_an_example(
    bench: Benches, job: Jobs, gradient_ratios: Ratios
) -> None:
    plain = library("transformers").Trainer

    class Own(plain):  # type: ignore[misc]
        """Has the loss of the documentation of Trainer."""

        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
            labels = inputs.pop("labels")
            outputs = model(**inputs)
            logits = outputs.get("logits")
            loss = nn.CrossEntropyLoss()(logits.view(-1, logits.shape[-1]), labels.view(-1))
            return (loss, outputs) if return_outputs else loss

    for kind in (plain, Own):
        trainer = adapter("transformers", "Transformers")(kind, features={"sequences": False})
        run = bench(trainer).run(job(unequal=True, epochs=2, eval_every=1, clip=1e9))
        assert gradient_ratios(run) == pytest.approx([1.0] * 8, rel=1e-5)
        assert len(run.evaluations) == 8


def test_own_loss_of_trl_is_under_attack(bench: Benches, job: Jobs, gradient_ratios: Ratios) -> None:
    class Halved(library("trl").SFTTrainer):  # type: ignore[misc]
        def compute_loss(self, *arguments: Any, **named: Any) -> Any:
            return super().compute_loss(*arguments, **named) / 2

    assert gradient_ratios(bench(adapted(Halved)).run(job())) == pytest.approx([0.5] * 4, rel=1e-4)


def test_own_sampler_is_under_attack(bench: Benches, job: Jobs) -> None:
    class Alternating(library("transformers").Trainer):  # type: ignore[misc]
        """Trains on every second example only."""

        def _get_train_sampler(self, *_: Any) -> Any:
            return range(0, len(self.train_dataset), 2)

    run = bench(adapted(Alternating)).run(job())
    assert [step.names for step in run.steps] == [(1, 3), (5, 7)]


def test_own_collator_gets_rows_of_a_dataset(bench: Benches, job: Jobs) -> None:
    seen: list[set[str]] = []

    def collator(rows: list[dict[str, list[int]]]) -> Any:
        seen.extend(set(row) for row in rows)
        return {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}

    trainer = adapter("transformers", "Transformers")(collator=collator)
    assert len(bench(trainer).run(job()).steps) == 4
    assert seen[0] == {"input_ids", "attention_mask", "labels"}
    assert "noise" in missing_features(trainer)


def test_own_module_is_attacked_and_has_to_place_the_probe(bench: Benches, job: Jobs, gradient_ratios: Ratios) -> None:
    class Own(library("lightning").LightningModule):  # type: ignore[misc]
        """A module as a user writes it, with a loss that is twice too large."""

        def __init__(self, rate: float) -> None:
            super().__init__()
            self.rate, self.network = rate, nn.Identity()

        def training_step(self, batch: Any, index: int) -> Any:
            return 2 * token_loss(self.network(batch["input_ids"]), batch["labels"])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=self.rate)

    class Adapter(adapter("lightning", "Lightning")):  # type: ignore[misc]
        def module(self, job: Job) -> Own:
            module = Own(job.rate)
            module.network = job.model()
            return module

    assert gradient_ratios(bench(adapted(Adapter)).run(job())) == pytest.approx([2.0] * 4, rel=1e-6)
    with pytest.raises(NoAdapter, match=r"(?s)Own is a LightningModule.*module.network = job.model\(\)"):
        adapted(Own)


def test_trainer_of_another_task_is_refused() -> None:
    with pytest.raises(NoAdapter, match="DPOTrainer"):
        derive("trl", "DPOTrainer")
