"""Attacks on the states that a run saves, on resuming from them, and on when a run waits for its losses.

The subject is `training.loop`. To read a step is to copy its sums from the device to the host.
"""

import functools
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from falsifiers.callbacks.lifecycle import (
    ANSWERS,
    ASKING,
    Call,
    Recorder,
    Script,
    answering_once,
    assert_same_calls,
    lifecycle,
    scripts,
)
from falsifiers.callbacks.real_run import SETTINGS, Raising, checkpoint, parts, recording_callbacks, run, schedule_of
from falsifiers.support import oracles
from falsifiers.support.assertions import assert_equal
from falsifiers.support.cases import IGNORED
from falsifiers.support.fake_cuda import fake_cuda
from falsifiers.support.runs import assert_same_history
from reference_trainer.callbacks.dispatch import Observer
from reference_trainer.distillation.losses import loss_by_blocks, raise_fault
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import FixtureStudent, FixtureTeacher, ModuleStudent
from reference_trainer.errors import StopRequestedError
from reference_trainer.plan.schedule import Event, Position, Schedule
from reference_trainer.training.state import ResumePoint, RunServices, TrainState, state_from_json, state_to_json

TEACHER = ((2.0, 0.0, -1.0), (0.0, 40.0, 0.0), (1.0, -2.0, 0.0))
STUDENT = ((-1.0, 0.0, 2.0), (0.0, 40.0, 0.0), (0.0, -2.0, 1.0))
TEMPERATURE = 2.0
CLOSE = 1e-12  # some hundred roundings of 2^-53 of numbers up to 10
SCHEDULE_FIELDS = ("epochs", "steps_per_epoch", "limit", "accumulation", "micro_batches", "log_every")
Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over `count` scored tokens, by name: in nats; `agreement` is a number of tokens."""

    nats: dict[str, float]
    count: int

    def mean(self, name: str) -> float | None:
        return self.nats[name] / self.count if self.count else None


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule, and the micro-batches [1, T] that it repeats in turn, as (token, label) pairs."""

    epochs: int
    micro_batches: int
    accumulation: int
    limit: int | None
    log_every: int
    batches: tuple[Pairs, ...]
    weights: tuple[float, float] = (0.3, 0.7)

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(self.micro_batches / self.accumulation)

    @property
    def steps(self) -> int:
        planned = self.epochs * self.steps_per_epoch
        return planned if self.limit is None else min(planned, self.limit)

    def pairs(self, epoch: int, k: int) -> Pairs:
        return self.batches[((epoch - 1) * self.micro_batches + k - 1) % len(self.batches)]

    def sums(self, step: int) -> Sums:
        """Return the oracle's sums of a step, from 1: over the micro-batches of its window."""
        epoch, earlier_steps = divmod(step - 1, self.steps_per_epoch)
        first = earlier_steps * self.accumulation + 1
        window = range(first, min(first + self.accumulation - 1, self.micro_batches) + 1)
        return add_sums([_sums(self.pairs(epoch + 1, k), self.weights) for k in window])


@functools.cache
def _sums(pairs: Pairs, weights: tuple[float, float]) -> Sums:
    """Return the oracle's sums of a micro-batch; weights: of cross-entropy and of KL divergence."""
    rows = [(token, label) for (token, _), (_, label) in itertools.pairwise(pairs) if label != IGNORED]
    student, (hard, soft) = [list(row) for row in STUDENT], weights
    ce = math.fsum(oracles.cross_entropy(student[token], label) for token, label in rows)
    kl = math.fsum(oracles.forward_kl(student[token], TEACHER[token], TEMPERATURE) for token, _ in rows)
    loss = (hard * ce if hard else 0.0) + (soft * TEMPERATURE**2 * kl if soft else 0.0)
    nats = {"loss": loss, "hard_loss": ce, "soft_loss": TEMPERATURE**2 * kl, "kl_at_T": kl}
    nats["kl_at_1"] = math.fsum(oracles.forward_kl(student[token], TEACHER[token], 1.0) for token, _ in rows)
    nats["teacher_loss"] = math.fsum(oracles.cross_entropy(TEACHER[token], label) for token, label in rows)
    log_p = [oracles.log_softmax(TEACHER[token]) for token, _ in rows]
    nats["teacher_entropy"] = -math.fsum(math.exp(x) * x for row in log_p for x in row)
    # The most probable token after each token, of student and teacher.
    best = [[row.index(max(row)) for row in model] for model in (student, [list(row) for row in TEACHER])]
    nats["agreement"] = sum(best[0][token] == best[1][token] for token, _ in rows)
    return Sums(nats, len(rows))


