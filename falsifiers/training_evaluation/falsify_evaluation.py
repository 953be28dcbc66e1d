"""Attacks on evaluations during a run: their metrics, the best step, early stopping, and accepted drafts."""

import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.callbacks.lifecycle import Script
from falsifiers.callbacks.real_run import parts, run
from falsifiers.checkpoint_files.saved import assert_same
from falsifiers.evaluation.cases import sums_of
from falsifiers.observers.events import context
from falsifiers.rank_runs.falsify_runs import RankEnd, launched
from falsifiers.resume.runs import (
    STEPS,
    Cut,
    Model,
    assert_same_end,
    run_to_end,
    run_with_resumes,
    settings,
    small_distillation,
)
from falsifiers.support.assertions import assert_equal
from falsifiers.support.oracles import assert_refused
from falsifiers.support.runs import assert_same_history, lines, refused, scratch, small, unchanged_files
from falsifiers.teacher_outputs.falsify_outputs import written
from reference_trainer import Action, Callback, Document, EarlyStopping, MetricSum, ResumePoint, SettingError, Settings
from reference_trainer.data.documents import rows_of_documents
from reference_trainer.distillation.objective import Weights
from reference_trainer.distillation.protocols import Batch
from reference_trainer.pipeline.loss import objective
from reference_trainer.storage.checkpoints import read_checkpoint, saved_steps
from reference_trainer.training.evaluation import evaluate

INTERVALS = st.integers(1, 3)


def measure_with_side_effects(run: Any) -> dict[str, Any]:
    """Evaluate, draw random numbers, and leave the student in eval mode."""
    torch.rand(3)
    run.student.train(False)
    assert not run.student(Text.tokens).requires_grad, "gradients are enabled during an evaluation"
    return measured(run)


class RandomDraws(Callback):
    """Callback that draws a random number in every step, as a callback that samples text does."""

    def __init__(self) -> None:
        self.numbers: list[float] = []

    def on_step_end(self, context: Any) -> None:
        self.numbers.append(float(torch.rand(())))


@given(every=INTERVALS, accumulate=st.integers(1, 3))
def falsify_evaluation_leaves_the_training_as_it_is(subject: Any, every: int, accumulate: int) -> None:
    with scratch() as directory:
        options = {"accumulate": accumulate, "save_every": 0}
        expected_draws, draws = RandomDraws(), RandomDraws()
        uninterrupted, expected = run_to_end(subject, settings(directory, "uninterrupted", **options), [expected_draws])
        chosen = settings(directory, "evaluated", eval_every=every, **options)
        run, seen = run_to_end(subject, chosen, [draws], measure=measure_with_side_effects)
        when = f"evaluated every {every} steps"
        assert_same(when, seen.student.state_dict(), expected.student.state_dict())
        assert_equal(f"{when}, requested batches", run.batches.requested, uninterrupted.batches.requested)
        assert_equal(f"{when}, random numbers of a callback", draws.numbers, expected_draws.numbers)
        assert run.student.training, f"{when}, the student is in eval mode after the run; expected train mode"
        logged = [line["metrics"].items() for line in lines(directory, "evaluated")]
        trained = [{name: value for name, value in metrics if not name.startswith("eval/")} for metrics in logged]
        expected_metrics = [line["metrics"] for line in lines(directory, "uninterrupted")]
        assert_same_history(f"{when}, the training metrics", trained, expected_metrics)


TENSOR_SUM: Any = torch.ones(1)
FLOAT_COUNT: Any = 2.0
INVALID_RESULTS = [
    {"accuracy": MetricSum(1.0, 1), "score": MetricSum(TENSOR_SUM, 2)},
    {"accuracy": MetricSum(1.0, 1), "score": MetricSum(1.0, FLOAT_COUNT)},
    {"score": 0.5},
    [MetricSum(1.0, 1)],
]
"""Invalid results of `evaluate`: a sum of shape [1], a count that is a float, a mean instead of a sum, and a list."""


