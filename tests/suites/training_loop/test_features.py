"""Correct loops that score every token, have rows of one length, or evaluate where an epoch ends."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from pv.suites.training_loop.adapters.handwritten import HandWritten
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.cases import SAVED, unequal
from pv.suites.training_loop.claims.checks import due_checkpoints
from pv.suites.training_loop.features import implied_missing, restrict_job
from pv.suites.training_loop.job import IGNORED, Example, Job, Report
from pv.suites.training_loop.loop import Loop, epoch_windows
from tests.suites.training_loop.planting import attack, by_id, contract, planted


class Blocks(HandWritten):
    """A loop over blocks of one length, all of whose tokens are scored, with the order that was given."""

    features: Mapping[str, bool | str] = {"loss": True, "masks": "it scores every token", "lengths": "blocks have one"}
    not_claimed = dict.fromkeys(("TL-DATA-002", "TL-DATA-005"), "the blocks are not shuffled")

    def build(self, job: Job, model: Any) -> None:
        self.job, self.model = job, model
        self.optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=job.rate)

    def windows(self) -> Iterable[list[torch.Tensor]]:
        rows = torch.tensor([example.tokens for example in self.job.train])
        for _ in range(self.job.epochs):
            batches = list(rows.split(self.job.batch))
            yield from (batches[i : i + self.job.accumulate] for i in range(0, len(batches), self.job.accumulate))

    def loss_of(self, rows: torch.Tensor) -> torch.Tensor:
        return cross_entropy(self.model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten(), reduction="sum")

    def update(self, window: list[torch.Tensor]) -> None:
        self.optimizer.zero_grad()
        tokens = sum(rows[:, 1:].numel() for rows in window)
        losses = [self.loss_of(rows) / tokens for rows in window]
        for loss in losses:
            loss.backward()
        self.optimizer.step()
        self.last = sum(loss.item() for loss in losses)

    def log(self) -> dict[str, float]:
        return {"loss": self.last}

    def evaluate(self) -> float:
        self.model.eval()
        with torch.no_grad():
            rows = torch.tensor([example.tokens for example in self.job.evaluated]).split(self.job.eval_batch)
            total = sum(self.loss_of(part).item() for part in rows)
        self.model.train()
        return float(total / sum(part[:, 1:].numel() for part in rows))


OF_BLOCKS = ["TL-DATA-001", "TL-GRAD-001", "TL-GRAD-003", "TL-GRAD-005", "TL-LOG-001", "TL-EVAL-001", "TL-EVAL-002"]


@pytest.mark.parametrize("claim", OF_BLOCKS)
def test_claims_hold_for_a_loop_over_blocks(claim: str, tmp_path: Path) -> None:
    attack(claim, Bench(Blocks(), tmp_path))


def test_claims_about_unscored_tokens_and_unequal_rows_are_not_claimed() -> None:
    subject = Bench(Blocks())
    reasons = {claim.id: subject.missing(claim.id, claim.options["needs"]) for claim in contract().falsifiers}
    for claim in ("TL-MASK-001", "TL-MASK-002", "TL-GRAD-002", "TL-GRAD-004", "TL-PAD-001"):
        assert "it scores every token" in reasons[claim] or "blocks have one" in reasons[claim]
    assert reasons["TL-GRAD-003"] == ""


def test_tokens_that_are_not_scored_come_first_in_a_loop_without_gaps() -> None:
    before = Job(train=unequal(6))
    for new, old in zip(restrict_job(before, ["gaps"]).train, before.train, strict=True):
        unscored = old.labels[1:].count(IGNORED)
        assert new.labels[1:] == (IGNORED,) * unscored + new.tokens[1 + unscored :]
        assert new.scored == old.scored


PLANNED = Job(train=unequal(6), batch=2, accumulate=2, warmup=3, max_steps=5, epochs=2, log_every=3, eval_batch=7)


@pytest.mark.parametrize(
    ("missing", "changes"),
    [
        ({"accumulate"}, {"batch": 4, "accumulate": 1}),
        ({"max_steps"}, {"max_steps": None, "epochs": 3}),  # of two windows
        ({"warmup", "log_every", "eval_batch"}, {"warmup": 0, "log_every": 1, "eval_batch": 2}),
        ({"epochs"}, {}),
    ],
)
def test_settings_that_a_loop_lacks_are_replaced(missing: set[str], changes: dict[str, Any]) -> None:
    assert restrict_job(PLANNED, missing) == replace(PLANNED, **changes)


def test_epochs_become_the_steps_of_all_ranks() -> None:
    endless = replace(PLANNED, max_steps=None)
    assert [restrict_job(endless, ["epochs"], ranks).max_steps for ranks in (1, 2)] == [4, 2]


@pytest.mark.parametrize(
    ("missing", "tokens", "labels"),
    [
        ({"masks"}, (2, 36, 44), (IGNORED, 36, 44)),
        ({"lengths"}, (2, 36, 44, 36, 44), (IGNORED, IGNORED, 44, IGNORED, 44)),
        ({"lengths", "gaps"}, (2, 36, 44, 36, 44), (IGNORED, IGNORED, IGNORED, 36, 44)),
        ({"lengths", "masks"}, (2, 36, 44, 36, 44), (IGNORED, 36, 44, 36, 44)),
        ({"sequences", "lengths"}, (2, 36), (IGNORED, 36)),
    ],
)
def test_example_keeps_what_a_loop_can_use(missing: set[str], tokens: Any, labels: Any) -> None:
    row = Example((2, 36, 44), (IGNORED, IGNORED, 44))
    job = restrict_job(Job(train=(row,), evaluated=(row,)), missing)
    assert job.train == job.evaluated == (Example(tokens, labels),)


def test_features_that_need_a_missing_one_are_missing_with_its_reason() -> None:
    one = "an example has one label (s)"
    rest = dict.fromkeys(("masks", "gaps", "padding", "noise"), one)
    scored = "every example has the same number of scored tokens (l)"
    assert implied_missing({"sequences": "s", "lengths": "l"}) == {
        **rest, "sequences": "s", "lengths": "l", "unequal": scored,
    }  # fmt: skip
    assert implied_missing({"lengths": "l"}) == {"lengths": "l"}
    assert implied_missing({"masks": "m", "epochs": "e"}) == {
        "masks": "m", "epochs": "e", "short_windows": "there are no epochs (e)",
    }  # fmt: skip


def test_features_of_a_class_add_to_those_of_its_base_class(tmp_path: Path) -> None:
    class Adapter(Blocks):
        features: Mapping[str, bool | str] = {"events": "no callbacks", "groups": True}

    subject = Bench(Adapter(), tmp_path)
    assert subject.missing("TL-MASK-001", ("masks", "events")) == (
        "no masks: it scores every token; no events: no callbacks"
    )
    assert subject.missing("", ("groups", "loss")) == ""
    assert all(IGNORED not in example.labels[1:] for example in subject.run(Job(train=unequal(3))).job.train)


@pytest.mark.parametrize("claim", ["TL-GRAD-001", "TL-STEP-001", "TL-STEP-003", "TL-RATE-001", "TL-LOG-002"])
def test_claims_hold_for_a_loop_that_takes_epochs_and_whole_windows_alone(claim: str) -> None:
    class Short(Loop):
        features = dict.fromkeys(("accumulate", "max_steps"), False)

        def run(self, job: Job) -> Report:
            assert (job.accumulate, job.max_steps) == (1, None)
            return super().run(job)

    assert Bench(Short()).missing("TL-STEP-002", ("max_steps",))
    attack(claim, Bench(Short()))


CLAIMS = """TL-EVAL-001 TL-EVAL-002 TL-EVAL-005 TL-SAVE-001 TL-KEEP-001 TL-KEEP-002 TL-KEEP-003 TL-BEST-001 TL-BEST-002
TL-BEST-004 TL-RATE-004 TL-RESUME-002 TL-RESUME-003 TL-RESUME-008 TL-RESUME-009 TL-RESUME-010 TL-RESUME-013
TL-AVERAGE-002 TL-SCALER-002""".split()


def at_epoch_ends(kind: Any) -> Any:
    """Return a loop whose only cadence is the epoch."""

    def run(self: Any, job: Job) -> Report:
        steps = len(epoch_windows(job, 0))
        job = replace(job, eval_every=job.eval_every and steps, save_every=job.save_every and steps)
        report: Report = kind.run(self, job)
        return report

    features = {"cadence": "it evaluates and saves where an epoch ends"}
    return type("EpochEnds", (kind,), {"features": features, "run": run})


@cache
def bench() -> Bench:
    return Bench(at_epoch_ends(Loop)())


@pytest.mark.parametrize("claim", CLAIMS)
def test_claims_are_tried_where_epochs_end(claim: str) -> None:
    attack(claim, bench())
    assert any(run.checkpoints or run.evaluations for run in bench().used)


@pytest.mark.parametrize("claim", CLAIMS)
def test_faults_are_found_where_epochs_end(claim: str) -> None:
    mutant = str(by_id(claim).kills[0])
    with pytest.raises(AssertionError):
        attack(claim, Bench(at_epoch_ends(type(planted(mutant).trainer))()))


@pytest.mark.parametrize("claim", ["TL-EVAL-007", "TL-SAVE-002", "TL-RESUME-001"])
def test_claims_about_other_cadences_are_not_made(claim: str) -> None:
    assert bench().missing(claim, by_id(claim).options["needs"]).startswith("no cadence: it evaluates and saves")


def test_no_checkpoint_is_due_where_a_step_spans_two_epochs() -> None:
    run = bench().run(SAVED)
    assert due_checkpoints(bench(), run) == [4, 8]
    assert due_checkpoints(bench(), replace(run, leftover=((1,),))) == []
    assert due_checkpoints(bench(), replace(run, steps=run.steps[:-1])) == []
