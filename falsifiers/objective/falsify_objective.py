"""Attacks on objectives, on weights and temperatures that change with the steps, and on deferred errors."""

import itertools
import math
from functools import partial
from typing import Any

import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.callbacks.real_run import after_steps, recording_callbacks
from falsifiers.support import oracles
from falsifiers.support.assertions import assert_equal
from falsifiers.support.oracles import assert_refused
from falsifiers.support.runs import run, scratch, small
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import FixtureStudent, FixtureTeacher, ModuleStudent
from reference_trainer.errors import LogitsError
from reference_trainer.plan.objective import Annealed
from reference_trainer.plan.schedule import Schedule
from reference_trainer.training.state import UpdateOptions

TEACHER, STUDENT = (2.0, 0.0, -1.0), (-1.0, 0.5, 1.0)
LABEL, CLOSE = 2, 1e-12
NUMBERS = st.floats(0.25, 4)
NAMES = ("temperature", "ce_weight", "kd_weight")


def _train_constant(
    subject: Any, objective: Any, epochs: int, steps: int, limit: int | None = None, accumulation: int = 1
) -> list[dict[str, float]]:
    """Return the metrics of each step of a run with learning rate 0 and one scored token, whose label is `LABEL`."""
    callbacks, metrics_by_step = after_steps(lambda context: dict(context.metrics))
    tokens = torch.tensor([[0, LABEL]])
    subject.train(
        FixtureTeacher(torch.tensor([TEACHER] * 3, dtype=torch.float64)),
        FixtureStudent(torch.tensor([STUDENT] * 3, dtype=torch.float64), 0.0),
        lambda epoch, k: Batch(tokens=tokens, labels=tokens),
        None,
        schedule=Schedule(epochs=epochs, steps_per_epoch=steps, limit=limit, log_every=1, accumulation=accumulation),
        objective=objective,
        learning_rate=lambda step: 0.0,
        callbacks=callbacks,
    )
    return metrics_by_step


@given(
    ends=st.tuples(*[st.tuples(NUMBERS, NUMBERS)] * 3),
    annealed=st.sets(st.sampled_from(NAMES)),
    epochs=st.integers(1, 3),
    steps=st.integers(1, 4),
    limit=st.none() | st.integers(1, 4),
    accumulation=st.integers(1, 3),
)
def falsify_each_value_follows_its_schedule(
    subject: Any,
    ends: tuple[Any, ...],
    annealed: set[str],
    epochs: int,
    steps: int,
    limit: int | None,
    accumulation: int,
) -> None:
    pairs = dict(zip(NAMES, ends, strict=True))
    values = {n: Annealed(*pair, "linear", name=n) if n in annealed else pair[0] for n, pair in pairs.items()}
    metrics_by_step = _train_constant(subject, subject.Objective(**values), epochs, steps, limit, accumulation)
    assert_equal("steps of the run", len(metrics_by_step), min(epochs * steps, limit or epochs * steps))
    for step, metrics in enumerate(metrics_by_step, start=1):
        share = (step - 1) / max(epochs * steps - 1, 1)  # of the planned steps; a limit does not change it
        now = {n: a + (b - a) * share if n in annealed else a for n, (a, b) in pairs.items()}
        tau = now["temperature"]
        hard, soft = oracles.cross_entropy(STUDENT, LABEL), tau**2 * oracles.forward_kl(STUDENT, TEACHER, tau)
        expected = {**now, "loss": now["ce_weight"] * hard + now["kd_weight"] * soft, "soft_loss": soft}
        for name, value in expected.items():
            case = f"step {step} of {epochs * steps}: {name} is {metrics[name]}; expected {value}"
            assert math.isclose(metrics[name], value, rel_tol=CLOSE), case


@given(name=st.sampled_from(sorted(oracles.DIVERGENCES)), beta=st.floats(0.05, 0.95), tau=NUMBERS)
def falsify_the_divergence_is_the_chosen_one(subject: Any, name: str, beta: float, tau: float) -> None:
    objective = subject.Objective(temperature=tau, ce_weight=0.0, kd_weight=1.0, divergence=name, beta=beta)
    (metrics,) = _train_constant(subject, objective, 1, 1)
    expected = {
        "soft_loss": tau**2 * oracles.row_divergence(STUDENT, TEACHER, tau, name, beta),
        "kl_at_T": oracles.forward_kl(STUDENT, TEACHER, tau),
        "kl_at_1": oracles.forward_kl(STUDENT, TEACHER, 1.0),
    }
    for metric, value in expected.items():
        close = math.isclose(metrics[metric], value, rel_tol=1e-9)
        assert close, f"{name}: {metric} is {metrics[metric]}; expected {value}"


