"""Attacks on saved training state: modules and optimizer (`storage.snapshot`), losses and counts (`training.state`)."""

import copy
import dataclasses
import json
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from fractions import Fraction
from functools import partial
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.checkpoint_files.saved import assert_same
from falsifiers.support.assertions import assert_equal, refusal
from falsifiers.support.oracles import assert_refused
from reference_trainer.distillation.step import MetricSum
from reference_trainer.errors import CheckpointError
from reference_trainer.plan.schedule import Action, Event, Position
from reference_trainer.training.update import MasterAdamW


class Counting(torch.optim.Optimizer):
    """An optimizer whose state is unlike AdamW's: Python numbers, bytes of another shape, and a vector that grows."""

    def __init__(self, parameters: Iterable[Any], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in (p for p in group["params"] if p.grad is not None):
                state = self.state[parameter]
                if not state:
                    state.update(step=0, mean=0.5, signs=torch.zeros(3, dtype=torch.uint8), norms=torch.zeros(1))
                state["step"] += 1
                state["mean"] = 0.5 * state["mean"] + parameter.grad.mean().item()
                state["signs"] += (parameter.grad.sum() > 0).to(torch.uint8)
                state["norms"] = torch.cat([state["norms"], parameter.grad.float().norm().reshape(1)])
                rate = group["lr"] / (
                    state["step"] + state["mean"] ** 2 + state["norms"].sum().item() + int(state["signs"][0])
                )
                parameter.sub_(parameter.grad, alpha=rate)


Optimizers = Callable[[Iterable[Any]], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Optimizers] = {
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.1),
    "AdamW, amsgrad": lambda parameters: torch.optim.AdamW(parameters, lr=0.1),  # in the second group
    "MasterAdamW": lambda parameters: MasterAdamW(parameters, lr=0.1),
    "SGD with momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "Adafactor": lambda parameters: torch.optim.Adafactor(parameters, lr=0.1),
    "NAdam": lambda parameters: torch.optim.NAdam(parameters, lr=0.1),
    "Counting": lambda parameters: Counting(parameters, lr=0.1),
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
}