def falsify_evaluations_without_sums_are_refused(subject: Any) -> None:
    calls = list[Any]()
    with scratch() as directory:
        for number, invalid in enumerate(INVALID_RESULTS, start=1):
            chosen = settings(directory, f"out-{number}", eval_every=1, save_every=0)
            call = partial(run_to_end, subject, chosen, measure=lambda run, result=invalid: calls.append(run) or result)
            word = "'score'" if isinstance(invalid, dict) else "list"
            assert_refused(f"an evaluation that returns {invalid}", call, "Small.evaluate", word, kind=SettingError)
            assert_equal(f"evaluations until the run that returns {invalid} ends, one for each run", len(calls), number)


class EvaluationRecorder(Callback):
    """Callback that records, by evaluated step, the metrics of both hooks and the weights of the student."""

    def __init__(self) -> None:
        self.run: Any = None
        self.on_evaluate_metrics: dict[int, dict[str, float]] = {}
        self.weights: dict[int, dict[str, torch.Tensor]] = {}
        self.on_step_end_metrics: dict[int, dict[str, float]] = {}

    def attach(self, pipeline: Any) -> None:
        self.run = pipeline

    def on_evaluate(self, context: Any) -> None:
        self.on_evaluate_metrics[context.step] = dict(context.validation_metrics)
        self.weights[context.step] = {name: value.clone() for name, value in self.run.student.state_dict().items()}

    def on_step_end(self, context: Any) -> None:
        if context.validation_metrics:
            self.on_step_end_metrics[context.step] = dict(context.validation_metrics)


@given(every=INTERVALS, log_every=st.integers(0, 3))
def falsify_metrics_are_those_of_the_step(subject: Any, every: int, log_every: int) -> None:
    with scratch() as directory:
        recorder = EvaluationRecorder()
        options = {"eval_every": every, "log_every": log_every, "trace": directory / "trace", "save_every": 0}
        run_to_end(subject, settings(directory, "out", **options), [recorder], measure=measured)
        when = f"evaluated every {every} steps and logged every {log_every}"
        due = [step for step in range(1, STEPS + 1) if step % every == 0]
        evaluations = recorder.on_evaluate_metrics
        assert_equal(f"{when}, evaluated steps", list(evaluations), due)
        for step, metrics in evaluations.items():
            for metric, expected in oracle(recorder.weights[step]).items():
                assert_near(f"{when}, {metric} of step {step}", metrics[metric], expected)
        assert_equal(f"{when}, metrics of on_step_end", recorder.on_step_end_metrics, evaluations)
        # The file and the trace have the metrics of every evaluated step once, and of no other step.
        entries = lines(directory, "out")
        steps = [step for step in range(1, STEPS + 1) if step in due or (log_every and step % log_every == 0)]
        assert_equal(f"{when}, steps of the metrics file", [line["step"] for line in entries], steps)
        for line in entries:
            step, metrics = line["step"], line["metrics"]
            evaluated = {name: value for name, value in metrics.items() if name.startswith("eval/")}
            assert_equal(f"{when}, evaluation in the line of step {step}", evaluated, evaluations.get(step, {}))
            is_logged = bool(log_every) and step % log_every == 0
            assert ("loss" in metrics) == is_logged, f"{when}, loss expected {is_logged} in the line {line}"
        events = [json.loads(line) for line in (directory / "trace").read_text().splitlines()]
        traced = {e["step"]: e["validation_metrics"] for e in events if e["event"] == "on_evaluate"}
        assert_equal(f"{when}, evaluations in the trace", traced, evaluations)


def scripted(scores: Sequence[float | None]) -> Callable[[Any], dict[str, Any]]:
    """Return an evaluation whose metric `score` has these values in the steps 1, 2, ...; None: no metric."""

    def measure(run: Any) -> dict[str, Any]:
        score = scores[(run.step_tracker.step or 1) - 1]
        return {} if score is None else {"score": MetricSum(score, 1)}

    return measure