FIELDS = ("temperature", "ce_weight", "kd_weight", "feature_weight")
STEPS = 3


def _expected(name: str, start: float, end: float | None, warmup: int, step: int) -> float:
    """Return the value in a step of a run of `STEPS`: a linear rise from 0 to the start, then a line to the end.

    The temperature, and a weight without an end, has no warm-up.
    """
    first = 1 if name == "temperature" or end is None else max(1, warmup)
    if step < first:
        return start * step / first
    return start if end is None else start + (end - start) * (step - first) / max(STEPS - first, 1)


@given(
    starts=st.tuples(*[st.floats(0.25, 4)] * 4),
    ends=st.tuples(*[st.none() | st.floats(0.25, 4)] * 4),
    warmup=st.integers(0, 4),
    to_zero=st.sampled_from([None, *FIELDS[1:]]),
    constant=st.sampled_from([None, *FIELDS]),
)
@example(
    starts=(2.0, 0.5, 0.75, 0.5), ends=(None, 1.5, 0.25, None), warmup=2, to_zero="kd_weight", constant="ce_weight"
)
def falsify_weights_with_an_end_warm_up(
    subject: Any,
    starts: tuple[float, ...],
    ends: tuple[Any, ...],
    warmup: int,
    to_zero: str | None,
    constant: str | None,
) -> None:
    callbacks, metrics_by_step = after_steps(lambda context: dict(context.metrics))
    drawn = zip(FIELDS, starts, ends, strict=True)
    ends = tuple(start if n == constant else 0.0 if n == to_zero else end for n, start, end in drawn)
    weights = dict(zip(FIELDS, starts, strict=True)) | {f"{n}_end": end for n, end in zip(FIELDS, ends, strict=True)}
    with scratch() as root:
        run(subject, small(root, smoke=STEPS, log_every=1, anneal_warmup=warmup, **weights), callbacks=callbacks)
    assert_equal("steps of the run", len(metrics_by_step), STEPS)
    for name, start, end in zip(FIELDS, starts, ends, strict=True):
        for step, metrics in enumerate(metrics_by_step, start=1):
            expected = _expected(name, start, end, warmup, step)
            # The metrics of a step whose feature weight is 0 lack the weight.
            value = metrics.get(name, 0.0 if name == "feature_weight" else math.nan)
            case = f"{name} from {start} to {end} with a warm-up of {warmup}, step {step}: {value}; expected {expected}"
            assert math.isclose(value, expected, rel_tol=1e-12, abs_tol=1e-15), case


RATES = st.sampled_from([0.0, 1, 0.1, 0.2, 0.9, 0.7, 4.0, 1e-4, 1e30]) | st.floats(0, 1e4)
SHAPES = st.sampled_from(["linear", "cosine"])
TOTALS = st.sampled_from([1, 2, 3, 10]) | st.integers(1, 10**6)


