"""Attacks on evaluation during a run. The subject is `pipeline.distill`, or has its names."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.checkpoint_files.saved import assert_same
from falsifiers.resume.runs import STEPS, Cut, assert_same_end, ended, resumed_to_the_end, settings
from falsifiers.support.histories import assert_same_history, lines
from falsifiers.training_evaluation.held_back import Text, measured
from reference_trainer import Callback

EVERY = st.integers(1, 3)


def disturbing(run: Any) -> dict[str, Any]:
    """Evaluate, draw random numbers, and leave the student in another mode."""
    torch.rand(3)
    run.student.train(False)
    assert not run.student(Text.tokens).requires_grad, "an evaluation builds a graph"
    return measured(run)


class Drawing(Callback):
    """Callback that draws a random number in each step, as a callback that samples text does."""

    def __init__(self) -> None:
        self.drawn: list[float] = []

    def on_step_end(self, context: Any) -> None:
        self.drawn.append(float(torch.rand(())))


@given(every=EVERY, accumulate=st.integers(1, 3))
def falsify_evaluation_leaves_the_training_as_it_is(subject: Any, every: int, accumulate: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory, others = Path(name).resolve(), {"accumulate": accumulate, "save_every": 0}
        without, with_it = Drawing(), Drawing()
        straight, expected = ended(subject, settings(directory, "straight", **others), [without])
        chosen = settings(directory, "evaluated", eval_every=every, **others)
        run, seen = ended(subject, chosen, [with_it], measure=disturbing)
        when = f"evaluated every {every} steps"
        assert_same(when, seen.student.state_dict(), expected.student.state_dict())
        assert run.batches.asked == straight.batches.asked, f"{when}, {run.batches.asked} are asked for"
        assert with_it.drawn == without.drawn, f"{when}, a callback draws {with_it.drawn}; expected {without.drawn}"
        assert run.student.training, f"{when}, the student is left in eval mode"
        found = [_without_evaluation(line["metrics"]) for line in lines(directory, "evaluated")]
        wanted = [line["metrics"] for line in lines(directory, "straight")]
        assert_same_history(f"{when}, the training metrics", found, wanted)


def _without_evaluation(metrics: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metrics.items() if not name.startswith("eval/")}


class Watching(Callback):
    """Callback that keeps, for each evaluated step, its metrics and what an oracle says of the weights it sees."""

    def __init__(self) -> None:
        self.run: Any = None
        self.seen: dict[int, dict[str, float]] = {}
        self.expected: dict[int, dict[str, float]] = {}
        self.later: dict[int, dict[str, float]] = {}

    def attach(self, pipeline: Any) -> None:
        self.run = pipeline

    def on_evaluate(self, context: Any) -> None:
        self.seen[context.step] = dict(context.validation_metrics)
        self.expected[context.step] = _oracle(self.run)

    def on_step_end(self, context: Any) -> None:
        if context.validation_metrics:
            self.later[context.step] = dict(context.validation_metrics)


def _oracle(run: Any) -> dict[str, float]:
    """Return cross-entropy, perplexity, KL at temperature 1 and agreement of the models, in float64."""

    def log_p(model: Any) -> torch.Tensor:
        x = model.embed.weight.double()
        for layer in model.layers:
            x = x + torch.tanh(x @ layer.weight.double().T + layer.bias.double())
        logits = x @ model.head.weight.double().T + model.head.bias.double()
        return logits.log_softmax(-1)[Text.tokens[:, :-1].flatten()]

    with torch.no_grad():
        student, teacher, labels = log_p(run.student), log_p(run.teacher), Text.tokens[:, 1:].flatten()
        loss = -float(student[range(len(labels)), labels].mean())
        return {
            "eval/hard_loss": loss,
            "eval/student_perplexity": math.exp(loss),
            "eval/kl_at_1": float((teacher.exp() * (teacher - student)).sum(-1).mean()),
            "eval/agreement": float((student.argmax(-1) == teacher.argmax(-1)).double().mean()),
        }


@given(every=EVERY, log_every=st.integers(0, 3))
def falsify_metrics_are_those_of_the_step(subject: Any, every: int, log_every: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory, watching = Path(name).resolve(), Watching()
        chosen = settings(
            directory, "out", eval_every=every, log_every=log_every, trace=directory / "trace", save_every=0
        )
        ended(subject, chosen, [watching], measure=measured)
        when = f"evaluated every {every} steps and logged every {log_every}"
        due = [step for step in range(1, STEPS + 1) if step % every == 0]
        assert list(watching.seen) == due, f"{when}, the steps {list(watching.seen)} are evaluated; expected {due}"
        for step, metrics in watching.seen.items():
            for metric, expected in watching.expected[step].items():
                got = metrics[metric]
                assert abs(got - expected) <= 1e-5 * abs(expected), f"{when}, {metric} of step {step} is {got}"
        assert watching.later == watching.seen, f"{when}, on_step_end has {watching.later}; expected {watching.seen}"
        _assert_written(when, directory, watching.seen, log_every)


def _assert_written(when: str, directory: Path, seen: dict[int, dict[str, float]], log_every: int) -> None:
    """Assert that file and trace have the metrics of the evaluated steps, once, and of no other."""
    read = lines(directory, "out")
    steps = [step for step in range(1, STEPS + 1) if step in seen or (log_every and step % log_every == 0)]
    assert [line["step"] for line in read] == steps, f"{when}, the metrics file has the steps {[*map(str, read)]}"
    for line in read:
        found = {name: value for name, value in line["metrics"].items() if name.startswith("eval/")}
        assert found == seen.get(line["step"], {}), f"{when}, the line of step {line['step']} has {found}"
        logged = "loss" in line["metrics"]
        expected = bool(log_every) and line["step"] % log_every == 0
        assert logged == expected, f"{when}, the line of step {line['step']} is {line}"
    events = [json.loads(line) for line in (directory / "trace").read_text().splitlines()]
    traced = {e["step"]: e["validation_metrics"] for e in events if e["event"] == "on_evaluate"}
    assert traced == seen, f"{when}, the trace has the evaluations {traced}; expected {seen}"


@given(
    cuts=st.lists(st.integers(1, STEPS), min_size=1, max_size=3, unique=True),
    every=EVERY,
    save_every=st.integers(0, 3),
    log_every=st.integers(0, 2),
)
def falsify_evaluated_steps_are_in_the_metrics_file_once(
    subject: Any, cuts: list[int], every: int, save_every: int, log_every: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name).resolve()
        others = {"eval_every": every, "save_every": save_every, "log_every": log_every}
        straight = ended(subject, settings(directory, "straight", **others), measure=measured)
        cut = resumed_to_the_end(subject, directory, "cut", [Cut(*cuts)], measure=measured, **others)
        when = f"evaluated every {every}, saved every {save_every}, cut after {sorted(cuts)}"
        assert_same_end(when, directory, ("cut", cut), ("straight", straight))
        steps = [line["step"] for line in lines(directory, "cut")]
        assert steps == sorted({*steps}), f"{when}, the metrics file has the steps {steps}"
        found = [line["step"] for line in lines(directory, "cut") if "eval/hard_loss" in line["metrics"]]
        due = [step for step in range(1, STEPS + 1) if step % every == 0]
        assert found == due, f"{when}, the steps {found} have held-back metrics; expected {due}"