class StepTracker(Callback):
    """Callback that stores the current step, and itself as an attribute of the distillation."""

    def __init__(self) -> None:
        self.step = 0

    def attach(self, pipeline: Any) -> None:
        pipeline.step_tracker = self

    def on_step_begin(self, context: Any) -> None:
        self.step = context.step


SCORES = st.sampled_from([1.0, 1.25, 2.0, -1.0, math.nan, math.inf, -math.inf, None])


def best_so_far(scores: Sequence[float | None], every: int, highest: bool, delta: float) -> list[int | None]:
    """Return by step the best evaluated step so far, or None. Only a gain above `delta` replaces the best."""
    best: tuple[int, float] | None = None
    steps: list[int | None] = []
    for step, score in enumerate(scores, 1):
        if step % every == 0 and score is not None and math.isfinite(score):
            gain = math.inf if best is None else (score - best[1]) * (1 if highest else -1)
            best = (step, score) if gain > delta else best
        steps.append(None if best is None else best[0])
    return steps


@given(
    scores=st.lists(SCORES, min_size=STEPS, max_size=STEPS),
    every=INTERVALS,
    save_every=st.integers(0, 4),
    keep=st.integers(0, 2),
    highest=st.booleans(),
    delta=st.sampled_from([0.0, 0.25]),
    cuts=st.lists(st.integers(1, STEPS), max_size=2, unique=True),
)
@example(scores=[1.0, -1.0] + [1.0] * 4, every=1, save_every=1, keep=2, highest=False, delta=0.0, cuts=[3, 5])
@example(scores=[2.0, 1.0, 2.0, 1.25, 1.0, -1.0], every=2, save_every=3, keep=1, highest=False, delta=0.0, cuts=[3])
@example(scores=[math.nan, 2.0, 1.0, 2.0, 2.0, 1.25], every=1, save_every=0, keep=1, highest=True, delta=0.0, cuts=[6])
def falsify_best_step_is_saved_and_kept(
    subject: Any,
    scores: list[Any],
    every: int,
    save_every: int,
    keep: int,
    highest: bool,
    delta: float,
    cuts: list[int],
) -> None:
    with scratch() as directory:
        options = {"eval_every": every, "save_every": save_every, "keep": keep, "best_metric": "eval/score"}
        options |= {"best_mode": "max" if highest else "min", "best_min_delta": delta}
        run_with_resumes(subject, directory, "out", [StepTracker(), Cut(*cuts)], measure=scripted(scores), **options)
        best = best_so_far(scores, every, highest, delta)
        # `keep` limits the last saves; the best step so far is kept besides them. 0 keeps all.
        kept: list[int] = []
        for step in range(1, STEPS + 1):
            if (save_every and (step % save_every == 0 or step == STEPS)) or best[step - 1] == step:
                kept.append(step)
                last = kept[-keep:] if keep else kept
                kept = [saved for saved in kept if saved in last or saved == best[step - 1]]
        place = directory / "out" / "checkpoints"
        seen = sorted(int(p.name.rsplit("step")[1]) for p in place.glob("student-step*"))
        when = f"scores {scores}, evaluated every {every}, saved every {save_every}, keep {keep}, cut after {cuts}"
        assert_equal(f"{when}: checkpoints", seen, kept)
        newest = max(place.glob("student-step*"), key=lambda path: int(path.name.rsplit("step")[1]), default=None)
        best_entry = None if newest is None else json.loads((newest / "manifest.json").read_text())["best"]
        step = None if best_entry is None else best_entry["step"]
        assert_equal(f"{when}: best step in the newest manifest", step, best[-1])
        link = place / "student-best"
        target = link.resolve().name if link.is_symlink() else None
        assert_equal(f"{when}: target of the link", target, None if step is None else f"student-step{step}")