@example(start=0.0, end=1.0, shape="linear", total=3)
@example(start=1.0, end=0.0, shape="linear", total=3)
@given(start=RATES, end=st.none() | RATES, shape=SHAPES, total=TOTALS)
def falsify_zero_is_seen_before_the_run(subject: Any, start: float, end: float | None, shape: str, total: int) -> None:
    # The value is monotonic in the step, so its maximum is at the first or the last step.
    annealed = subject.Annealed(start) if end is None else subject.Annealed(start, end, shape)
    values = {annealed.at(step, total + 1) for step in (1, total + 1)}
    assert annealed.is_zero is (values == {0.0}), f"is_zero is {annealed.is_zero} with values {values}, for {annealed}"
    for first, last in itertools.combinations_with_replacement(sorted({1, 2, total, total + 1}), 2):
        expected = any(annealed.at(step, total + 1) > 0 for step in (first, (first + last) // 2, last))
        for name in ("kd_weight", "feature_weight"):
            weights = {"kd_weight": 0.0, name: annealed}
            objective = subject.Objective(temperature=1.0, ce_weight=1.0, **weights)
            actual = objective.needs_teacher(first, last, total + 1)
            case = f"steps {first} to {last} of {total + 1} with {name} from {start} to {end}"
            assert actual is expected, f"{case}: needs_teacher is {actual}; expected {expected}"


TEMPERATURE_BOUNDS = (1e-4, 1e4)
LINE = {"end": 0.5, "shape": "linear"}
REFUSED: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    *(({"end": 0.0, "shape": shape}, (repr(shape), "constant", "linear", "cosine")) for shape in ("Linear", None)),
    *(({"shape": shape}, ("missing end", shape)) for shape in ("linear", "cosine")),
    ({"end": 0.5}, ("constant", "0.5")),
    *(
        ({**LINE, place: x}, (place, repr(x), "0 to 1e+30"))
        for place in ("start", "end")
        for x in (math.nan, math.inf, True, "0.5", -1.0)
    ),
    *(
        ({"start": 2.0, **LINE, "bounds": TEMPERATURE_BOUNDS, place: x}, (place, repr(x), "0.0001 to 10000"))
        for place in ("start", "end")
        for x in (0.0, 10001.0)
    ),
    *(({"warmup": x}, ("warm-up", repr(x))) for x in (-1, 2.0, True)),
    ({"start": 2.0, "warmup": 1, "bounds": TEMPERATURE_BOUNDS}, ("warm-up", "rises from 0")),
]
ACCEPTED: list[dict[str, Any]] = [
    {"start": 0.0, "end": 1e30, "shape": "cosine", "warmup": 10**9},
    {"start": 1e-4, "end": 1e4, "shape": "linear", "bounds": TEMPERATURE_BOUNDS},
]


def falsify_invalid_values_are_refused(subject: Any) -> None:
    for changes, words in REFUSED:
        arguments = {"start": 0.7, "name": "beta", **changes}
        assert_refused(f"{changes}", lambda arguments=arguments: subject.Annealed(**arguments), "'beta'", *words)
    for arguments in ACCEPTED:
        subject.Annealed(**arguments)
    for step, total in ((0, 10), (1, 0)):
        label, at = f"step {step} of {total}", subject.Annealed(1.0, 0.0, "linear").at
        assert_refused(label, partial(at, step, total), str(step), str(total), "from 1")


TOKENS = torch.tensor([[0, 1, 2], [2, 1, 0]])
POSITION = (1, 0)
"""The sequence and the position of the broken logits."""
VALUES = st.sampled_from([math.nan, -math.inf])


class BreakingTeacher:
    """A teacher with a logit of `value` at `POSITION` in forward pass number `broken_forward`, from 1.

    NaN is an invalid logit. -inf is a valid one that makes the reverse KL, and so the loss, +inf.
    """

    vocab_size = 3

    def __init__(self, broken_forward: int, value: float) -> None:
        self.broken_forward, self.value, self.forwards = broken_forward, value, 0

    def logits(self, batch: Batch) -> Tensor:
        self.forwards += 1
        logits = torch.arange(18, dtype=torch.float64).reshape(2, 3, 3).cos()
        logits[POSITION][0] = self.value if self.forwards == self.broken_forward else logits[POSITION][0]
        return logits


def _break_a_step(
    subject: Any,
    steps: int,
    every: int,
    broken_forward: int,
    *,
    fused: bool = True,
    deferred: bool | None = True,
    accumulation: int = 1,
    value: float = math.nan,
) -> tuple[list[Tensor], LogitsError | None]:
    """Return the weights after each step, and the error of the run, if any.

    Args:
        subject: `training.loop`.
        steps: The steps of the run, each of `accumulation` forward passes.
        every: The interval of on_log.
        broken_forward: The number of the forward pass with a logit of `value`, from 1.
        fused: Whether AdamW is fused, so that it can leave out an update by `found_inf`.
        deferred: The option of the same name.
        accumulation: The micro-batches of a step.
        value: The broken logit.
    """
    table, weights = nn.Embedding(3, 3, _weight=torch.zeros(3, 3, dtype=torch.float64)), list[Tensor]()

    optimizer = torch.optim.AdamW(table.parameters(), lr=0.1, fused=fused)
    shape = {"epochs": 1, "steps_per_epoch": steps, "log_every": every}

    def act(callback: int, event: str, context: Any) -> None:
        if event == "on_step_end":
            weights.append(table.weight.detach().clone())
            assert not hasattr(optimizer, "found_inf"), "found_inf of the optimizer is still set after a step"

    try:
        subject.train(
            BreakingTeacher(broken_forward, value),
            ModuleStudent(table, 3),
            lambda epoch, k: Batch(tokens=TOKENS, labels=TOKENS),
            optimizer,
            schedule=Schedule(**shape, accumulation=accumulation, micro_batches=steps * accumulation),
            objective=subject.Objective(temperature=2.0, ce_weight=0.5, kd_weight=0.5, divergence="reverse_kl"),
            learning_rate=lambda step: 0.1,
            callbacks=recording_callbacks(1, act),
            options=UpdateOptions(deferred=deferred),
        )
    except LogitsError as error:
        return weights, error
    return weights, None


@given(
    steps=st.integers(2, 8),
    every=st.integers(1, 9),
    broken_step=st.integers(1, 8),
    accumulated=st.integers(1, 3).flatmap(lambda count: st.tuples(st.just(count), st.integers(1, count))),
    value=VALUES,
)
def falsify_a_broken_step_is_left_out_and_raised_when_read(
    subject: Any, steps: int, every: int, broken_step: int, accumulated: tuple[int, int], value: float
) -> None:
    """Break a micro-batch of a step of a run that defers errors; break none if `broken_step` is beyond the last step.

    accumulated: the number of micro-batches of a step, and the broken one, from 1.
    """
    accumulation, micro_batch = accumulated
    forward = (broken_step - 1) * accumulation + micro_batch
    weights, error = _break_a_step(subject, steps, every, forward, accumulation=accumulation, value=value)
    if broken_step > steps:
        assert error is None, f"a run of {steps} steps with valid logits raised {error}; expected no error"
        return
    # Deferred errors are read at the next logged step, or at the end.
    read = min(-(-broken_step // every) * every, steps)
    assert error is not None, f"a run of {steps} steps with {value} in step {broken_step} raised no LogitsError"
    message = " ".join([str(error), *error.__notes__])
    model = "teacher" if math.isnan(value) else "loss of the student"
    expected = [model, f"position {POSITION}", f"in step {broken_step},", f"after {read} of {steps} steps"]
    expected += [f"in micro-batch {micro_batch} of {accumulation}"] if accumulation > 1 else []
    missing = [words for words in expected if words not in message]
    assert not missing, f"{value} in step {broken_step}: the message is {message!r}; expected it to contain {missing}"
    before = weights[broken_step - 2] if broken_step > 1 else torch.zeros(3, 3, dtype=torch.float64)
    after = weights[broken_step - 1] if len(weights) >= broken_step else before
    assert torch.equal(before, after), f"step {broken_step} changed the weights by {(after - before).abs().max()}"
    assert all(weight.isfinite().all() for weight in weights), f"the weights are {weights}; expected finite numbers"


@given(
    steps=st.integers(2, 5),
    every=st.integers(1, 6),
    broken_step=st.integers(1, 5),
    settings=st.sampled_from([(True, None), (True, False), (False, True), (False, None)]),
    value=VALUES,
)
@example(steps=3, every=4, broken_step=2, settings=(True, False), value=math.nan)
def falsify_an_error_is_raised_at_once(
    subject: Any, steps: int, every: int, broken_step: int, settings: tuple[bool, bool | None], value: float
) -> None:
    """Use settings that do not defer: the default on CPU, deferred=False, or an optimizer that is not fused."""
    assume(broken_step <= steps)
    fused, deferred = settings
    weights, error = _break_a_step(subject, steps, every, broken_step, fused=fused, deferred=deferred, value=value)
    assert error is not None and len(weights) == broken_step - 1, (
        f"{value} in step {broken_step}, {fused=}, {deferred=}: {error!r} after {len(weights)} steps; expected a "
        f"LogitsError after {broken_step - 1} steps"
    )
