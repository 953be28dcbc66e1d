"""Attacks on evaluations of several ranks, and the text that is held back from them."""

import math
from pathlib import Path
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.evaluation.cases import sums_of
from falsifiers.rank_runs.launched import Ended, launched
from falsifiers.resume.runs import Model, own, settings
from falsifiers.support.histories import lines
from falsifiers.support.scratch import scratch
from falsifiers.training_evaluation.falsify_acceptance import drafts, length_of, total
from reference_trainer.distillation.protocols import Batch
from reference_trainer.pipeline.loss import objective
from reference_trainer.storage.checkpoints import read_checkpoint, saved_steps
from reference_trainer.training.evaluation import evaluate

DEPTH = 2
"""Tokens of a draft."""


class Text:
    """Three rows of held-back tokens in batches of two."""

    batches, device = 2, torch.device("cpu")
    tokens = torch.tensor([[1, 2, 3, 4], [0, 10, 10, 5], [7, 7, 1, 0]])

    def __len__(self) -> int:
        return 3

    def batch(self, order: torch.Tensor, position: int) -> Batch:
        rows = self.tokens[order[2 * position - 2 : 2 * position]]
        return Batch(tokens=rows, labels=rows)


def measured(run: Any, accept_depth: int = 0) -> dict[str, Any]:
    """Evaluate on the text above, at the temperature of the last planned step."""
    weights = objective(run.settings).weights(run.schedule.planned_steps, run.schedule.planned_steps)
    options: dict[str, Any] = {"parallel": run.parallel, "accept_depth": accept_depth}
    sums: dict[str, Any] = evaluate(run.frozen, run.learner, Text(), weights, **options)
    return sums


def _evaluating(subject: Any) -> Any:
    """Return the distillation of small models, evaluated on three rows in two batches: of three ranks one has none."""

    class Evaluating(own(subject)):  # the subject is any module
        def evaluate(self) -> dict[str, Any]:
            return measured(self, DEPTH)

    return Evaluating


def oracle(weights: dict[str, torch.Tensor]) -> dict[str, float]:
    """Return cross-entropy, perplexity, KL at temperature 1 and agreement of these weights, in float64."""
    student = Model(5, seed=1)
    student.load_state_dict(weights)
    sums = sums_of(student.double().eval(), Model(3, seed=2).double().eval(), Text.tokens)
    means = {name: sums[name] / Text.tokens[:, 1:].numel() for name in ("hard_loss", "kl_at_1", "agreement")}
    means["student_perplexity"] = math.exp(means["hard_loss"])
    return {f"eval/{name}": mean for name, mean in means.items()}


@given(ranks=st.sampled_from([2, 3]), strategy=st.sampled_from(["fsdp2", "ddp"]))
@example(ranks=3, strategy="ddp")
def falsify_ranks_evaluate_together(subject: Any, ranks: int, strategy: str) -> None:
    """A step with FSDP2 takes several times that of DDP, so its run has one epoch."""
    with scratch() as directory:
        every = {"strategy": strategy, "save_every": 2, "keep": 0, "epochs": 1 if strategy == "fsdp2" else 2}
        without = launched(own(subject), settings(directory, "without", **every), ranks)
        evaluated = launched(_evaluating(subject), settings(directory, "out", **every, eval_every=1), ranks)
        when = f"{ranks} ranks with {strategy}"
        for rank, each in enumerate(evaluated):
            _assert_as_expected(f"{when}, rank {rank}", each, without[0], evaluated[0])
        _assert_best(when, directory, ranks if strategy == "fsdp2" else 1)


def accepted_drafts(weights: dict[str, torch.Tensor]) -> dict[str, float]:
    """Return the share of drafts whose token is accepted at each depth, and their length, counted one by one."""
    student, teacher = Model(5, seed=1).eval(), Model(3, seed=2).eval()
    student.load_state_dict(weights)
    agreed = (student(Text.tokens).argmax(-1) == teacher(Text.tokens).argmax(-1))[:, :-1].tolist()
    counts = total([drafts(row, DEPTH) for row in agreed], DEPTH)
    shares = {f"eval/accepted_{k}": hits / trials for k, (hits, trials) in enumerate(counts, 1) if trials}
    return {**shares, "eval/accept_length": float(length_of(counts))}


def _assert_as_expected(where: str, seen: Ended, without: Ended, first: Ended) -> None:
    assert not seen.error, f"{where} raised {seen.error}"
    wrong = [name for name, each in without.weights.items() if not torch.equal(seen.weights[name], each)]
    assert not wrong, f"{where}: {wrong} differ from those of a run without evaluation"
    metrics = seen.result["validation"]
    assert metrics == first.result["validation"], f"{where} has the metrics {metrics}"
    for name, expected in {**oracle(seen.weights), **accepted_drafts(seen.weights)}.items():
        assert abs(metrics[name] - expected) <= 1e-5 * abs(expected), f"{where}: {name} is {metrics[name]}; {expected}"


def _assert_best(when: str, directory: Path, files: int) -> None:
    """Assert that each new best is saved besides the due steps, whole, and that the newest manifest names the last."""
    losses = {line["step"]: line["metrics"]["eval/hard_loss"] for line in lines(directory, "out")}
    best = [s for s in losses if all(losses[s] < losses[t] for t in losses if t < s)]
    expected = sorted({*best, *(step for step in losses if step % 2 == 0), max(losses)})
    place = directory / "out" / "checkpoints"
    seen = saved_steps(place, "student")
    assert seen == expected, f"{when}, the checkpoints {seen} are there; expected {expected}"
    for step in seen:
        manifest = read_checkpoint(place / f"student-step{step}").manifest
        assert len(manifest.files) == files, f"{when}, step {step} has the files {sorted(manifest.files)}"
        recorded = max(each for each in best if each <= step)
        assert manifest.best is not None and manifest.best.step == recorded, f"{when}, the best is {manifest.best}"