def falsify_run_resumes_from_the_best(subject: Any) -> None:
    scores = [3.0, 1.0, 2.0, 2.0, 2.0, 2.0]
    with scratch() as directory:
        options = {"eval_every": 1, "best_metric": "eval/score"}
        resumed = {"resume": Path("best"), "rewind": True, "force": True}
        uninterrupted, _, cut = (
            run_to_end(subject, settings(directory, out, **options, **more), [StepTracker()], measure=scripted(scores))
            for out, more in (("uninterrupted", {}), ("cut", {"max_steps": 4}), ("cut", resumed))
        )
        step = cut[0].resumed.position.step
        assert_equal(f"step from which `best` of the scores {scores[:4]} resumes", step, 2)
        assert_same_end("resumed from the best", directory, ("cut", cut), ("uninterrupted", uninterrupted))
        aside = saved_steps(directory / "cut" / "checkpoints" / "student-rewound-1", "student")
        assert_equal("checkpoints later than the best that are set aside", aside, [3, 4])


def falsify_unknown_metric_is_refused(subject: Any) -> None:
    with scratch() as directory:
        chosen = settings(directory, "out", eval_every=2, best_metric="hard_loss")
        words = ("hard_loss", "best_metric", "eval/hard_loss", "eval/agreement")
        call = partial(run_to_end, subject, chosen, measure=measured)
        assert_refused("a run without its best metric", call, *words)


MISSPELLED = ["hard_loss", "eval/hard_los", "eval/gradient_norm"]
FULL_TEACHER_METRICS = ["eval/kl_at_1", "eval/agreement", "eval/accept_length", "eval/teacher_loss"]


@given(
    misspelled=st.sampled_from(MISSPELLED),
    absent=st.sampled_from(FULL_TEACHER_METRICS),
    every=st.sampled_from([0, 1]),
    smoke=st.booleans(),
)
def falsify_unknown_metric_is_refused_at_the_start(
    subject: Any, misspelled: str, absent: str, every: int, smoke: bool
) -> None:
    options = {"eval_every": every, "smoke": 1 if smoke else None}
    with scratch() as directory:
        chosen = small(directory, out=directory / "out", best_metric=misspelled, **options)
        (directory / "text").unlink()
        _assert_refused(subject, directory, chosen, METRICS)
    with scratch() as directory:
        outputs = written(directory, "outputs", top_k=3)
        options |= {"accept_depth": 2, "teacher_outputs": outputs}
        chosen = small(directory, out=directory / "out", best_metric=absent, **options)
        _assert_refused(subject, directory, chosen, [f"(choose from {TOP_K_METRICS})"])
        message = refused(subject, chosen.model_copy(update={"best_metric": "eval/soft_loss"}))
        assert not message, f"eval/soft_loss of top-k outputs is refused: {message}"
        drafts = {"accept_depth": 2, "eval_every": 1, "best_metric": "eval/accept_length"}
        message = refused(subject, small(directory, out=directory / "drafts", **drafts))
        assert not message, f"eval/accept_length of a full teacher is refused: {message}"
        stopped = {"best_metric": "eval/hard_loss", "eval_every": 1, "out": directory / "stopped"}
        message = refused(subject, chosen.model_copy(update=stopped), callbacks=[EarlyStopping(absent)])
        words = (repr(absent), "EarlyStopping", f"(choose from {TOP_K_METRICS})")
        assert all(word in message for word in words), f"early stopping: {message!r}; expected {words}"


def _assert_refused(subject: Any, directory: Path, chosen: Any, metrics: list[str]) -> None:
    with unchanged_files(directory, chosen.evaluation.best_metric):
        message = refused(subject, chosen)
    words = (repr(chosen.evaluation.best_metric), "best_metric", *metrics)
    assert all(word in message for word in words), f"the refusal is {message!r}; expected {words}"


TOP_K_METRICS = "eval/hard_loss, eval/soft_loss, eval/student_perplexity, eval/token_accuracy"
METRICS = ["eval/agreement", "eval/hard_loss", "eval/kl_at_1", "eval/kl_at_T", "eval/student_perplexity"]


