"""Correct loops whose windows go on over the ends of epochs, or that count steps alone; and faults in them."""

import random
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice, repeat
from pathlib import Path
from typing import Any, cast
from unittest import SkipTest

import pytest
import torch

from pv.contract.model import Falsifier
from pv.suites.training_loop.adapters.handwritten import HandWritten
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.cases import equal
from pv.suites.training_loop.claims.data import falsify_every_batch_reaches_the_optimizer
from pv.suites.training_loop.features import restrict_job
from pv.suites.training_loop.job import Example, Job, padded
from pv.suites.training_loop.probe import Probe, token_loss
from tests.suites.training_loop.planting import attack, contract, loop_of

Batch = list[Example]
every_batch: Any = cast("Any", falsify_every_batch_reaches_the_optimizer).hypothesis.inner_test


class Stream(HandWritten):
    """A loop over an endless stream, whose batches are full: it makes passes over the data, and counts only steps."""

    features: Mapping[str, bool | str] = {"loss": True, **dict.fromkeys(("epochs", "schedule", "evaluate"), False)}
    not_claimed = dict.fromkeys(("TL-LOG-003", "TL-LOG-004", "TL-LOG-005"), "the loop logs the loss of the last step")

    def build(self, job: Job, model: Probe) -> None:
        torch.manual_seed(job.seed)
        kind = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[job.optimizer]
        self.model, self.steps = model, 0
        self.optimizer: Any = kind([weight for weight in model.parameters() if weight.requires_grad], lr=job.rate)

    def order(self, epoch: int) -> Batch:
        return random.Random(f"{self.job.seed} {epoch}").sample(self.job.train, len(self.job.train))

    def stream(self) -> Iterator[Batch]:
        rows = (example for epoch in range(99) for example in self.order(epoch))
        while batch := list(islice(rows, self.job.batch)):
            yield batch

    def planned(self) -> int:
        assert self.job.max_steps is not None
        return self.job.max_steps

    def windows(self) -> Iterator[list[Batch]]:
        size, stream = self.job.accumulate, self.stream()
        for _ in islice(stream, self.steps * size):
            pass
        while self.steps < self.planned():
            yield list(islice(stream, size))

    def update(self, window: list[Batch]) -> None:
        self.optimizer.zero_grad()
        rows = [padded(batch) for batch in window]
        scored = max(sum(int((tensors["labels"][:, 1:] != -100).sum()) for tensors in rows), 1)
        losses = [token_loss(self.model(tensors["input_ids"]), tensors["labels"], "sum") / scored for tensors in rows]
        for loss in losses:
            loss.backward()  # type: ignore[no-untyped-call]
        if self.job.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.job.clip)
        self.optimizer.step()
        self.steps += 1
        self.last = sum(loss.item() for loss in losses)

    def log(self) -> dict[str, float]:
        return {"loss": self.last}

    def save(self, path: Path) -> None:
        parts = (self.model.state_dict(), self.optimizer.state_dict(), self.steps, torch.get_rng_state())
        torch.save(parts, path)

    def load(self, path: Path) -> int:
        model, optimizer, self.steps, state = torch.load(path)
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)
        torch.set_rng_state(state)
        return self.steps


class Drawn(Stream):
    """Draws each example anew, so that there is not even a pass over the data."""

    def stream(self) -> Iterator[Batch]:
        draw = random.Random(self.job.seed)
        for _ in repeat(None):
            yield draw.choices(self.job.train, k=self.job.batch)


