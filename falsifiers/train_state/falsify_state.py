"""Attacks on the state of a training: modules and optimizer in tensors, losses and counts in text."""

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
from falsifiers.support.assertions import refusal
from falsifiers.support.oracles import assert_refused
from reference_trainer.distillation.step import MetricSum
from reference_trainer.errors import CheckpointError
from reference_trainer.training.update import MasterAdamW


class Counting(torch.optim.Optimizer):
    """An optimizer with state of its own kinds: Python numbers, bytes of another shape, and a vector on the CPU."""

    def __init__(self, parameters: Iterable[Any], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in (held for held in group["params"] if held.grad is not None):
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
    """Dropout, buffers of running means, a scalar, shared weights, and a parameter without a gradient."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.input, self.norm, self.drop = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.output = nn.Linear(4, 4)
        self.output.weight = nn.Parameter(self.output.weight.detach().T)  # its strides differ from its copy's
        self.tied = self.output
        self.scale, self.unused = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.ones(2))
        self.to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.drop(self.norm(self.input(x)))
        return (self.scale * self.tied(self.output(hidden))).square().mean()


class Pair:
    """Two modules with one optimizer in two groups; `steps` trains them."""

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

    def steps(self, first: int, last: int) -> None:
        for step in range(first, last + 1):
            torch.manual_seed(step)
            x = torch.randn(5, 3, dtype=self.dtype)
            for group in self.optimizer.param_groups:
                group["lr"] = 0.1 / step
            self.optimizer.zero_grad(set_to_none=True)
            (self.modules["student"](x) + self.modules["head"](x[:, :2]).square().mean()).backward()
            self.optimizer.step()

    def bits(self) -> dict[str, Tensor]:
        """Return weights, buffers and state by position, with their names; a Python number as a vector of float64."""
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
    """Draw the sums of a step, "loss" among them, and its sequences; a step may have scored no token."""
    count = draw(st.integers(0, 3))
    names = ["loss", *draw(st.lists(st.sampled_from(NAMES[1:]), unique=True))]
    sums = {name: MetricSum(draw(nats) if count else 0.0, count) for name in names}
    return sums, draw(st.integers(0, 4))


EIGHTHS = st.integers(-800, 800).map(lambda n: n / 8)
"""Nats whose sums have no rounding error."""
ANY = EIGHTHS | st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, 0.1, 5e-324, 1e308])


def noted(state: Any, taken: Sequence[Step]) -> Any:
    """Note the steps in order, and return the state."""
    for sums, sequences in taken:
        state.add_step(sums, sequences)
    return state


def exact(values: Sequence[MetricSum]) -> MetricSum:
    """Return the sum of sums and counts, without rounding."""
    return MetricSum(float(sum(Fraction(value.sum) for value in values)), sum(value.count for value in values))


def bits(value: Any) -> Any:
    """Return a value that is equal for states whose numbers have equal bits; every NaN is equal."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack(">d", value).hex()
    if dataclasses.is_dataclass(value):
        return {field.name: bits(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {name: bits(part) for name, part in value.items()}
    return value if isinstance(value, Enum) else (type(value).__name__, value)


KINDS = st.sampled_from(list(OPTIMIZERS))
DTYPES = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@given(kind=KINDS, dtype=DTYPES, before=st.integers(0, 3), after=st.integers(1, 3))
@example(kind="Counting", dtype=torch.float32, before=2, after=1)
def falsify_restored_run_goes_on_bit_for_bit(
    subject: Any, kind: str, dtype: torch.dtype, before: int, after: int
) -> None:
    uninterrupted, fresh, used = (Pair(seed, kind, dtype) for seed in (1, 2, 3))
    used.steps(7, 8)
    uninterrupted.steps(1, before)
    unseen = copy.deepcopy(uninterrupted.bits())
    saved = subject.snapshot(uninterrupted.modules, uninterrupted.optimizer)
    saved = dataclasses.replace(saved, optimizer=json.loads(json.dumps(saved.optimizer)))  # as a checkpoint has it
    assert_same("after the snapshot", uninterrupted.bits(), unseen)
    uninterrupted.steps(before + 1, before + after)
    for name, pair in (("a fresh run", fresh), ("a used run", used)):
        subject.restore(saved, pair.modules, pair.optimizer)
        assert_same(f"{name} restored after step {before}", pair.bits(), unseen)
        rates = [group["lr"] for group in pair.optimizer.param_groups]
        assert rates == [0.1 / 8 if pair is used else 0.1] * 2, f"restoring sets the learning rates {rates}"
        strides = {key: bit.stride() for key, bit in pair.bits().items()}
        assert strides == {key: value.stride() for key, value in unseen.items()}, f"{name} has the strides {strides}"
        pair.steps(before + 1, before + after)
        assert_same(f"{name}, {after} steps later", pair.bits(), uninterrupted.bits())


@given(fused=st.booleans(), capturable=st.booleans(), kind=st.sampled_from(["AdamW", "AdamW, amsgrad", "Counting"]))
@example(fused=False, capturable=False, kind="Counting")
def falsify_state_is_placed_as_the_optimizer_creates_it(subject: Any, fused: bool, capturable: bool, kind: str) -> None:
    """The device is `meta`, which has no memory: only places can be seen. `Counting` has its state on the CPU."""
    pair = Pair(1, kind)
    with torch.device("meta"):
        other = Pair(2, kind)
    pair.steps(1, 2)
    for group in (*pair.optimizer.param_groups, *other.optimizer.param_groups):
        group.update(fused=fused, capturable=capturable)
    subject.restore(subject.snapshot(pair.modules, pair.optimizer), other.modules, other.optimizer)
    for state in other.optimizer.state.values():
        for name, value in state.items():
            if not isinstance(value, Tensor):
                continue
            expected = "cpu" if kind == "Counting" or (name == "step" and not (fused or capturable)) else "meta"
            assert value.device.type == expected, f"{fused}, {capturable}: {name} is on {value.device}"


TAKEN = st.lists(steps(EIGHTHS), max_size=6) | st.lists(steps(ANY), max_size=6)


@given(taken=TAKEN, pauses=st.sets(st.integers(0, 6)))
def falsify_state_of_noted_steps(subject: Any, taken: list[Step], pauses: set[int]) -> None:
    """pauses: the steps before which the state is saved and restored."""
    uninterrupted, state = noted(subject.initial_state(), taken), subject.initial_state()
    for number, step in enumerate(taken):
        if number in pauses:
            text = subject.state_to_json(state)
            json.loads(text, parse_constant=_no_json)
            state = subject.state_from_json(text)
        noted(state, [step])
    where = f"saved and restored before the steps {sorted(pauses)} of {len(taken)}"
    for name in (field.name for field in dataclasses.fields(uninterrupted)):
        seen, wanted = getattr(state, name), getattr(uninterrupted, name)
        assert bits(seen) == bits(wanted), f"{where}: {name} is {seen!r}; expected {wanted!r}"
    every = [sums["loss"].sum / sums["loss"].count if sums["loss"].count else None for sums, _ in taken]
    scored = [loss for loss in every if loss is not None]
    expected = {
        "steps": len(taken),
        "sequences": sum(sequences for _, sequences in taken),
        "tokens": sum(sums["loss"].count for sums, _ in taken),
        "initial_loss": next(iter(scored), None),
        "final_loss": next(reversed(scored), None),
        "best_loss": min(filter(math.isfinite, scored), default=None),
        "loss": next(reversed(every), None),
        "finite": all(map(math.isfinite, scored)),
    }
    for name, wanted in expected.items():
        seen = getattr(state, name)
        same = bits(seen) == bits(wanted) or (seen == wanted == 0)
        assert same, f"after steps with the losses {every}: {name} is {seen!r}; expected {wanted!r}"
    # Sums of eighths are exact, whatever their order.
    if all((metric.sum * 8).is_integer() and abs(metric.sum) <= 100 for sums, _ in taken for metric in sums.values()):
        terms = {name: [sums[name] for sums, _ in taken if name in sums] for name in NAMES}
        interval = {name: exact(values) for name, values in terms.items() if values}
        assert state.interval == interval, f"the interval has {state.interval}; expected {interval}"
        epoch = exact(terms["loss"])
        assert state.epoch == epoch, f"the epoch has {state.epoch}; expected {epoch}"


def _no_json(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


Change = Callable[[dict[str, Tensor], dict[str, Any]], object]
MOMENT, WEIGHT = "optimizer.student.input.weight.exp_avg", "student.input.weight"


def _replaced(name: str, change: Callable[[Tensor], Tensor]) -> Change:
    return lambda tensors, optimizer: tensors.update({name: change(tensors[name])})


def _without(*ends: str) -> Change:
    def change(tensors: dict[str, Tensor], optimizer: dict[str, Any]) -> None:
        for name in [tensor for tensor in tensors if tensor.endswith(ends)]:
            del tensors[name]

    return change


CHANGES: dict[str, Change] = {
    "a weight missing": _without(WEIGHT),
    "an unknown weight": lambda t, o: t.update({"student.more": torch.ones(1)}),
    "a weight that broadcasts": _replaced(WEIGHT, lambda w: w[:1]),
    "a weight of another dtype": _replaced(WEIGHT, Tensor.double),
    "a moment missing": _without(MOMENT),
    "the state of an unknown parameter": lambda t, o: t.update({"optimizer.head.more.step": torch.tensor(1.0)}),
    "a moment of another dtype": _replaced(MOMENT, Tensor.bfloat16),
    "another kind of optimizer": lambda t, o: o.update(kind="SGD"),
    "other betas": lambda t, o: o.update({"0.betas": [0.8, 0.999]}),
    "a missing option": lambda t, o: o.pop("0.eps"),
    "a missing option that is None": lambda t, o: o.pop("0.foreach"),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "another scale of the rate": {"lr_scale": 0.25},
    "another decay of the second group": {"weight_decay": 0.25},
}
"""Options of the second group of the optimizer that gets the state."""


WORDS = {
    "another kind of optimizer": 'kind was "SGD" and is "AdamW"',
    "other betas": "0.betas was [0.8, 0.999] and is [0.9, 0.999]",
    "a weight missing": "weights: missing ['student.input.weight'], unknown []",
    "a weight of another dtype": "student.input.weight is float64 [4, 3]; expected float32 [4, 3]",
}
"""What some refusals say."""


ROW, SIGNS = "optimizer.student.input.weight.row_var", "optimizer.student.input.weight.signs"
OTHER_CHANGES: dict[str, tuple[str, Change]] = {
    "a row missing": ("Adafactor", _without(ROW)),
    "a row that broadcasts": ("Adafactor", _replaced(ROW, lambda row: row[:1])),
    "bytes as numbers": ("Counting", _replaced(SIGNS, Tensor.float)),
}
"""Changes of state that is unlike its parameter, of an optimizer."""


@given(kind=KINDS)
def falsify_state_unlike_a_divided_weight_is_refused(subject: Any, kind: str) -> None:
    """The weights look divided among ranks, and this rank has all of them."""
    pair = Pair(1, kind)
    pair.steps(1, 1)
    unlike = False
    for parameter, state in pair.optimizer.state.items():
        vars(parameter)["to_local"] = parameter.detach  # as a DTensor has it
        shapes = [part.shape for name, part in state.items() if isinstance(part, Tensor) and name != "step"]
        unlike = unlike or any(shape != parameter.shape for shape in shapes)
    assert_refused(
        "a module called optimizer", lambda: subject.snapshot({"optimizer": nn.Linear(1, 1)}, None), "optimizer"
    )
    message = refusal(lambda: subject.snapshot(pair.modules, pair.optimizer), CheckpointError)
    refused = "unlike its weight" in message and "use the strategy ddp" in message
    assert refused == unlike and bool(message) == unlike, (
        f"the state of {kind} for divided weights: {message or 'saved'}"
    )


@given(kind=st.sampled_from([*CHANGES, *OTHER_CHANGES, *OPTIONS]))
def falsify_other_state_is_refused(subject: Any, kind: str) -> None:
    optimizer, change = OTHER_CHANGES.get(kind, ("AdamW", CHANGES.get(kind, lambda tensors, optimizer: None)))
    uninterrupted, other = Pair(1, optimizer), Pair(2, optimizer)
    uninterrupted.steps(1, 2)
    other.steps(1, 1)
    saved = subject.snapshot(uninterrupted.modules, uninterrupted.optimizer)
    change(saved.tensors, saved.optimizer)
    other.optimizer.param_groups[1].update(OPTIONS.get(kind, {}))
    before = copy.deepcopy(other.bits())
    call = partial(subject.restore, saved, other.modules, other.optimizer)
    assert_refused(kind, call, WORDS.get(kind, ""), kind=CheckpointError)
    assert_same(f"refused for {kind}", other.bits(), before)