# All values are multiples of 1/8, so that differences are exact.
NOT_FINITE = st.sampled_from([math.nan, math.inf, -math.inf])
JUMPS = st.lists(st.integers(-8, 8).map(lambda n: n / 4) | NOT_FINITE, max_size=12)
GAINS = st.lists(st.integers(-1, 1).map(lambda n: n / 8), max_size=12)
DRIFTS = GAINS.map(lambda gains: [*itertools.accumulate(gains)])
"""Values whose single gains are below min_delta, but whose sum of gains is not."""
VALUES, MODES = JUMPS | DRIFTS, st.sampled_from(["min", "max"])
RULES = st.fixed_dictionaries(
    {"mode": MODES, "patience": st.integers(1, 4), "min_delta": st.sampled_from([0.0, 0.25, 1])}
)
DEFAULTS = {"mode": "min", "patience": 3, "min_delta": 0.0}
SOURCES = {"evaluation": ("on_evaluate", "validation_metrics"), "log": ("on_log", "metrics")}


def stops_at(values: Sequence[float], mode: str, patience: int, min_delta: float) -> int | None:
    """Return the number, from 1, of the value after which the run stops, or None."""
    signed = [(-value if mode == "min" else value) if math.isfinite(value) else -math.inf for value in values]
    improvements = [0]  # numbers of the values that improve
    best = -math.inf
    for number, value in enumerate(signed, start=1):
        if value > best + min_delta:
            improvements.append(number)
            best = value
        if number - improvements[-1] >= patience:
            return number
    return None


def actions_of(callback: Any, values: Sequence[float], source: str) -> list[Any]:
    """Return what the callback returns for these values of the metric `it`."""
    hook, field = SOURCES[source]
    return [getattr(callback, hook)(context(n, **{field: {"it": value, "x": 0.0}})) for n, value in enumerate(values)]


@given(values=VALUES, rules=RULES, source=st.sampled_from(sorted(SOURCES)))
@example(values=[math.nan, 1.0, 1.0, 1.0], rules={"mode": "min", "patience": 2, "min_delta": 0.0}, source="log")
@example(values=[1.0, math.nan, math.nan], rules={"mode": "max", "patience": 2, "min_delta": 0.0}, source="evaluation")
@example(values=[1.0, 0.875, 0.75, 0.625], rules={"mode": "min", "patience": 3, "min_delta": 0.25}, source="log")
def falsify_run_is_stopped_after_the_patience(
    subject: Any, values: list[float], rules: dict[str, Any], source: str
) -> None:
    at = stops_at(values, **rules)
    chosen = {name: value for name, value in rules.items() if value != DEFAULTS[name]}
    seen = actions_of(subject.EarlyStopping("it", source=source, **chosen), values[:at], source)
    expected = [None] * (len(seen) - (at is not None)) + [Action.STOP] * (at is not None)
    assert_equal(f"actions for {values[:at]} with {rules}", seen, expected)


@given(values=VALUES.filter(bool), rules=RULES, cut=st.integers(1, 12), save_every=st.sampled_from([0, 1, 3]))
def falsify_resumed_run_stops_at_the_same_step(
    subject: Any, values: list[float], rules: dict[str, Any], cut: int, save_every: int
) -> None:
    at = stops_at(values, **rules) or len(values)
    script, saved = Script(1, len(values), None, ((),), every=(0, 1, save_every)), list[Any]()

    def steps_of_run(done: int, callback: EarlyStopping, **options: Any) -> int:
        """Return the steps of a run that continues after `done` evaluations."""
        remaining = itertools.islice(values, done, None)
        options = parts() | options | {"evaluate": lambda: {callback.metric: next(remaining)}}
        return int(run(subject, script, [callback], options).steps_completed)

    case = f"{rules} of {values}"
    steps = steps_of_run(0, EarlyStopping("it", **rules), save=saved.append)
    assert_equal(f"{case}: steps", steps, at)
    cut, callback = (cut - 1) % at + 1, EarlyStopping("it", **rules)
    steps = steps_of_run(cut, callback, resume_from=ResumePoint(state=saved[cut - 1]))
    assert_equal(f"{case}: steps of a run resumed at step {cut}", steps, at)
    assert_equal(f"{case}: steps of a new run with the same callback", steps_of_run(0, callback), at)
    if cut < at:
        later = stops_at(values[cut:], **rules)
        expected = cut + later if later else len(values)
        steps = steps_of_run(cut, EarlyStopping("another", **rules), resume_from=ResumePoint(state=saved[cut - 1]))
        assert_equal(f"{case}: steps after resuming at step {cut} with another metric", steps, expected)