class Crossing(Stream):
    """A loop with epochs, whose last batches are small, and whose windows are all full: the rest of a run is left."""

    features: Mapping[str, bool | str] = {"short_windows": False, "epochs": True}

    def stream(self) -> Iterator[Batch]:
        for epoch in range(99):
            rows = self.order(epoch)
            yield from (rows[i : i + self.job.batch] for i in range(0, len(rows), self.job.batch))

    def planned(self) -> int:
        batches = self.job.epochs * -(-len(self.job.train) // self.job.batch)
        return self.job.max_steps or batches // self.job.accumulate


@cache
def bench(kind: type[Stream]) -> Bench:
    return Bench(kind())


def claims_of(kind: type[Stream]) -> list[Falsifier]:
    return [claim for claim in contract().falsifiers if not bench(kind).missing(claim.id, claim.options["needs"])]


CASES = [(kind, claim) for kind in (Stream, Drawn, Crossing) for claim in claims_of(kind)]


@pytest.mark.parametrize(("kind", "claim"), CASES, ids=[f"{kind.__name__}-{claim.id}" for kind, claim in CASES])
def test_no_claim_accuses_a_correct_stream(kind: type[Stream], claim: Falsifier) -> None:
    attack(claim.id, bench(kind))


@pytest.mark.parametrize("kind", [Stream, Drawn, Crossing])
def test_claims_about_short_windows_are_not_made(kind: type[Stream]) -> None:
    ids = {claim.id for claim in claims_of(kind)}
    assert not ids & {"TL-GRAD-003", "TL-GRAD-004"} and {"TL-GRAD-002", "TL-STEP-002", "TL-RESUME-001"} <= ids
    assert ("TL-DATA-001" in ids) is ("TL-STEP-001" in ids) is (kind is Crossing)


def test_loop_without_epochs_is_given_the_steps_that_they_take() -> None:
    seven = Job(train=equal(7), epochs=2, accumulate=2)
    assert [restrict_job(seven, lacks).max_steps for lacks in ((), ("epochs",))] == [None, 4]
    assert restrict_job(seven, ("epochs",), ranks=2).max_steps == 2
    assert restrict_job(Job(train=equal(7), max_steps=3), ("epochs",)).max_steps == 3


class Dropping(Crossing):
    """Drops the last, smaller batch of each pass."""

    def stream(self) -> Iterator[Batch]:
        return (batch for batch in super().stream() if len(batch) == self.job.batch)


class Stepping(Crossing):
    """Takes a step for each micro-batch."""

    def windows(self) -> Iterator[list[Batch]]:
        return ([batch] for window in super().windows() for batch in window)

    def planned(self) -> int:
        return self.job.max_steps or self.job.epochs * -(-len(self.job.train) // self.job.batch)


class Short(Stream):
    """Has a micro-batch less in each window than it is asked for."""

    def windows(self) -> Iterator[list[Batch]]:
        return (window[: max(1, len(window) - 1)] for window in super().windows())


def test_short_windows_of_a_loop_that_is_said_to_have_none_leave_the_claim_undecided() -> None:
    declared = loop_of(features={"short_windows": False})
    with pytest.raises(SkipTest, match="names `short_windows` as missing"):
        every_batch(bench=Bench(declared()), train=equal(7), batch=2, accumulate=3, epochs=2)


class Leaving(Crossing):
    """Computes the gradient of the batches after the last full window, and takes no step."""

    features: Mapping[str, bool | str] = {"short_windows": True}

    def windows(self) -> Iterator[list[Batch]]:
        yield from super().windows()
        batches = self.job.epochs * -(-len(self.job.train) // self.job.batch)
        for batch in islice(self.stream(), self.steps * self.job.accumulate, batches):
            token_loss(self.model(padded(batch)["input_ids"]), padded(batch)["labels"]).backward()  # type: ignore[no-untyped-call]


def test_batches_after_the_last_full_window_of_a_run_are_told_from_those_of_an_epoch() -> None:
    with pytest.raises(AssertionError, match="it is a window that is filled with examples of the next epoch; if"):
        every_batch(bench=Bench(Leaving()), train=equal(1), batch=1, accumulate=2, epochs=1)


class Counting(Leaving):
    """Takes a step after as many examples as a window of full batches has."""

    features: Mapping[str, bool | str] = {"short_windows": False}

    def planned(self) -> int:
        return self.job.epochs * len(self.job.train) // (self.job.batch * self.job.accumulate)


def test_declared_windows_are_not_to_be_declared_again() -> None:
    with pytest.raises(AssertionError, match=r"no step follows the micro-batches \[\(1, 2\), \(3,\)\]$"):
        every_batch(bench=Bench(Counting()), train=equal(3), batch=2, accumulate=2, epochs=1)


class Again(Drawn):
    """Draws the first examples again after a resume."""

    def windows(self) -> Iterator[list[Batch]]:
        left, stream = self.planned() - self.steps, self.stream()
        return (list(islice(stream, self.job.accumulate)) for _ in range(left))


class Ahead(Stream):
    """Skips a batch after a resume, as a loop does that saves the place of the batch after the next one."""

    def windows(self) -> Iterator[list[Batch]]:
        size, stream = self.job.accumulate, self.stream()
        for _ in islice(stream, self.steps * size + bool(self.steps)):
            pass
        return (list(islice(stream, size)) for _ in range(self.planned() - self.steps))


class Undeclared(Stream):
    """Has no short windows, and does not say so."""

    features: Mapping[str, bool | str] = {"epochs": True}

    def planned(self) -> int:
        return self.job.epochs * -(-len(self.job.train) // (self.job.batch * self.job.accumulate))


FAULTS = [
    (Dropping, "TL-DATA-001", ""),
    (Stepping, "TL-STEP-001", ""),
    (Short, "TL-DATA-004", ""),
    (Undeclared, "TL-DATA-001", "it is a window that is filled with examples of the next epoch; if"),
    (Again, "TL-RESUME-001", "; it is the order of the first step and the steps after it: the data start"),
    (Again, "TL-RESUME-009", "; it is the order of the first step and the steps after it: the data start"),
    (Ahead, "TL-RESUME-001", "but a part after the cut is skipped: 1 step"),
    (Ahead, "TL-RESUME-009", "but a part after the cut is skipped: 1 step"),
]


@pytest.mark.parametrize(("kind", "claim", "cause"), FAULTS)
def test_fault_of_a_stream_is_found_and_named(kind: type[Stream], claim: str, cause: str) -> None:
    with pytest.raises(AssertionError, match=cause):
        attack(claim, Bench(kind()))