def add_sums(parts: Sequence[Sums]) -> Sums:
    """Return the sums over several parts."""
    names = parts[0].nats
    return Sums({n: math.fsum(part.nats[n] for part in parts) for n in names}, sum(part.count for part in parts))


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Draw runs of up to 18 steps with windows of up to 3 micro-batches; some have no scored token."""
    pairs = st.tuples(st.integers(0, 2), st.sampled_from([IGNORED, 0, 1, 2]))
    batch = st.lists(pairs, min_size=2, max_size=4).map(tuple)
    unscored = st.just(((0, IGNORED), (1, IGNORED)))
    numbers = draw(st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 3), st.none() | st.integers(1, 9)))
    return Plan(
        *numbers,
        log_every=draw(st.sampled_from([0, 1, 2, 3, 1000])),
        batches=tuple(draw(st.lists(batch | unscored, min_size=1, max_size=7))),
        weights=draw(st.sampled_from([(0.3, 0.7), (1.0, 0.0), (0.0, 1.0)])),
    )


def train(
    subject: Any,
    plan: Plan,
    device: str,
    callbacks: Sequence[Any],
    *,
    batches_on: str | None = None,
    save_every: int = 0,
    **options: Any,
) -> Any:
    """Train as planned, with a learning rate of 0 and other arguments of `loop.train`, and return the result."""
    hard, soft = plan.weights

    def batch_at(epoch: int, k: int) -> Batch:
        tokens, labels = torch.tensor(plan.pairs(epoch, k), device=batches_on or device).T
        return Batch(tokens=tokens[None], labels=labels[None])

    return subject.train(
        FixtureTeacher(torch.tensor(TEACHER, dtype=torch.float64, device=device)),
        FixtureStudent(torch.tensor(STUDENT, dtype=torch.float64, device=device), 0.0),
        batch_at,
        None,
        schedule=Schedule(**{name: getattr(plan, name) for name in SCHEDULE_FIELDS}, save_every=save_every),
        objective=subject.Objective(temperature=TEMPERATURE, ce_weight=hard, kd_weight=soft),
        callbacks=callbacks,
        **{"learning_rate": lambda step: 0.0, **options},
    )


def is_close(actual: float | None, expected: float | None) -> bool:
    """Return whether two losses are equal within rounding; None equals only itself."""
    if actual is None or expected is None:
        return actual == expected
    return math.isclose(actual, expected, rel_tol=CLOSE, abs_tol=CLOSE)


FIELDS = ("learning_rate", "loss", "best_loss", "tokens", "sequences")


def rate_of(step: int) -> float:
    """Return a learning rate that differs from step to step."""
    return 0.5 / step


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a run passes to its `save` service.

    Attributes:
        text: The state as JSON.
        table: The logits of the student; None for a student without a table.
        due: Whether a checkpoint is due at this step.
        evaluated: Whether the step was evaluated.
        calls: The number of calls of hooks before.
    """

    text: str
    table: Tensor | None
    due: bool
    evaluated: bool
    calls: int

    @property
    def state(self) -> TrainState:
        return state_from_json(self.text)


class RecordedRun:
    """A real run of a script, whose clock shows the number of calls of hooks so far.

    Arguments: `resumed` is the snapshot from which the run continues, and `with_path` whether its checkpoint has a
    path; the run is requested to stop in the call `stop_at`, from 0. Results: `loaded_states` are the states that
    callbacks get back, as (calls before, callback, state); `contexts` has the fields of the context of each call,
    without times; `stop_error` is the error that ends a run that was requested to stop.
    """

    def __init__(
        self,
        subject: Any,
        script: Script,
        *,
        resumed: Snapshot | None = None,
        with_path: bool = True,
        stop_at: int | None = None,
        evaluate: Any = lambda: {"hard_loss": 2.0},
        **options: Any,
    ) -> None:
        self.recorder, self.stop_at = Recorder(script), stop_at
        self.snapshots: list[Snapshot] = []
        self.loaded_states: list[tuple[int, int, Any]] = []
        self.elapsed: list[float] = []
        self.result: Any = None
        self.stop_error: StopRequestedError | None = None
        self.contexts: list[dict[str, Any]] = []
        needed, point = parts() | {"learning_rate": rate_of} | options, None
        if resumed is not None:
            needed["student"] = FixtureStudent(resumed.table, 1.0)
            state = resumed.state
            point = ResumePoint(state=state, checkpoint=checkpoint(state.position.step) if with_path else None)
        self.student = needed["student"]
        try:
            self.result = subject.train(
                **needed,
                schedule=schedule_of(script),
                objective=subject.Objective(**SETTINGS),
                callbacks=self._callbacks(),
                services=RunServices(
                    evaluate=evaluate,
                    save=self._save,
                    stop_requested=lambda: self.requested,
                    clock=lambda: float(len(self.calls)),
                ),
                resume_from=point,
            )
        except StopRequestedError as error:
            self.stop_error = error

    @property
    def calls(self) -> list[Call]:
        return self.recorder.calls

    @property
    def requested(self) -> bool:
        return self.stop_at is not None and len(self.calls) > self.stop_at

    def _callbacks(self) -> list[Any]:
        callbacks = recording_callbacks(len(self.recorder.script.answers), self._act)
        for number, callback in enumerate(callbacks):
            callback.state_dict = lambda number=number: {"events": self.recorder.events[number]}
            callback.load_state_dict = lambda state, number=number: self.loaded_states.append(
                (len(self.calls), number, state)
            )
        return callbacks

    def _act(self, callback: int, event: str, context: Any) -> Any:
        self.elapsed.append(context.elapsed_s)
        metrics = {name: value for name, value in context.metrics.items() if not name.endswith("_per_s")}
        fields = {name: getattr(context, name) for name in FIELDS}
        self.contexts.append(fields | {"metrics": metrics, "evaluation": dict(context.validation_metrics)})
        return self.recorder.act(callback, event, context)

    def _save(self, run: Any) -> Any:
        table, calls = getattr(self.student, "logits_table", None), len(self.calls)
        self.snapshots.append(Snapshot(state_to_json(run.state), table, run.due, run.evaluated, calls))
        return checkpoint(run.state.position.step) if run.due else None