ARGUMENTS: list[tuple[str, Any]] = [
    *(("mode", "least"), ("source", "training")),
    *(("patience", value) for value in (0, 1.0, True, None)),
    *(("min_delta", value) for value in (-0.1, math.nan)),
]


def falsify_arguments_outside_their_domain_are_refused(subject: Any) -> None:
    without_evaluation = SimpleNamespace(settings=Settings(eval_every=0))
    calls: list[tuple[Callable[[], Any], tuple[str, ...]]] = [
        *((partial(subject.EarlyStopping, "it", **{name: value}), (name, repr(value))) for name, value in ARGUMENTS),
        *((partial(actions_of, subject.EarlyStopping("no", source=s), [1.0], s), ("'no'", "it, x")) for s in SOURCES),
        (partial(subject.EarlyStopping("it").attach, without_evaluation), ("'it'",)),
    ]
    for call, words in calls:
        assert_refused(f"{call}", call, *words)
    subject.EarlyStopping("it", source="log").attach(without_evaluation)


TOKENS, LENGTH = 4, 12
WORDS = st.tuples(st.lists(st.integers(0, TOKENS - 1), min_size=1, max_size=LENGTH), st.integers(0, 3))
DOCUMENTS = st.lists(WORDS, min_size=1, max_size=24)
"""By document: its tokens, and the length of its prompt."""
BEST = st.lists(st.integers(0, TOKENS - 1), min_size=TOKENS, max_size=TOKENS)
"""The most probable successor of each token."""

Counts = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Table:
    """A model whose logits depend on the last token."""

    best: list[int]
    vocab_size: int = TOKENS

    def logits(self, batch: Any) -> Tensor:
        return torch.eye(TOKENS, dtype=torch.float64)[torch.tensor(self.best)][batch.tokens]


def rows(documents: list[tuple[list[int], int]], batch_size: int, *, pack: bool) -> Any:
    """Return the trainer's rows of documents."""
    texts = [Document(torch.tensor(tokens), prompt=min(prompt, len(tokens))) for tokens, prompt in documents]
    return rows_of_documents(texts, pack=pack, length=LENGTH, batch_size=batch_size, device=torch.device("cpu"))


def drafts(agreements: list[bool], depth: int) -> Counts:
    """Return hits and trials by depth in one stretch of scored tokens.

    A draft starts at every token, and ends with its first token that is not accepted.
    """
    counts = [(0, 0)] * depth
    for start in range(len(agreements)):
        for k, agrees in enumerate(agreements[start : start + depth]):
            hits, trials = counts[k]
            counts[k] = (hits + agrees, trials + 1)
            if not agrees:
                break
    return counts


def total(parts: list[Counts], depth: int) -> Counts:
    """Return the sums of hits and trials."""
    return [(sum(part[k][0] for part in parts), sum(part[k][1] for part in parts)) for k in range(depth)]


def length_of(counts: Counts) -> Fraction:
    """Return the expected length: the sum over depths of the product of the accepted shares up to the depth.

    The sum ends before the first depth without a trial.
    """
    length, probability = Fraction(0), Fraction(1)
    for hits, trials in counts:
        if not trials:
            break
        probability *= Fraction(hits, trials)
        length += probability
    return length


def accepted_in(documents: list[tuple[list[int], int]], student: list[int], teacher: list[int], depth: int) -> Counts:
    """Return hits and trials over documents; the first token and the prompt of a document are not scored."""
    parts = []
    for tokens, prompt in documents:
        context = tokens[max(prompt, 1) - 1 : -1]
        parts.append(drafts([student[token] == teacher[token] for token in context], depth))
    return total(parts, depth)


