"""Copy the tensors of modules and optimizer between two steps; check and restore such copies.

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
from reference_trainer.models.loading import NamedTensors, StoredTensor
from reference_trainer.storage.retention import differences

COUNTER = "step"
"""Name of the step counter in the optimizer state, a scalar. Most other state of PyTorch's optimizers has the shape and
dtype of its parameter, or is float32 for a parameter of fewer bits: such state, and the counter, are called regular."""
STATE = "state"
"""Key of a mapping that describes all optimizer state by name, if some state is not regular: a number by its value, a
tensor by dtype, shape and device type. A restored tensor must have this dtype and shape."""
VOLATILE = ("params", "lr")
"""Keys of a parameter group that are not compared. The loop sets the learning rate before every step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The result of `snapshot`.

    Attributes:
        tensors: Copies on the CPU by name; for a divided tensor, the shard of this rank.
        optimizer: The class, and parameters and options of every group, as JSON; also all state under `STATE` if some
            state is not regular.
    """

    tensors: dict[str, Tensor]
    optimizer: dict[str, Any]


def snapshot(modules: Mapping[str, nn.Module], optimizer: torch.optim.Optimizer | None) -> Snapshot:
    """Return copies of weights, buffers and optimizer state.

    Args:
        modules: All modules with parameters of the optimizer, by name.
        optimizer: The optimizer; None without one.

    Raises:
        CheckpointError: A parameter of the optimizer is in none of the modules, an option of the optimizer is not JSON,
            a state is neither a number nor a tensor, the state of a parameter that is divided among ranks is not
            regular, or a module has extra state or the name "optimizer".
    """
    # Names of tensors: `MODULE.NAME` of weights and buffers, `optimizer.MODULE.NAME.STATE` of optimizer state. State is
    # listed under `STATE` only if `restore` could not derive its kind from the parameters.
    tensors = _weights(modules)
    optimizer_state: Mapping[Tensor, Any] = {} if optimizer is None else optimizer.state
    listed: dict[str, object] = {}
    is_regular = True
    for name, parameter in _named_parameters(modules, optimizer).items():
        for state_name, value in optimizer_state.get(parameter, {}).items():
            key = f"{name}.{state_name}"
            if not _is_regular(key, value, parameter):
                is_regular = False
            listed[key] = value if type(value) in (bool, int, float) else _describe_state(key, value, parameter)
            if isinstance(value, Tensor):
                tensors[f"optimizer.{key}"] = value
    copies = {name: _local(tensor).to("cpu", copy=True) for name, tensor in tensors.items()}
    described = _describe_optimizer(modules, optimizer)
    return Snapshot(tensors=copies, optimizer=described if is_regular else described | {STATE: listed})


def restore(saved: Snapshot, modules: Mapping[str, nn.Module], optimizer: torch.optim.Optimizer | None) -> None:
    """Load the result of `snapshot`, bit for bit.

    Raise `CheckpointError`, before anything is changed, for a tensor that is missing, unknown or of another shape or
    dtype, and if the class, parameters or options of the optimizer differ.
    """
    # 1. Check everything. `_restored_states` is a generator with checks, so `dict` runs all of them before any change.
    described = {name: value for name, value in saved.optimizer.items() if name != STATE}
    if changed := differences(described, _describe_optimizer(modules, optimizer)):
        raise CheckpointError(f"the optimizer differs: {'; '.join(changed)}")
    weights = _weights(modules)
    saved_weights = {name: tensor for name, tensor in saved.tensors.items() if not name.startswith("optimizer.")}
    check_weights(saved_weights, {name: _local(weight) for name, weight in weights.items()})
    states: dict[Tensor, Any] = dict(_restored_states(saved, _named_parameters(modules, optimizer), optimizer))
    # 2. Change weights in place, so that the optimizer's parameters stay the same objects.
    with torch.no_grad():
        for name, weight in weights.items():
            _local(weight).copy_(saved_weights[name])
    if optimizer is not None:
        optimizer.state.clear()
        optimizer.state.update(states)


def check_weights(saved: NamedTensors, expected: Mapping[str, Tensor]) -> None:
    """Raise `CheckpointError` for a tensor that is missing, unknown or of another shape or dtype than expected."""
    _check_names("weights", saved, expected)
    for name, weight in expected.items():
        _check_like(name, saved[name], weight)


def expected_tensors(module: nn.Module, *, masters: bool = False) -> list[Tensor]:
    """Return tensors of the shapes and dtypes in a snapshot with `torch.optim.AdamW` after a step, without copies.

    masters: whether parameters of fewer bits than float32 have float32 copies and moments.
    """
    tensors = list(module.state_dict().values())
    for parameter in module.parameters():
        if not parameter.requires_grad:
            continue
        if masters and torch.finfo(parameter.dtype).bits < 32:
            like = torch.empty_like(parameter, dtype=torch.float32, device="meta")
            tensors += [like, like, like]  # the copy and two moments
        else:
            tensors += [parameter, parameter]  # two moments
        tensors.append(torch.zeros(()))  # the step counter
    return tensors


def _weights(modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """Return the parameters and persistent buffers of the modules, by prefixed names."""
    weights = {
        f"{prefix}.{name}": tensor for prefix, module in modules.items() for name, tensor in module.state_dict().items()
    }
    for name, tensor in weights.items():
        if not isinstance(tensor, Tensor) or name.startswith("optimizer."):
            raise CheckpointError(
                f"{name} is {type(tensor).__name__}; expected a tensor of a module not called optimizer"
            )
    return weights


def _named_parameters(
    modules: Mapping[str, nn.Module], optimizer: torch.optim.Optimizer | None
) -> dict[str, nn.Parameter]:
    """Return the parameters of the optimizer by name, in the order of the optimizer."""
    names = {
        parameter: f"{prefix}.{name}"
        for prefix, module in modules.items()
        for name, parameter in module.named_parameters()
    }
    groups = [] if optimizer is None else optimizer.param_groups
    parameters = [parameter for group in groups for parameter in group["params"]]
    for parameter in parameters:
        if parameter not in names:
            raise CheckpointError(
                f"unknown parameter {_kind(parameter)} of the optimizer: expected one of the modules {sorted(modules)}"
            )
    return {names[parameter]: parameter for parameter in parameters}


def _describe_optimizer(modules: Mapping[str, nn.Module], optimizer: torch.optim.Optimizer | None) -> dict[str, object]:
    """Return the class, parameters and options of the optimizer as JSON. Options of group K have the key `K.NAME`."""
    if optimizer is None:
        return {"kind": None}
    described: dict[str, object] = {"kind": type(optimizer).__name__}
    names = {parameter: name for name, parameter in _named_parameters(modules, optimizer).items()}
    for number, group in enumerate(optimizer.param_groups):
        described[f"{number}.parameters"] = [names[parameter] for parameter in group["params"]]
        described |= {f"{number}.{name}": value for name, value in group.items() if name not in VOLATILE}
    try:
        in_json: dict[str, object] = json.loads(json.dumps(described, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"an option of the optimizer is not JSON: {error}") from error
    return in_json


def _restored_states(
    saved: Snapshot, parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer | None
) -> Iterator[tuple[nn.Parameter, dict[str, object]]]:
    """Yield every parameter with saved state, and this state. Raise `CheckpointError` if a state is invalid.

    If the snapshot has no `STATE`, all parameters of a group that have state must have states of the same names.
    """
    # 1. Collect the saved tensors and numbers by parameter and name of state.
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
        name, _, state_name = key.rpartition(".")
        states.setdefault(name, {})[state_name] = value
    _check_names("optimizer state", states.keys() - parameters.keys(), ())
    # 2. Check these states and copy them to their devices, group by group.
    names = {parameter: name for name, parameter in parameters.items()}
    for group in [] if optimizer is None else optimizer.param_groups:
        with_state = {names[parameter]: parameter for parameter in group["params"] if names[parameter] in states}
        for name, parameter in with_state.items():
            if listed is None:
                _check_names(f"optimizer state of {name}", states[name], states[next(iter(with_state))])
            state: dict[str, object] = {}
            for state_name, value in states[name].items():
                key = f"{name}.{state_name}"
                description = None if listed is None else listed[key]
                state[state_name] = _place_state(key, value, parameter, group, description)
            yield parameter, state


def _place_state(
    name: str, value: object, parameter: nn.Parameter, group: Mapping[str, object], description: object
) -> object:
    """Return a state on the device on which the optimizer would create it. Raise `CheckpointError` if it is invalid.

    A step counter is on the CPU unless the kernels of the optimizer read it.

    Args:
        name: The name of the state.
        value: The saved number or tensor.
        parameter: The parameter of the state.
        group: The group of the parameter.
        description: The entry of the state in `STATE`, such as `float32 [4, 8] cuda`; None without one.
    """
    if not isinstance(value, Tensor):
        return value
    if description is not None:
        kind, _, device_type = str(description).rpartition(" ")
        if _kind(value) != kind:
            raise CheckpointError(f"optimizer state {name} is {_kind(value)}; expected {kind}")
        if not _is_regular(name, value, parameter):
            return value.to("cpu" if device_type == "cpu" else parameter.device, copy=True)
    _check_state(name, value, _local(parameter))
    if name.endswith(f".{COUNTER}"):
        return value.to(parameter.device if group.get("fused") or group.get("capturable") else "cpu", copy=True)
    # `zeros_like` divides the state of a divided parameter too.
    state = torch.zeros_like(parameter, dtype=value.dtype, requires_grad=False)
    _local(state).copy_(value)
    return state


def _local(tensor: Tensor) -> Tensor:
    """Return the shard of this rank, which shares memory with the divided tensor; return other tensors unchanged."""
    to_local = getattr(tensor, "to_local", None)  # a method of DTensor
    return tensor if to_local is None else to_local()


def _is_regular(name: str, value: object, parameter: Tensor) -> bool:
    """Return whether a state passes `_check_state`."""
    try:
        _check_state(name, value, parameter)
    except CheckpointError:
        return False
    return True


def _describe_state(name: str, value: object, parameter: Tensor) -> str:
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
    """Raise `CheckpointError` unless a state is a step counter, or has the shape and dtype of its parameter.

    The state of a parameter of fewer bits may also be float32.
    """
    if not isinstance(value, Tensor):
        raise CheckpointError(f"optimizer state {name} is {type(value).__name__}; expected a tensor")
    if not name.endswith(f".{COUNTER}"):
        is_wider = value.dtype == torch.float32 and torch.finfo(parameter.dtype).bits < 32
        _check_like(f"optimizer state {name}", value, parameter.float() if is_wider else parameter)
    elif value.dim() or not value.is_floating_point():
        raise CheckpointError(f"optimizer state {name} is {_kind(value)}; expected a number")


def _check_like(name: str, value: Tensor | StoredTensor, expected: Tensor) -> None:
    """Raise `CheckpointError` unless two tensors have the same dtype and shape."""
    if _kind(value) != _kind(expected):
        raise CheckpointError(f"{name} is {_kind(value)}; expected {_kind(expected)}")


def _kind(tensor: Tensor | StoredTensor) -> str:
    """Return dtype and shape, such as `float32 [4, 8]`."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _check_names(subject: str, actual: Iterable[str], expected: Iterable[str]) -> None:
    """Raise `CheckpointError` unless the names are equal. subject: what the names belong to, for the message."""
    present, wanted = {*actual}, {*expected}
    missing, unknown = sorted(wanted - present), sorted(present - wanted)
    if missing or unknown:
        raise CheckpointError(f"{subject}: missing {missing[:3]}, unknown {unknown[:3]}")
