"""Attacks on evaluation during a run. The subject is `pipeline.distill`, or has its names."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.checkpoint_files.saved import assert_same
from falsifiers.resume.runs import STEPS, ended, settings
from falsifiers.support.oracles import assert_refused
from falsifiers.support.runs import assert_same_history, lines, scratch
from falsifiers.training_evaluation.falsify_ranks import Text, measured, oracle
from reference_trainer import Callback, MetricSum, SettingError

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
    with scratch() as directory:
        others = {"accumulate": accumulate, "save_every": 0}
        without, with_it = Drawing(), Drawing()
        straight, expected = ended(subject, settings(directory, "straight", **others), [without])
        chosen = settings(directory, "evaluated", eval_every=every, **others)
        run, seen = ended(subject, chosen, [with_it], measure=disturbing)
        when = f"evaluated every {every} steps"
        assert_same(when, seen.student.state_dict(), expected.student.state_dict())
        assert run.batches.asked == straight.batches.asked, f"{when}, {run.batches.asked} are asked for"
        assert with_it.drawn == without.drawn, f"{when}, a callback draws {with_it.drawn}; expected {without.drawn}"
        assert run.student.training, f"{when}, the student is left in eval mode"
        logged = [line["metrics"].items() for line in lines(directory, "evaluated")]
        found = [{name: value for name, value in each if not name.startswith("eval/")} for each in logged]
        wanted = [line["metrics"] for line in lines(directory, "straight")]
        assert_same_history(f"{when}, the training metrics", found, wanted)


NO_NUMBER: Any = torch.ones(1)
NO_COUNT: Any = 2.0
NO_SUMS = [
    {"accuracy": MetricSum(1.0, 1), "score": MetricSum(NO_NUMBER, 2)},
    {"accuracy": MetricSum(1.0, 1), "score": MetricSum(1.0, NO_COUNT)},
    {"score": 0.5},
    [MetricSum(1.0, 1)],
]
"""What an evaluation returns that is no sums: a loss of shape [1], a count of no integer, a mean, and a list."""


def falsify_evaluations_without_sums_are_refused(subject: Any) -> None:
    with scratch() as directory:
        for number, wrong in enumerate(NO_SUMS):
            chosen = settings(directory, f"out-{number}", eval_every=1, save_every=0)

            def measure(run: Any, wrong: Any = wrong) -> Any:
                return wrong

            call = partial(ended, subject, chosen, measure=measure)
            named = "'score'" if isinstance(wrong, dict) else "list"
            assert_refused(f"an evaluation that returns {wrong}", call, "Asked.evaluate", named, kind=SettingError)


class Watching(Callback):
    """Callback that keeps, for each evaluated step, its metrics and the weights that it sees."""

    def __init__(self) -> None:
        self.run: Any = None
        self.seen: dict[int, dict[str, float]] = {}
        self.weights: dict[int, dict[str, torch.Tensor]] = {}
        self.later: dict[int, dict[str, float]] = {}

    def attach(self, pipeline: Any) -> None:
        self.run = pipeline

    def on_evaluate(self, context: Any) -> None:
        self.seen[context.step] = dict(context.validation_metrics)
        self.weights[context.step] = {name: each.clone() for name, each in self.run.student.state_dict().items()}

    def on_step_end(self, context: Any) -> None:
        if context.validation_metrics:
            self.later[context.step] = dict(context.validation_metrics)


@given(every=EVERY, log_every=st.integers(0, 3))
def falsify_metrics_are_those_of_the_step(subject: Any, every: int, log_every: int) -> None:
    with scratch() as directory:
        watching = Watching()
        chosen = settings(
            directory, "out", eval_every=every, log_every=log_every, trace=directory / "trace", save_every=0
        )
        ended(subject, chosen, [watching], measure=measured)
        when = f"evaluated every {every} steps and logged every {log_every}"
        due = [step for step in range(1, STEPS + 1) if step % every == 0]
        assert list(watching.seen) == due, f"{when}, the steps {list(watching.seen)} are evaluated; expected {due}"
        for step, metrics in watching.seen.items():
            for metric, expected in oracle(watching.weights[step]).items():
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