WIDTH = 9
ROW = st.tuples(*(st.tuples(st.booleans(), st.sampled_from([True, True, False]), st.integers(0, 1)),) * WIDTH)
"""By position: whether the models agree, whether it is scored, and whether a document begins there."""


@given(positions=st.lists(ROW, min_size=1, max_size=4), depth=st.integers(0, WIDTH + 1), segmented=st.booleans())
def falsify_drafts_are_counted_in_each_stretch(
    subject: Any, device: str, positions: list[Any], depth: int, segmented: bool
) -> None:
    table = torch.tensor(positions, device=device)
    agreed, scored, numbers = table[..., 0] > 0, table[..., 1] > 0, table[..., 2].cumsum(1)
    parts = []
    for row in positions:
        stretch: list[bool] = []
        for agrees, is_scored, begins in row:
            if not is_scored or (segmented and begins):
                parts.append(drafts(stretch, depth))
                stretch = []
            stretch += [agrees] if is_scored else []
        parts.append(drafts(stretch, depth))
    hits, trials = subject.count_accepted(agreed, scored, numbers if segmented else None, depth)
    seen = [(int(hit), int(trial)) for hit, trial in zip(hits, trials, strict=True)]
    expected = total(parts, depth)
    assert_equal(f"hits and trials of {positions} to depth {depth}, segmented {segmented}", seen, expected)


COUNTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)).map(sorted), min_size=1, max_size=4)
UNEVEN = [[[7, 8], [2, 4]], [[1, 2], [0, 1]]]
"""Totals of 8/10 and 2/5: the length is 0.8 + 0.8 * 0.4 = 1.12. A mean over the two batches would be 0.906."""


@given(batches=st.lists(COUNTS, min_size=1, max_size=4))
@example(batches=UNEVEN)
def falsify_length_is_that_of_all_drafts(subject: Any, batches: list[list[list[int]]]) -> None:
    sums: dict[str, MetricSum] = {}
    for batch in batches:
        metrics = {f"accepted_{k}": MetricSum(float(hits), trials) for k, (hits, trials) in enumerate(batch, 1)}
        sums = subject.add(sums, metrics)
    depth = max(map(len, batches))
    padded = [[(hits, trials) for hits, trials in batch] + [(0, 0)] * (depth - len(batch)) for batch in batches]
    counts, seen = total(padded, depth), subject.derive_metrics(sums)
    if not counts[0][1]:
        assert "accept_length" not in seen, f"{batches}: accept_length without a trial is {seen['accept_length']}"
        return
    expected = 1.12 if batches == UNEVEN else float(length_of(counts))
    length = seen["accept_length"]
    assert math.isclose(length, expected, rel_tol=1e-12, abs_tol=0), f"{batches}: {length}; expected {expected}"
    untried = [f"accepted_{k}" for k, (_, trials) in enumerate(counts, 1) if not trials]
    assert not seen.keys() & untried, f"{batches}: metrics {seen} with {untried}, which have no trial"


BATCHES = (1, 3, 4, 7, 16)


@given(documents=DOCUMENTS, tables=st.tuples(BEST, BEST), depth=st.integers(1, 5), pack=st.booleans())
@example(documents=[([0, 1, 2, 3], 1), ([0], 0)], tables=([1, 2, 3, 0], [1, 2, 3, 0]), depth=5, pack=True)
def falsify_evaluation_counts_drafts_of_documents(
    subject: Any, documents: list[tuple[list[int], int]], tables: tuple[list[int], list[int]], depth: int, pack: bool
) -> None:
    counts = accepted_in(documents, *tables, depth)
    expected = {f"accepted_{k}": pair for k, pair in enumerate(counts, 1) if pair[1]}
    student, teacher = map(Table, tables)
    weights = Weights(temperature=1.0, ce_weight=1.0, kd_weight=1.0)
    for size in BATCHES:
        sums = subject.evaluate(teacher, student, rows(documents, size, pack=pack), weights, accept_depth=depth)
        seen = {name: (metric.sum, metric.count) for name, metric in sums.items() if name.startswith("accepted_")}
        assert_equal(f"hits and trials of {documents} in batches of {size}, pack {pack}", seen, expected)


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
    """Return the sums of an evaluation on `Text`, with the temperature and the weights of the last planned step."""
    weights = objective(run.settings).weights(run.schedule.planned_steps, run.schedule.planned_steps)
    options: dict[str, Any] = {"parallel": run.parallel, "accept_depth": accept_depth}
    sums: dict[str, Any] = evaluate(run.frozen, run.learner, Text(), weights, **options)
    return sums