def resumed_script(script: Script, at: Position, *, with_path: bool) -> tuple[Script, list[Call]]:
    """Return the script of a run that resumes from a saved position, and its expected calls.

    The calls are `on_train_begin`, `on_save` if the checkpoint has a path, and the calls of the uninterrupted run from
    the `on_step_end` of the step on, or from `on_train_end` if it was saved then. The step is not saved again. The
    answers are those that the uninterrupted run gives from there on.
    """
    count, step = len(script.answers), at.step
    uninterrupted = lifecycle(script).calls
    hook = "on_train_end" if at.event is Event.TRAIN_END else "on_step_end"
    first = next(place for place, call in enumerate(uninterrupted) if (call.event, call.step) == (hook, step))
    begin = ["on_train_begin", *(["on_save"] if with_path else [])]
    calls = [Call(callback, event, uninterrupted[first].epoch, step) for event in begin for callback in range(count)]
    answers = tuple((None,) * len(begin) + later[first // count :] for later in script.answers)
    remaining = [call for call in uninterrupted[first:] if (call.event, call.step) != ("on_save", step)]
    return replace(script, answers=answers), calls + remaining


WAITING = {f"__{name}__" for name in ("bool", "int", "float", "index", "contains")}
WAITING |= set("item tolist cpu numpy nonzero argwhere masked_select unique equal allclose".split())
"""Functions and methods of tensors for whose result the host waits."""

CHECKS = {part.__module__ for part in (loss_by_blocks, raise_fault, FixtureStudent, FixtureTeacher)}
"""Modules that check logits, labels and tokens and wait for the result. These operations are not counted."""


class RecordReads(TorchFunctionMode):
    """Call `note` with the name of each operation that waits, except in `CHECKS`."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        waits = name in WAITING or (name == "to" and _to_the_host(args)) or (name == "__getitem__" and _masks(args))
        if waits and not _checking():
            self._note(name)
        return func(*args, **(kwargs or {}))


def _to_the_host(args: Any) -> bool:
    """Return whether the call copies a tensor of another device to the CPU."""
    targets = [torch.device(x) for x in args[1:] if isinstance(x, str | torch.device)]
    targets += [x.device for x in args[1:] if isinstance(x, Tensor)]
    return args[0].device.type != "cpu" and any(device.type == "cpu" for device in targets)


def _masks(args: Any) -> bool:
    """Return whether a mask selects elements, whose number the host waits for."""
    return any(isinstance(x, Tensor) and x.dtype is torch.bool for x in tree_leaves(args[1]))


def _checking() -> bool:
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") in CHECKS:
            return True
        frame = frame.f_back
    return False


EVENTS = ("on_train_begin", "on_epoch_begin", "on_step_end", "on_epoch_end", "on_train_end")
LONG = Plan(1, 257, 1, None, 0, (((0, 1), (1, 2)),))
"""A run of 257 steps, one more than the steps that a run takes at most without a read."""


class Log:
    """The events of a run and the reads between them; the callback reads three values of the context in some steps."""

    def __init__(self, requested: frozenset[int]) -> None:
        self.entries: list[str] = []
        self.requested = requested

    def act(self, callback: int, event: str, context: Any) -> None:
        if event not in EVENTS:
            return  # the other hooks read nothing, so `entries` lacks them
        self.entries.append(f"{event} {context.step}")
        if event == "on_step_end" and context.step in self.requested:
            values = context.loss, context.best_loss, context.tokens
            self.entries.append(f"{len(values)} values requested")


def _expected(plan: Plan, requested: frozenset[int], save_every: int) -> list[str]:
    """Return the expected entries of `Log`: a read at logged, saved and 256th steps, ends of epochs, and requests."""
    entries, unread = ["on_train_begin 0"], 0
    for step in range(1, plan.steps + 1):
        if step % plan.steps_per_epoch == 1 or plan.steps_per_epoch == 1:
            entries.append(f"on_epoch_begin {step - 1}")
        unread += 1
        is_saved = save_every > 0 and (step % save_every == 0 or step == plan.steps)
        if is_saved or step % 256 == 0 or (plan.log_every and step % plan.log_every == 0):
            entries.append("read")
            unread = 0
        entries.append(f"on_step_end {step}")
        if step in requested:
            entries += ["read"] * bool(unread) + ["3 values requested"]
            unread = 0
        if step % plan.steps_per_epoch == 0 or step == plan.steps:
            entries += ["read"] * bool(unread) + [f"on_epoch_end {step}"]
            unread = 0
    return [*entries, f"on_train_end {plan.steps}"]


@given(
    plan=plans(),
    requested=st.just(frozenset()) | st.frozensets(st.integers(1, 18)),
    save_every=st.sampled_from([0, 0, 2]),
)
@example(plan=LONG, requested=frozenset(), save_every=0)
def falsify_reads_are_scheduled(
    subject: Any, device: str, plan: Plan, requested: frozenset[int], save_every: int
) -> None:
    log = Log(requested)
    with RecordReads(lambda name: log.entries.append("read")):
        train(subject, plan, device, recording_callbacks(1, log.act), save_every=save_every)
    expected = _expected(plan, requested, save_every)
    case = f"logged every {plan.log_every}, saved every {save_every}, losses requested in {sorted(requested)}: reads"
    assert_same_history(case, log.entries, expected)


@given(plan=plans())
def falsify_batches_may_stay_on_the_host(subject: Any, plan: Plan) -> None:
    """Train with batches on the CPU and both models on fake CUDA, which refuses operations that mix devices."""
    with fake_cuda():
        result = train(subject, plan, "cuda", [], batches_on="cpu")
    scored = [loss for loss in _losses(plan) if loss is not None] or [None]
    for name, wanted in (("initial_loss", scored[0]), ("final_loss", scored[-1])):
        assert is_close(getattr(result, name), wanted), f"{name} is {getattr(result, name)}; expected {wanted}"


SCRIPTS = scripts(st.none(), fewest=1) | scripts(ANSWERS, fewest=1)
PLACES, CALL_NUMBERS = st.integers(0, 20), st.integers(0, 300)


def steps_of(calls: list[Call]) -> list[int]:
    """Return the completed steps, in order."""
    return [call.step for call in calls if call.event == "on_step_end" and call.callback == 0]


@given(script=SCRIPTS, every=st.tuples(*[st.integers(0, 3)] * 2), has_evaluator=st.booleans())
def falsify_evaluated_and_due_steps_are_handed_over(
    subject: Any, script: Script, every: tuple[int, int], has_evaluator: bool
) -> None:
    """every: the intervals of evaluations and checkpoints. evaluating: whether the run has an evaluator."""
    evaluate = every[0]
    script = replace(script, every=(script.every[0], *every))
    run = RecordedRun(subject, script, **({} if has_evaluator else {"evaluate": None}))
    saves = [save for save in run.snapshots if save.evaluated or save.due]
    actual = [(save.state.position.step, save.evaluated, save.due) for save in saves]
    steps = steps_of(lifecycle(script if has_evaluator else replace(script, every=(0, 0, every[1]))).calls)
    expected = [(s, has_evaluator and evaluate > 0 and s % evaluate == 0, script.is_saved(s)) for s in steps]
    wanted = [save for save in expected if any(save[1:])]
    # The last step of a run that a callback ends is saved before on_train_end.
    wanted += [(steps[-1], False, True)] if every[1] and steps and not script.is_saved(steps[-1]) else []
    assert actual == wanted, f"(step, evaluated, due) of the saves are {actual}; expected {wanted}"


Cut = tuple[Script, int, int | None]
"""A script, the index of the snapshot from which to resume, and the call in which a stop is requested, or None."""


@st.composite
def cuts(draw: st.DrawFn) -> Cut:
    """Draw a script with checkpoints, or with a request to stop: in any call, or in one that a callback answers."""
    script, requested = draw(SCRIPTS), draw(st.sampled_from(["never", "anywhere", "with an answer"]))
    if requested == "never":
        return replace(script, every=(*script.every[:2], draw(st.integers(1, 3)))), draw(PLACES), None
    if requested == "anywhere":
        return script, -1, draw(CALL_NUMBERS) % len(lifecycle(script).calls)
    script = answering_once(script, draw(CALL_NUMBERS), [draw(st.sampled_from(["SKIP", "STOP"]))])
    return script, -1, (len(script.answers[0]) - 1) * len(script.answers)


@given(drawn=cuts(), with_path=st.booleans())
def falsify_a_run_goes_on_from_a_saved_step(subject: Any, drawn: Cut, with_path: bool) -> None:
    """Compare a resumed run with the uninterrupted one: calls, contexts, states of callbacks, and elapsed time.

    The clock of a `RecordedRun` counts calls, so n calls take n seconds.
    """
    script, place, stop_at = drawn
    uninterrupted = RecordedRun(subject, script, stop_at=stop_at)
    assume(uninterrupted.snapshots if stop_at is None else uninterrupted.stop_error)
    start, count = uninterrupted.snapshots[place % len(uninterrupted.snapshots)], len(script.answers)
    remaining, expected = resumed_script(script, start.state.position, with_path=with_path)
    run = RecordedRun(subject, remaining, resumed=start, with_path=with_path)
    assert_same_calls(run.calls, expected)
    if stop_at is not None:
        uninterrupted = RecordedRun(subject, script)
        _assert_states_before_the_step_ends(script, start, run.loaded_states)
    else:
        states = [(0, number, {"events": start.calls // count}) for number in range(count)]
        assert_equal("(calls before, callback, its state)", run.loaded_states, states)
    planned, result = lifecycle(script), run.result
    assert_equal("steps and stopped", (result.steps_completed, result.stopped), (planned.steps, planned.stopped))
    _assert_same_contexts(uninterrupted, run)
    seconds = start.state.elapsed_s
    assert_equal("elapsed_s of the saved state", seconds, start.calls)
    # The callbacks of an event share one reading of the clock.
    times = [seconds + call // count * count for call in range(len(expected))]
    assert_equal(f"elapsed_s of the calls, resumed after {seconds} s", run.elapsed, times)
    assert_equal("elapsed_s of the result", run.result.elapsed_s, seconds + len(expected))
    # Without a path, the checkpoint belongs to another run, so this run has to save the step itself.
    if start.state.position.event is Event.SAVE:
        again = RecordedRun(subject, remaining, resumed=start, with_path=with_path, stop_at=0)
        steps = [save.state.position.step for save in again.snapshots]
        wanted = [] if with_path else [start.state.position.step]
        assert_equal(f"steps that the resumed run saves if it is asked to stop at once, {with_path=}", steps, wanted)


@given(script=scripts(ASKING, fewest=1), place=PLACES, save=st.integers(1, 3))
def falsify_what_was_asked_for_survives_a_cut(subject: Any, script: Script, place: int, save: int) -> None:
    """A log, evaluation or checkpoint that a callback requested before the save is made by the resumed run."""
    script = replace(script, every=(*script.every[:2], save))
    uninterrupted = RecordedRun(subject, script)
    assume(uninterrupted.snapshots)
    start = uninterrupted.snapshots[place % len(uninterrupted.snapshots)]
    remaining, expected = resumed_script(script, start.state.position, with_path=True)
    assert_same_calls(RecordedRun(subject, remaining, resumed=start).calls, expected)


def _assert_same_contexts(uninterrupted: RecordedRun, run: RecordedRun) -> None:
    """Assert that contexts equal the uninterrupted run's; the first one has the learning rate of the saved step."""
    contexts, (first, *_) = dict(zip(uninterrupted.calls, uninterrupted.contexts, strict=True)), run.contexts
    step = run.calls[0].step
    assert_equal(f"learning rate on resuming after step {step}", first["learning_rate"], rate_of(step))
    for call, context in zip(run.calls, run.contexts, strict=True):
        if call.event not in ("on_train_begin", "on_save"):
            assert_equal(f"resumed after step {step}, context of {call}", context, contexts[call])


def _assert_states_before_the_step_ends(
    script: Script, start: Snapshot, loaded_states: list[tuple[int, int, Any]]
) -> None:
    """Assert that callbacks get the states before `on_save` or `on_step_end`, which the resumed run calls again."""
    step, count = start.state.position.step, len(script.answers)
    hook = "on_save" if script.is_saved(step) else "on_step_end"
    calls = lifecycle(script).calls
    events = next(place for place, call in enumerate(calls) if (call.event, call.step) == (hook, step)) // count
    actual, states = [state[1:] for state in loaded_states], [(number, {"events": events}) for number in range(count)]
    assert_equal(f"stop requested in step {step}: (callback, its state)", actual, states)


class SlowObserver(Observer):
    """An observer that needs `seconds` for each step."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.steps = seconds, list[int]()

    def on_optimizer_step(self, context: Any) -> None:
        time.sleep(self.seconds)
        self.steps.append(context.step)


@given(script=scripts(st.none()), save=st.integers(1, 3))
def falsify_a_step_is_saved_after_its_observers(subject: Any, script: Script, save: int) -> None:
    observers, saves = [SlowObserver(0), SlowObserver(0.002)], list[tuple[int, list[list[int]]]]()

    def record(state: Any) -> None:
        saves.append((state.position.step, [list(observer.steps) for observer in observers]))

    script = replace(script, every=(*script.every[:2], save))
    run(subject, script, observers, parts() | {"save": record})
    expected = [(step, [list(range(1, step + 1))] * 2) for step, _ in saves]
    assert_equal("(saved step, steps that each of two observers has handled before)", saves, expected)


@st.composite
def failing_fetches(draw: st.DrawFn) -> tuple[Script, int]:
    """Draw a script, and a call of on_step_begin of a step after the first."""
    silent = draw(scripts(st.none(), fewest=1))
    count, calls = len(silent.answers), lifecycle(silent).calls
    begins = [n for n, call in enumerate(calls) if (call.event, call.callback) == ("on_step_begin", 0) and call.taken]
    assume(begins)
    return silent, begins[draw(CALL_NUMBERS) % len(begins)] + draw(st.integers(0, count - 1))


@given(drawn=failing_fetches())
def falsify_a_failure_after_a_request_loses_no_step(subject: Any, drawn: tuple[Script, int]) -> None:
    """Request a stop in on_step_begin of a step, and fail to fetch the data of this step."""
    script, at = drawn
    calls, count = lifecycle(script).calls, len(script.answers)
    step, epoch = calls[at].step, calls[at].epoch
    earlier = {call.step for call in calls[:at] if (call.event, call.epoch) == ("on_step_begin", epoch)} - {step}
    first = (epoch, 1 + script.accumulation * len(earlier))
    fetch = parts()["batch_at"]

    def batch_at(*place: int) -> Any:
        if place == first:
            raise RuntimeError("a worker was killed")
        return fetch(*place)

    case = f"stop requested in step {step}, whose data fail:"
    try:
        failed = RecordedRun(subject, script, stop_at=at, batch_at=batch_at)
    except RuntimeError as error:
        raise AssertionError(f"{case} the run raises {error!r}; expected StopRequestedError") from error
    assert failed.snapshots, f"{case} the run saves nothing; expected step {step - 1}"
    position = failed.snapshots[-1].state.position
    assert_equal(f"{case} last saved step", position.step, step - 1)
    forward = next(n for n, call in enumerate(calls) if (call.event, call.step) == ("on_before_forward", step))
    begin = [Call(n, event, epoch, step - 1) for event in ("on_train_begin", "on_save") for n in range(count)]
    remaining, events = [*begin, *calls[forward:]], forward // count
    if script.is_saved(step - 1):
        remaining = resumed_script(script, position, with_path=True)[1]
        events = next(n for n, call in enumerate(calls) if (call.event, call.step) == ("on_save", step - 1)) // count
    resumed = RecordedRun(subject, script, resumed=failed.snapshots[-1])
    assert_same_calls(resumed.calls, remaining)
    assert_equal(
        f"{case} states of callbacks", [state for *_, state in resumed.loaded_states], [{"events": events}] * count
    )


class FailingRun(RecordedRun):
    """A run whose callback raises in the call in which the stop is requested."""

    def _act(self, callback: int, event: str, context: Any) -> Any:
        answer = super()._act(callback, event, context)
        if len(self.calls) - 1 == self.stop_at:
            raise RuntimeError("a callback failed")
        return answer


@given(
    steps_per_epoch=st.integers(1, 2),
    name=st.sampled_from(["LOG", "EVALUATE", "SAVE", "STOP", "SKIP"]),
    hook=st.sampled_from(["on_epoch_end", "on_epoch_begin", "on_step_begin"]),
)
@example(steps_per_epoch=2, name="LOG", hook="on_step_begin")
@example(steps_per_epoch=1, name="SAVE", hook="on_epoch_begin")
@example(steps_per_epoch=1, name="STOP", hook="on_epoch_end")
def falsify_a_failing_callback_loses_no_answer(subject: Any, steps_per_epoch: int, name: str, hook: str) -> None:
    """Request an action in on_step_end of step 1, and fail in a later hook before the forward of step 2."""
    silent = Script(epochs=3, steps_per_epoch=steps_per_epoch, limit=None, answers=((),))
    answered = next(n for n, call in enumerate(lifecycle(silent).calls) if call.event == "on_step_end")
    script = replace(silent, answers=((None,) * answered + (name,),))
    calls = lifecycle(script).calls
    forward = ("on_before_forward", 2)
    second = next((n for n, call in enumerate(calls) if (call.event, call.step) == forward), len(calls))
    at = next((n for n in range(answered + 1, second) if calls[n].event == hook), None)
    assume(at is not None)
    case = f"{name} at the end of step 1 of {steps_per_epoch} in an epoch, and a failure in {hook}:"
    failed = FailingRun(subject, script, stop_at=at)
    assert failed.stop_error is not None and failed.snapshots, f"{case} the run saves nothing; expected step 1"
    place = failed.snapshots[-1].state.position
    begin = [Call(0, event, place.epoch, place.step) for event in ("on_train_begin", "on_save")]
    resumed = RecordedRun(subject, silent, resumed=failed.snapshots[-1])
    assert_same_calls(resumed.calls, [*begin, *calls[at:]])


OPTIMIZER = "Optimizer.step"
UPDATING = ["on_before_forward", "on_after_backward", "on_pre_optimizer_step", "on_optimizer_step"]
"""Hooks of a step between whose calls a student that applies its gradient itself may change."""


@given(hook=st.sampled_from([*UPDATING, OPTIMIZER]), step=st.integers(2, 3))
@example(hook=OPTIMIZER, step=2)
def falsify_a_failure_within_an_update_saves_nothing(subject: Any, hook: str, step: int) -> None:
    silent = Script(epochs=1, steps_per_epoch=3, limit=None, answers=((),))
    last = UPDATING[2] if hook == OPTIMIZER else hook
    at = next(n for n, call in enumerate(lifecycle(silent).calls) if (call.event, call.step) == (last, step))
    try:
        if hook == OPTIMIZER:
            module = torch.nn.Embedding(2, 2)
            failing = Raising(torch.optim.SGD(module.parameters()), "step", step, RuntimeError("half of an update"))
            run = RecordedRun(subject, silent, stop_at=at, student=ModuleStudent(module, 2), optimizer=failing)
        else:
            run = FailingRun(subject, silent, stop_at=at)
    except RuntimeError as error:
        assert hook != OPTIMIZER or str(error) == "half of an update", f"another error: {error!r}"
        return
    saved = [save.state.position.step for save in run.snapshots]
    raise AssertionError(f"stop requested in {hook} of step {step}, which fails: saved {saved}; expected RuntimeError")


def _losses(plan: Plan) -> list[float | None]:
    return [plan.sums(step).mean("loss") for step in range(1, plan.steps + 1)]


def _best(losses: list[float | None]) -> float | None:
    return min((loss for loss in losses if loss is not None), default=None)


@given(plan=plans(), delays=st.lists(st.integers(0, 20), min_size=1, max_size=6))
def falsify_late_contexts(subject: Any, device: str, plan: Plan, delays: list[int]) -> None:
    """Keep two contexts of each step, and read them some steps later and after the run."""
    contexts: list[tuple[int, Any]] = []

    def act(callback: int, event: str, context: Any) -> None:
        if event not in ("on_before_forward", "on_step_end"):
            return
        contexts.append((context.step + delays[context.step % len(delays)], context))
        for due, earlier in contexts:
            if due == context.step and event == "on_step_end":
                _assert_losses(earlier, plan, f"read at step {due}")

    train(subject, plan, device, recording_callbacks(1, act))
    for _, earlier in contexts:
        _assert_losses(earlier, plan, "read after the run")


def _assert_losses(context: Any, plan: Plan, when: str) -> None:
    step = context.step - (context.hook == "on_before_forward")  # the last step whose update is made
    losses, tokens = _losses(plan)[:step], sum(plan.sums(n).count for n in range(1, step + 1))
    for name, wanted in (("loss", losses[-1] if step else None), ("best_loss", _best(losses)), ("tokens", tokens)):
        actual = getattr(context, name)
        case = (
            f"{context.hook} of step {context.step}, {when}: {name} is {actual}; expected {wanted}, after step {step}"
        )
        assert is_close(actual, wanted), case


@given(plan=plans(), at=st.just(0) | st.integers(1, 17))
def falsify_metrics_of_logged_steps(subject: Any, device: str, plan: Plan, at: int) -> None:
    """Compare the metrics in every hook with the oracle's.

    at: resume after this step of a run that logged nothing, and so computed the loss and its terms only; 0: new run.
    """
    assume(at < plan.steps)
    metrics_by_event: list[tuple[str, dict[str, float]]] = []

    def act(callback: int, event: str, context: Any) -> None:
        metrics_by_event.append((f"{event} {context.step}", dict(context.metrics)))

    point: dict[str, Any] = {}
    if at:
        state = _stopped_state(subject, replace(plan, log_every=0), device, at, RunServices())
        point = {"resume_from": ResumePoint(state=state)}
    train(subject, plan, device, recording_callbacks(1, act), **point)
    expected = dict(_expected_metrics(plan, at))
    for event, metrics in metrics_by_event:
        wanted = expected.pop(event, None)
        assert bool(metrics) == (wanted is not None), f"{event}: the metrics are {metrics}; expected {wanted}"
        means = {name: value for name, value in metrics.items() if name in MEANS}
        is_equal = means.keys() == (wanted or {}).keys() and all(is_close(means[name], wanted[name]) for name in means)
        assert is_equal, f"{event}: the metrics are {means}; expected {wanted}"
    assert not expected, f"the run lacks the events {sorted(expected)}, which have metrics"


MEANS = ("loss", "hard_loss", "soft_loss", "kl_at_T", "kl_at_1", "teacher_loss", "teacher_entropy", "agreement")


def _stopped_state(subject: Any, plan: Plan, device: str, at: int, services: RunServices, **options: Any) -> TrainState:
    """Return the state that a run saves when it is asked to stop in step `at`."""
    states, polls = list[TrainState](), itertools.count(1)
    asked = replace(
        services,
        save=lambda run: states.append(state_from_json(state_to_json(run.state))),
        stop_requested=lambda: next(polls) >= at,
    )
    with suppress(StopRequestedError):
        train(subject, plan, device, [], services=asked, **options)
    assert_equal(f"saved steps of a run that is asked to stop in step {at}", [s.position.step for s in states], [at])
    return states[0]


def _expected_metrics(plan: Plan, at: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield events of logged steps with the oracle's metrics over the tokens of all steps since the last logged one.

    A teacher of weight 0 does not run, and has no metrics. Up to step `at`, the run formed only the loss and its terms,
    so the first line after it lacks the other metrics, unless no token was scored up to there.
    """
    last, interval = 0, plan.log_every or plan.steps + 1
    for step in range(interval, plan.steps + 1, interval):
        if step <= at:
            continue
        since = add_sums([plan.sums(logged) for logged in range(last + 1, step + 1)])
        has_all = last >= at or not any(plan.sums(unlogged).count for unlogged in range(1, at + 1))
        terms = [name for name, weight in zip(MEANS[1:3], plan.weights, strict=True) if weight]
        names = (MEANS if plan.weights[1] else MEANS[:2]) if has_all else (MEANS[0], *terms)
        last = step
        for event in ("on_log", "on_step_end"):
            yield f"{event} {step}", {name: since.nats[name] / since.count for name in names if since.count}


STEP_S, STEP_FLOPS = 0.5, 7


@given(plan=plans(), at=st.just(0) | st.integers(1, 17))
def falsify_rates_of_logged_steps(subject: Any, device: str, plan: Plan, at: int) -> None:
    """Use a clock that advances by `STEP_S` a step, and by a minute, which must not count, while FLOPs are counted.

    at: the step from which the run is resumed, at second 1000; 0 for a new run.
    """
    assume(at < plan.steps)
    now, logged_steps = [0.0], list[tuple[int, dict[str, float]]]()

    def act(callback: int, event: str, context: Any) -> None:
        if event == "on_step_end" and context.metrics and context.step > at:
            logged_steps.append((context.step, dict(context.metrics)))

    def rate_and_advance(step: int) -> float:
        now[0] += STEP_S
        return 0.0

    def count_flops() -> int:
        now[0] += 60
        return STEP_FLOPS

    services = RunServices(step_flops=count_flops, clock=lambda: now[0])
    options: dict[str, Any] = {"learning_rate": rate_and_advance}
    if at:
        state = _stopped_state(subject, plan, device, at, services, **options)
        now[0], options["resume_from"] = 1000.0, ResumePoint(state=state)
    result = train(subject, plan, device, recording_callbacks(1, act), services=services, **options)
    last = at
    for step, metrics in logged_steps:
        _assert_rates(plan, last, step, metrics)
        last = step
    assert_equal(f"elapsed_s of {plan.steps} steps", result.elapsed_s, plan.steps * STEP_S)
    logged = logged_steps[-1][1] if logged_steps else {}
    assert (at and not logged) or result.metrics == logged, (
        f"the result has {result.metrics}; expected the last logged ones, {logged}"
    )


def _assert_rates(plan: Plan, last: int, step: int, metrics: dict[str, float]) -> None:
    """Assert the rates of a logged step since step `last`, and its perplexities."""
    tokens = sum(plan.sums(later).count for later in range(last + 1, step + 1))
    expected = {"steps_per_s": 1 / STEP_S, "flops_per_s": STEP_FLOPS / STEP_S}
    expected["tokens_per_s"] = tokens / (step - last) / STEP_S
    for model, loss in (("student", "hard_loss"), ("teacher", "teacher_loss")):
        if loss in metrics:
            expected[f"{model}_perplexity"] = math.exp(min(metrics[loss], 20))
    for name, wanted in expected.items():
        assert is_close(metrics.get(name), wanted), f"step {step}: {name} is {metrics.get(name)}; expected {wanted}"


UNEVEN = Plan(1, 2, 1, None, 0, (((0, 1), (1, 2)), ((2, 0), (1, 1), (0, 2), (2, 0))))
"""An epoch of a step with one scored token and a step with three, so a mean of means differs from the mean."""


@given(plan=plans())
@example(plan=UNEVEN)
def falsify_result_does_not_depend_on_reads(subject: Any, device: str, plan: Plan) -> None:
    losses = _losses(plan)
    scored = [loss for loss in losses if loss is not None]
    expected = {
        "initial_loss": next(iter(scored), None),
        "final_loss": next(reversed(scored), None),
        "best_loss": _best(losses),
        "tokens": sum(plan.sums(step).count for step in range(1, plan.steps + 1)),
        "finite": True,
    }
    size, last = plan.steps_per_epoch, plan.steps
    epochs = [range(first, min(first + size - 1, last) + 1) for first in range(1, last + 1, size)]
    expected_means = [add_sums([plan.sums(step) for step in epoch]).mean("loss") for epoch in epochs]
    for log_every in (0, 1, 3, 1000):
        means: list[float | None] = []

        def act(callback: int, event: str, context: Any, means: list[float | None] = means) -> None:
            if event == "on_epoch_end":
                means.append(context.loss)

        result = train(subject, replace(plan, log_every=log_every), device, recording_callbacks(1, act))
        for name, wanted in expected.items():
            actual = getattr(result, name)
            assert is_close(actual, wanted), f"logged every {log_every}: {name} is {actual}; expected {wanted}"
        is_equal = len(means) == len(expected_means) and all(map(is_close, means, expected_means))
        assert is_equal, f"logged every {log_every}: the losses of epochs are {means}; expected {expected_means}"