class Model(nn.Module):
    """A module with dropout, buffers, a scalar, shared and transposed weights, and a parameter without a gradient."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.input, self.norm, self.drop = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.output = nn.Linear(4, 4)
        self.output.weight = nn.Parameter(self.output.weight.detach().T)  # not contiguous, a contiguous copy differs
        self.tied = self.output
        self.scale, self.unused = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.ones(2))
        self.to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.drop(self.norm(self.input(x)))
        return (self.scale * self.tied(self.output(hidden))).square().mean()


class Pair:
    """Two modules, each in a group of one optimizer."""

    def __init__(self, seed: int, kind: str = "AdamW", dtype: torch.dtype = torch.float32) -> None:
        torch.manual_seed(seed)
        self.dtype, model, head = dtype, Model(dtype), nn.Linear(2, 1, dtype=dtype)
        self.modules = {"student": model, "head": head}
        groups: list[dict[str, Any]] = [
            {"params": list(model.parameters())},
            {"params": list(head.parameters()), "weight_decay": 0.5, "lr_scale": 0.5},
        ]
        groups[1] |= {"amsgrad": True} if kind == "AdamW, amsgrad" else {}
        self.optimizer = OPTIMIZERS[kind](groups)

    def train(self, first: int, last: int) -> None:
        """Take the steps `first` to `last`. The data, the dropout and the learning rate depend on the step alone."""
        for step in range(first, last + 1):
            torch.manual_seed(step)
            x = torch.randn(5, 3, dtype=self.dtype)
            for group in self.optimizer.param_groups:
                group["lr"] = 0.1 / step
            self.optimizer.zero_grad(set_to_none=True)
            (self.modules["student"](x) + self.modules["head"](x[:, :2]).square().mean()).backward()
            self.optimizer.step()

    def tensors(self) -> dict[str, Tensor]:
        """Return weights and buffers by name, and optimizer state by position and name; numbers as float64 vectors."""
        weights = {f"{m}.{n}": t for m, module in self.modules.items() for n, t in module.state_dict().items()}
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        states = [self.optimizer.state.get(parameter, {}) for parameter in parameters]
        return weights | {
            f"{k}.{name}": value if isinstance(value, Tensor) else torch.tensor([value], dtype=torch.float64)
            for k, state in enumerate(states)
            for name, value in state.items()
        }


NAMES = ("loss", "hard_loss", "soft_loss", "kl_at_T", "gradient_norm")
Step = tuple[dict[str, MetricSum], int]


@st.composite
def steps(draw: st.DrawFn, nats: st.SearchStrategy[float]) -> Step:
    """Draw the metric sums of a step, "loss" among them, and its number of sequences; it may score no token."""
    count = draw(st.integers(0, 3))
    names = ["loss", *draw(st.lists(st.sampled_from(NAMES[1:]), unique=True))]
    sums = {name: MetricSum(draw(nats) if count else 0.0, count) for name in names}
    return sums, draw(st.integers(0, 4))


EIGHTHS = st.integers(-800, 800).map(lambda n: n / 8)
"""Nats whose sums have no rounding error."""
ANY_NATS = EIGHTHS | st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, 0.1, 5e-324, 1e308])


def add_steps(state: Any, added_steps: Sequence[Step]) -> Any:
    """Add the steps to the state in order, and return it."""
    for sums, sequences in added_steps:
        state.add_step(sums, sequences)
    return state


def exact_sum(values: Sequence[MetricSum]) -> MetricSum:
    """Return the sum of the sums, without rounding of intermediate sums, and the sum of the counts."""
    return MetricSum(float(sum(Fraction(value.sum) for value in values)), sum(value.count for value in values))


def bits(value: Any) -> Any:
    """Return a value to compare by `==` that is equal if all numbers have equal bits and types; every NaN is equal."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack(">d", value).hex()
    if dataclasses.is_dataclass(value):
        return {field.name: bits(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {name: bits(part) for name, part in value.items()}
    return value if isinstance(value, Enum) else (type(value).__name__, value)


KINDS = st.sampled_from(list(OPTIMIZERS))
DTYPES = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@given(dtype=DTYPES, before=st.integers(0, 3), after=st.integers(1, 3))
@example(dtype=torch.float64, before=2, after=1)
def falsify_restored_run_goes_on_bit_for_bit(subject: Any, dtype: torch.dtype, before: int, after: int) -> None:
    for kind in OPTIMIZERS:
        restore_and_continue(subject, kind, dtype, before, after)


def restore_and_continue(subject: Any, kind: str, dtype: torch.dtype, before: int, after: int) -> None:
    """Restore a snapshot into a new run and into a run that took other steps, and continue both."""
    uninterrupted, fresh, used = (Pair(seed, kind, dtype) for seed in (1, 2, 3))
    used.train(7, 8)
    uninterrupted.train(1, before)
    expected = copy.deepcopy(uninterrupted.tensors())
    saved = subject.snapshot(uninterrupted.modules, uninterrupted.optimizer)
    saved = dataclasses.replace(saved, optimizer=json.loads(json.dumps(saved.optimizer)))  # as a checkpoint has it
    assert_same("after the snapshot", uninterrupted.tensors(), expected)
    uninterrupted.train(before + 1, before + after)
    for run, pair in (("a fresh run", fresh), ("a used run", used)):
        name = f"{kind}: {run}"
        subject.restore(saved, pair.modules, pair.optimizer)
        assert_same(f"{name} restored after step {before}", pair.tensors(), expected)
        # The learning rate belongs to the schedule: restoring must not set it.
        rates = [group["lr"] for group in pair.optimizer.param_groups]
        assert_equal(f"{name}: learning rates", rates, [0.1 / 8 if pair is used else 0.1] * 2)
        strides, expected_strides = ({key: t.stride() for key, t in x.items()} for x in (pair.tensors(), expected))
        assert_equal(f"{name}: strides", strides, expected_strides)
        pair.train(before + 1, before + after)
        assert_same(f"{name}, {after} steps later", pair.tensors(), uninterrupted.tensors())


@given(fused=st.booleans(), capturable=st.booleans(), kind=st.sampled_from(["AdamW", "AdamW, amsgrad", "Counting"]))
def falsify_state_is_placed_as_the_optimizer_creates_it(subject: Any, fused: bool, capturable: bool, kind: str) -> None:
    """Restore into parameters on the device `meta`, whose tensors have no values: only devices are compared.

    `Counting` creates its state on the CPU, and AdamW the number of steps, unless it is fused or capturable.
    """
    pair = Pair(1, kind)
    with torch.device("meta"):
        other = Pair(2, kind)
    pair.train(1, 2)
    for group in (*pair.optimizer.param_groups, *other.optimizer.param_groups):
        group.update(fused=fused, capturable=capturable)
    subject.restore(subject.snapshot(pair.modules, pair.optimizer), other.modules, other.optimizer)
    for state in other.optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, Tensor):
                expected = "cpu" if kind == "Counting" or (name == "step" and not (fused or capturable)) else "meta"
                assert_equal(f"{kind}, {fused=}, {capturable=}: device of {name}", value.device.type, expected)


UNCHANGED: dict[str, Any] = {
    "position": Position(event=Event.LOG, epoch=2, step=5, epoch_step=1, stopping=True, asked=Action.SAVE),
    "elapsed_s": 0.1,
    "metrics": {"loss": math.nan, "gradient_norm": 5e-324},
    "logged_step": 4,
    "validation": {"eval/hard_loss": -math.inf},
    "evaluated_step": 3,
    "callbacks": {"a callback": '{"x": NaN}'},
}
"""Fields that `add_step` leaves unchanged."""
STEP_LISTS = st.lists(steps(EIGHTHS), max_size=6) | st.lists(steps(ANY_NATS), max_size=6)


@given(drawn_steps=STEP_LISTS, pauses=st.sets(st.integers(0, 6)))
def falsify_state_of_noted_steps(subject: Any, drawn_steps: list[Step], pauses: set[int]) -> None:
    """Add steps to a state, and to a second state that is saved and restored before the steps `pauses`, from 0."""
    uninterrupted, state = (dataclasses.replace(subject.initial_state(), **UNCHANGED) for _ in range(2))
    add_steps(uninterrupted, drawn_steps)
    for number, step in enumerate(drawn_steps):
        if number in pauses:
            text = subject.state_to_json(state)
            json.loads(text, parse_constant=_refuse_constant)
            state = subject.state_from_json(text)
        add_steps(state, [step])
    case = f"saved and restored before the steps {sorted(pauses)} of {len(drawn_steps)}"
    for name in (field.name for field in dataclasses.fields(uninterrupted)):
        actual, wanted = getattr(state, name), getattr(uninterrupted, name)
        assert bits(actual) == bits(wanted), f"{case}: {name} is {actual!r}; expected {wanted!r}"
    losses = [sums["loss"].sum / sums["loss"].count if sums["loss"].count else None for sums, _ in drawn_steps]
    scored = [loss for loss in losses if loss is not None]
    expected = {
        "steps": len(drawn_steps),
        "sequences": sum(sequences for _, sequences in drawn_steps),
        "tokens": sum(sums["loss"].count for sums, _ in drawn_steps),
        "initial_loss": next(iter(scored), None),
        "final_loss": next(reversed(scored), None),
        "best_loss": min(filter(math.isfinite, scored), default=None),
        "loss": next(reversed(losses), None),
        "finite": all(map(math.isfinite, scored)),
    }
    for name, wanted in expected.items():
        actual = getattr(state, name)
        is_equal = bits(actual) == bits(wanted) or (actual == wanted == 0)  # 0.0 and -0.0 are equal here
        assert is_equal, f"after steps with the losses {losses}: {name} is {actual!r}; expected {wanted!r}"
    # Sums of eighths are exact in any order; others may round differently, and are compared above only.
    if all(
        (metric.sum * 8).is_integer() and abs(metric.sum) <= 100 for sums, _ in drawn_steps for metric in sums.values()
    ):
        terms = {name: [sums[name] for sums, _ in drawn_steps if name in sums] for name in NAMES}
        interval = {name: exact_sum(values) for name, values in terms.items() if values}
        assert_equal("sums of the interval", state.interval, interval)
        assert_equal("sums of the epoch", state.epoch, exact_sum(terms["loss"]))


def _refuse_constant(constant: str) -> None:
    """Fail for NaN and Infinity, which Python accepts and JSON does not have."""
    raise AssertionError(f"the saved text contains {constant}; expected strict JSON")


Change = Callable[[dict[str, Tensor], dict[str, Any]], object]
MOMENT, WEIGHT = "optimizer.student.input.weight.exp_avg", "student.input.weight"


def _replace(name: str, change: Callable[[Tensor], Tensor]) -> Change:
    """Return a change that replaces a saved tensor."""
    return lambda tensors, optimizer: tensors.update({name: change(tensors[name])})


def _remove(*ends: str) -> Change:
    """Return a change that removes the saved tensors whose names have one of these ends."""

    def change(tensors: dict[str, Tensor], optimizer: dict[str, Any]) -> None:
        for name in [tensor for tensor in tensors if tensor.endswith(ends)]:
            del tensors[name]

    return change


CHANGES: dict[str, Change] = {
    "a weight missing": _remove(WEIGHT),
    "an unknown weight": lambda t, o: t.update({"student.more": torch.ones(1)}),
    "a weight that broadcasts": _replace(WEIGHT, lambda w: w[:1]),
    "a weight of another dtype": _replace(WEIGHT, Tensor.double),
    "a moment missing": _remove(MOMENT),
    "the state of an unknown parameter": lambda t, o: t.update({"optimizer.head.more.step": torch.tensor(1.0)}),
    "a moment of another dtype": _replace(MOMENT, Tensor.bfloat16),
    "another kind of optimizer": lambda t, o: o.update(kind="SGD"),
    "other betas": lambda t, o: o.update({"0.betas": [0.8, 0.999]}),
    "a missing option": lambda t, o: o.pop("0.eps"),
    "a missing option that is None": lambda t, o: o.pop("0.foreach"),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "another scale of the rate": {"lr_scale": 0.25},
    "another decay of the second group": {"weight_decay": 0.25},
}
"""Changes of options in the second group of the optimizer into which the state is restored."""


WORDS = {
    "another kind of optimizer": 'kind was "SGD" and is "AdamW"',
    "other betas": "0.betas was [0.8, 0.999] and is [0.9, 0.999]",
    "a weight missing": "weights: missing ['student.input.weight'], unknown []",
    "a weight of another dtype": "student.input.weight is float64 [4, 3]; expected float32 [4, 3]",
}
"""Text that the message of a refusal must contain."""


ROW, SIGNS = "optimizer.student.input.weight.row_var", "optimizer.student.input.weight.signs"
OTHER_CHANGES: dict[str, tuple[str, Change]] = {
    "a row missing": ("Adafactor", _remove(ROW)),
    "a row that broadcasts": ("Adafactor", _replace(ROW, lambda row: row[:1])),
    "bytes as numbers": ("Counting", _replace(SIGNS, Tensor.float)),
}
"""Changes of state that has another shape or dtype than its parameter, with the optimizer that has such state."""


@given(kind=KINDS)
def falsify_state_unlike_a_divided_weight_is_refused(subject: Any, kind: str) -> None:
    """Save weights that look like DTensors whose only shard is here. A module called optimizer is refused too."""
    pair = Pair(1, kind)
    pair.train(1, 1)
    expected = False
    for parameter, state in pair.optimizer.state.items():
        vars(parameter)["to_local"] = parameter.detach  # the attribute by which a DTensor is recognized
        shapes = [part.shape for name, part in state.items() if isinstance(part, Tensor) and name != "step"]
        expected = expected or any(shape != parameter.shape for shape in shapes)
    # Its tensors would have the names of the optimizer's state.
    save = partial(subject.snapshot, {"optimizer": nn.Linear(1, 1)}, None)
    assert_refused("a module called optimizer", save, "optimizer")
    message = refusal(lambda: subject.snapshot(pair.modules, pair.optimizer), CheckpointError)
    is_refused = "unlike its weight" in message and "use the strategy ddp" in message
    assert is_refused == expected == bool(message), f"{kind}: {message=} for divided weights; expected one: {expected}"


@given(kind=st.sampled_from([*CHANGES, *OTHER_CHANGES, *OPTIONS]))
def falsify_other_state_is_refused(subject: Any, kind: str) -> None:
    """Restore a snapshot that was changed, or into an optimizer with other options; nothing may be restored."""
    optimizer, change = OTHER_CHANGES.get(kind, ("AdamW", CHANGES.get(kind, lambda tensors, optimizer: None)))
    source, target = Pair(1, optimizer), Pair(2, optimizer)
    source.train(1, 2)
    target.train(1, 1)
    saved = subject.snapshot(source.modules, source.optimizer)
    change(saved.tensors, saved.optimizer)
    target.optimizer.param_groups[1].update(OPTIONS.get(kind, {}))
    before = copy.deepcopy(target.tensors())
    call = partial(subject.restore, saved, target.modules, target.optimizer)
    assert_refused(kind, call, WORDS.get(kind, ""), kind=CheckpointError)
    assert_same(f"after a refusal for {kind}", target.tensors(), before)