def _evaluating(subject: Any) -> Any:
    """Return the distillation of small models, evaluated on two batches; one of three ranks has no batch."""

    class Evaluating(small_distillation(subject)):  # the subject is any module
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
    """A step with FSDP2 takes several times as long as with DDP, so its run has one epoch."""
    with scratch() as directory:
        every = {"strategy": strategy, "save_every": 2, "keep": 0, "epochs": 1 if strategy == "fsdp2" else 2}
        without = launched(small_distillation(subject), settings(directory, "without", **every), ranks)
        evaluated = launched(_evaluating(subject), settings(directory, "out", **every, eval_every=1), ranks)
        when = f"{ranks} ranks with {strategy}"
        for rank, end in enumerate(evaluated):
            _assert_as_expected(f"{when}, rank {rank}", end, without[0], evaluated[0])
        _assert_best_is_saved(when, directory, ranks if strategy == "fsdp2" else 1)


def accepted_drafts(weights: dict[str, torch.Tensor]) -> dict[str, float]:
    """Return the share of accepted tokens by depth, and the length of accepted drafts, counted draft by draft."""
    student, teacher = Model(5, seed=1).eval(), Model(3, seed=2).eval()
    student.load_state_dict(weights)
    agreed = (student(Text.tokens).argmax(-1) == teacher(Text.tokens).argmax(-1))[:, :-1].tolist()
    counts = total([drafts(row, DEPTH) for row in agreed], DEPTH)
    shares = {f"eval/accepted_{k}": hits / trials for k, (hits, trials) in enumerate(counts, 1) if trials}
    return {**shares, "eval/accept_length": float(length_of(counts))}


def assert_near(label: str, seen: float, expected: float) -> None:
    """Assert a metric of float32 models within the rounding error of their logits."""
    assert abs(seen - expected) <= 1e-5 * abs(expected), f"{label} is {seen}; expected {expected}"


def _assert_as_expected(where: str, seen: RankEnd, without: RankEnd, first: RankEnd) -> None:
    assert not seen.error, f"{where} raised {seen.error}"
    assert_same(f"{where}, weights of a run without evaluation", seen.weights, without.weights)
    metrics = seen.result["validation"]
    assert_equal(f"{where}, metrics as on rank 0", metrics, first.result["validation"])
    for name, expected in {**oracle(seen.weights), **accepted_drafts(seen.weights)}.items():
        assert_near(f"{where}: {name}", metrics[name], expected)


def _assert_best_is_saved(when: str, directory: Path, files: int) -> None:
    """Assert that best and due steps are saved with all files, and that every manifest has the best step so far."""
    losses = {line["step"]: line["metrics"]["eval/hard_loss"] for line in lines(directory, "out")}
    best = [s for s in losses if all(losses[s] < losses[t] for t in losses if t < s)]
    expected = sorted({*best, *(step for step in losses if step % 2 == 0), max(losses)})
    place = directory / "out" / "checkpoints"
    seen = saved_steps(place, "student")
    assert_equal(f"{when}, checkpoints", seen, expected)
    for step in seen:
        manifest = read_checkpoint(place / f"student-step{step}").manifest
        assert len(manifest.files) == files, f"{when}, step {step}: {sorted(manifest.files)}; expected {files} files"
        best_step = max(candidate for candidate in best if candidate <= step)
        assert manifest.best is not None and manifest.best.step == best_step, f"{when}: {manifest.best} not {best_step}"
