"""Copy the tensors of modules and optimizer between two steps, and restore them after a check.

The state of the optimizer is created from the saved tensors, without a dummy step; a run saved before its first step
has no such state. Random numbers need no state, since every micro-batch is seeded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from reference_trainer.errors import CheckpointError
from reference_trainer.models.loading import StoredTensor, Weights
from reference_trainer.storage.retention import differences

COUNTER = "step"
"""Name of the optimizer state that is a number. Most other state of PyTorch's optimizers has the shape and dtype of its
parameter, or is float32 for a parameter of fewer bits."""
STATE = "state"
"""Key for the state of an optimizer that has other state than `COUNTER` describes: all its state by name. A Python
number is stored by value, a tensor by dtype, shape and kind of device, which a restored tensor must have."""
VOLATILE = ("params", "lr")
"""Keys of a parameter group that are not options. The loop sets the learning rate before every step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The result of `snapshot`.

    tensors: copies on the CPU by name; for a divided tensor, the shard of this rank.
    optimizer: kind, parameters and options of the groups, and the key `STATE`, as JSON.
    """

    tensors: dict[str, Tensor]
    optimizer: dict[str, Any]


def snapshot(modules: Mapping[str, nn.Module], optimizer: torch.optim.Optimizer | None) -> Snapshot:
    """Return copies of weights, buffers and optimizer state.

    modules: all modules with parameters of the optimizer, by name. Raise `CheckpointError` for parameters of other
    modules, for state that is neither a number nor a tensor, and, if a parameter is divided among ranks, for a state
    tensor unlike it.
    """
    names = _parameter_names(modules, optimizer)
    tensors = _weights(modules)
    state: dict[str, object] = {}
    is_regular = True
    for name, parameter in names.items():
        for what, value in ({} if optimizer is None else optimizer.state.get(parameter, {})).items():
            key = f"{name}.{what}"
            is_regular = is_regular and _is_regular(key, value, parameter)
            state[key] = value if type(value) in (bool, int, float) else _checked_kind(key, value, parameter)
            if isinstance(value, Tensor):
                tensors[f"optimizer.{key}"] = value
    copies = {name: _local(tensor).to("cpu", copy=True) for name, tensor in tensors.items()}
    described = _described(modules, optimizer)
    return Snapshot(tensors=copies, optimizer=described if is_regular else described | {STATE: state})


def restore(saved: Snapshot, modules: Mapping[str, nn.Module], optimizer: torch.optim.Optimizer | None) -> None:
    """Load the result of `snapshot`, bit for bit.

    Raise `CheckpointError`, before anything is changed, for a tensor that is missing, unknown or of another shape or
    dtype, and for other parameters or options of the optimizer.
    """
    described = {name: value for name, value in saved.optimizer.items() if name != STATE}
    _check_optimizer(described, _described(modules, optimizer))
    weights = _weights(modules)
    saved_weights = {name: tensor for name, tensor in saved.tensors.items() if not name.startswith("optimizer.")}
    check_weights(saved_weights, {name: _local(weight) for name, weight in weights.items()})
    states: dict[Tensor, Any] = dict(_states(saved, _parameter_names(modules, optimizer), optimizer))
    with torch.no_grad():
        for name, weight in weights.items():
            _local(weight).copy_(saved_weights[name])
    if optimizer is not None:
        optimizer.state.clear()
        optimizer.state.update(states)


def check_weights(saved: Weights, expected: Mapping[str, Tensor]) -> None:
    """Raise `CheckpointError` for a tensor that is missing, unknown or of another shape or dtype than expected."""
    _check_names("weights", saved, expected)
    for name, weight in expected.items():
        _check_like(name, saved[name], weight)


def expected_tensors(module: nn.Module, *, masters: bool = False) -> list[Tensor]:
    """Return tensors of the shapes and dtypes in a snapshot with `torch.optim.AdamW` after a step, without copies.

    masters: whether parameters of fewer bits than float32 have float32 copies and moments.
    """
    tensors = [*module.state_dict().values()]
    for candidate in (parameter for parameter in module.parameters() if parameter.requires_grad):
        is_copied = masters and torch.finfo(candidate.dtype).bits < 32
        like = torch.empty_like(candidate, dtype=torch.float32, device="meta") if is_copied else candidate
        tensors += [*[like] * (3 if is_copied else 2), torch.zeros(())]
    return tensors


def _weights(modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    weights = {
        f"{module}.{name}": tensor for module in modules for name, tensor in modules[module].state_dict().items()
    }
    for name, tensor in weights.items():
        if not isinstance(tensor, Tensor) or name.startswith("optimizer."):
            raise CheckpointError(
                f"{name} is {type(tensor).__name__}; expected a tensor of a module not called optimizer"
            )
    return weights


def _parameter_names(
    modules: Mapping[str, nn.Module], optimizer: torch.optim.Optimizer | None
) -> dict[str, nn.Parameter]:
    """Return the parameters of the optimizer by name, in its order."""
    every = {
        parameter: f"{module}.{name}" for module in modules for name, parameter in modules[module].named_parameters()
    }
    held = (
        [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if optimizer is not None
        else []
    )
    for parameter in held:
        if parameter not in every:
            raise CheckpointError(
                f"unknown parameter {_kind(parameter)} of the optimizer: expected one of the modules {sorted(modules)}"
            )
    return {every[parameter]: parameter for parameter in held}


def _described(modules: Mapping[str, nn.Module], optimizer: torch.optim.Optimizer | None) -> dict[str, object]:
    """Return kind, parameters and options of the optimizer as JSON, the options of group k under `k.name`."""
    if optimizer is None:
        return {"kind": None}
    described: dict[str, object] = {"kind": type(optimizer).__name__}
    names = {parameter: name for name, parameter in _parameter_names(modules, optimizer).items()}
    for number, group in enumerate(optimizer.param_groups):
        described[f"{number}.parameters"] = [names[parameter] for parameter in group["params"]]
        described |= {f"{number}.{name}": value for name, value in group.items() if name not in VOLATILE}
    try:
        in_json: dict[str, object] = json.loads(json.dumps(described, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"an option of the optimizer is not JSON: {error}") from error
    return in_json


def _check_optimizer(saved: Mapping[str, object], present: Mapping[str, object]) -> None:
    changed = differences(saved, present)
    if changed:
        raise CheckpointError(f"the optimizer differs: {'; '.join(changed)}")


def _states(
    saved: Snapshot, parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer | None
) -> Iterator[tuple[nn.Parameter, dict[str, object]]]:
    """Yield every parameter with state, and its state.

    The parameters of a group that have state have state of the same names, unless `STATE` lists it by parameter.
    """
    listed: Mapping[str, object] | None = saved.optimizer.get(STATE)
    entries: dict[str, object] = {
        key.removeprefix("optimizer."): tensor for key, tensor in saved.tensors.items() if key.startswith("optimizer.")
    }
    if listed is not None:
        numbers = {key: value for key, value in listed.items() if not isinstance(value, str)}
        _check_names("optimizer state", entries, listed.keys() - numbers)
        entries |= numbers
    states: dict[str, dict[str, object]] = {}
    for key, value in entries.items():
        name, _, what = key.rpartition(".")
        states.setdefault(name, {})[what] = value
    _check_names("optimizer state", [name for name in states if name not in parameters], ())
    names = {held: name for name, held in parameters.items()}
    for group in [] if optimizer is None else optimizer.param_groups:
        there = {names[held]: held for held in group["params"] if names[held] in states}
        for name, parameter in there.items():
            if listed is None:
                _check_names(f"optimizer state of {name}", states[name], states[next(iter(there))])
            kinds = {what: None if listed is None else listed[f"{name}.{what}"] for what in states[name]}
            state = {
                what: _placed(f"{name}.{what}", value, parameter, group, kinds[what])
                for what, value in states[name].items()
            }
            yield parameter, state


def _placed(name: str, value: object, parameter: nn.Parameter, group: Mapping[str, object], listed: object) -> object:
    """Return a state on the device on which the optimizer creates it.

    Step counters are on the CPU, except if the kernels of the optimizer read them. listed: the entry of the state in
    `STATE`.
    """
    if not isinstance(value, Tensor):
        return value
    if listed is not None:
        kind, _, place = str(listed).rpartition(" ")
        if _kind(value) != kind:
            raise CheckpointError(f"optimizer state {name} is {_kind(value)}; expected {kind}")
        if not _is_regular(name, value, parameter):
            return value.to("cpu" if place == "cpu" else parameter.device, copy=True)
    _check_state(name, value, _local(parameter))
    if name.endswith(f".{COUNTER}"):
        return value.to(parameter.device if group.get("fused") or group.get("capturable") else "cpu", copy=True)
    state = torch.zeros_like(parameter, dtype=value.dtype, requires_grad=False)
    _local(state).copy_(value)
    return state


def _local(tensor: Tensor) -> Tensor:
    """Return the shard of this rank, sharing its memory; return a tensor that is not divided unchanged."""
    shard = getattr(tensor, "to_local", None)
    return tensor if shard is None else shard()


def _is_regular(name: str, value: object, parameter: Tensor) -> bool:
    """Return whether a state is a step counter, or has the shape and dtype of its parameter."""
    try:
        _check_state(name, value, parameter)
    except CheckpointError:
        return False
    return True


def _checked_kind(name: str, value: object, parameter: Tensor) -> str:
    """Return dtype, shape and kind of device of a state. Raise `CheckpointError` if it cannot be saved."""
    if not isinstance(value, Tensor):
        raise CheckpointError(f"optimizer state {name} is {type(value).__name__}; expected a number or a tensor")
    if _local(parameter) is not parameter and not _is_regular(name, value, parameter):
        raise CheckpointError(
            f"optimizer state {name} is {_kind(value)}, unlike its weight, which is divided among the ranks; use the "
            "strategy ddp, or an optimizer such as adamw"
        )
    return f"{_kind(value)} {value.device.type}"


def _check_state(name: str, value: object, parameter: Tensor) -> None:
    if not isinstance(value, Tensor):
        raise CheckpointError(f"optimizer state {name} is {type(value).__name__}; expected a tensor")
    if not name.endswith(f".{COUNTER}"):
        is_wider = value.dtype == torch.float32 and torch.finfo(parameter.dtype).bits < 32
        _check_like(f"optimizer state {name}", value, parameter.float() if is_wider else parameter)
    elif value.dim() or not value.is_floating_point():
        raise CheckpointError(f"optimizer state {name} is {_kind(value)}; expected a number")


def _check_like(name: str, value: Tensor | StoredTensor, expected: Tensor) -> None:
    if _kind(value) != _kind(expected):
        raise CheckpointError(f"{name} is {_kind(value)}; expected {_kind(expected)}")


def _kind(tensor: Tensor | StoredTensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _check_names(what: str, actual: Iterable[str], expected: Iterable[str]) -> None:
    names, wanted = {*actual}, {*expected}
    missing, unknown = sorted(wanted - names), sorted(names - wanted)
    if missing or unknown:
        raise CheckpointError(f"{what}: missing {missing[:3]}, unknown {unknown[:3]}")
