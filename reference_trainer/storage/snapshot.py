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
from reference_trainer.models.loading import NamedTensors, StoredTensor
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

    Attributes:
        tensors: Copies on the CPU by name; for a divided tensor, the shard of this rank.
        optimizer: Kind, parameters and options of the groups, and possibly the key `STATE`, as JSON.
    """

    tensors: dict[str, Tensor]
    optimizer: dict[str, Any]


def snapshot(modules: Mapping[str, nn.Module], optimizer: torch.optim.Optimizer | None) -> Snapshot:
    """Return copies of weights, buffers and optimizer state.

    Args:
        modules: All modules with parameters of the optimizer, by name.
        optimizer: The optimizer; None without one.

    Raises:
        CheckpointError: A parameter belongs to another module, a state is neither a number nor a tensor, or a parameter
            is divided among ranks and a state tensor is unlike it.
    """
    # Names of tensors: `MODULE.NAME` of weights and buffers, `optimizer.MODULE.NAME.STATE` of optimizer state. State is
    # listed under `STATE` only if `restore` could not derive its kind from the parameters.
    names = _parameter_names(modules, optimizer)
    tensors = _weights(modules)
    state: dict[str, object] = {}
    is_regular = True
    for name, parameter in names.items():
        for state_name, value in ({} if optimizer is None else optimizer.state.get(parameter, {})).items():
            key = f"{name}.{state_name}"
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
    # 1. Check everything. The last check is in `_states`, a generator, so it is run to its end here.
    described = {name: value for name, value in saved.optimizer.items() if name != STATE}
    _check_optimizer(described, _described(modules, optimizer))
    weights = _weights(modules)
    saved_weights = {name: tensor for name, tensor in saved.tensors.items() if not name.startswith("optimizer.")}
    check_weights(saved_weights, {name: _local(weight) for name, weight in weights.items()})
    states: dict[Tensor, Any] = dict(_states(saved, _parameter_names(modules, optimizer), optimizer))
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
    tensors = [*module.state_dict().values()]
    for candidate in (parameter for parameter in module.parameters() if parameter.requires_grad):
        is_copied = masters and torch.finfo(candidate.dtype).bits < 32
        like = torch.empty_like(candidate, dtype=torch.float32, device="meta") if is_copied else candidate
        tensors += [*[like] * (3 if is_copied else 2), torch.zeros(())]
    return tensors


def _weights(modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """Return the parameters and persistent buffers of the modules, by prefixed names."""
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
    names = {
        parameter: f"{module}.{name}" for module in modules for name, parameter in modules[module].named_parameters()
    }
    parameters = (
        [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if optimizer is not None
        else []
    )
    for parameter in parameters:
        if parameter not in names:
            raise CheckpointError(
                f"unknown parameter {_kind(parameter)} of the optimizer: expected one of the modules {sorted(modules)}"
            )
    return {names[parameter]: parameter for parameter in parameters}


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
    """Raise `CheckpointError` if the optimizer has another class, other parameters or other options."""
    changed = differences(saved, present)
    if changed:
        raise CheckpointError(f"the optimizer differs: {'; '.join(changed)}")


def _states(
    saved: Snapshot, parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer | None
) -> Iterator[tuple[nn.Parameter, dict[str, object]]]:
    """Yield every parameter with state, and its state.

    Unless `STATE` lists the state of each parameter, all parameters of a group that have state have the same names.
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
    _check_names("optimizer state", [name for name in states if name not in parameters], ())
    # 2. Check and place them, group by group.
    names = {parameter: name for name, parameter in parameters.items()}
    for group in [] if optimizer is None else optimizer.param_groups:
        with_state = {names[parameter]: parameter for parameter in group["params"] if names[parameter] in states}
        for name, parameter in with_state.items():
            if listed is None:
                _check_names(f"optimizer state of {name}", states[name], states[next(iter(with_state))])
            kinds = {
                state_name: None if listed is None else listed[f"{name}.{state_name}"] for state_name in states[name]
            }
            state = {
                state_name: _placed(f"{name}.{state_name}", value, parameter, group, kinds[state_name])
                for state_name, value in states[name].items()
            }
            yield parameter, state


def _placed(name: str, value: object, parameter: nn.Parameter, group: Mapping[str, object], listed: object) -> object:
    """Return a state on the device on which the optimizer creates it.

    Step counters are on the CPU, except if the kernels of the optimizer read them.

    Args:
        name: The name of the state.
        value: The saved number or tensor.
        parameter: The parameter of the state.
        group: The group of the parameter.
        listed: The entry of the state in `STATE`; None without one.
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
    # Like the parameter, so that the state of a divided parameter is divided too.
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


def _check_names(what: str, actual: Iterable[str], expected: Iterable[str]) -> None:
    """Raise `CheckpointError` unless the names are equal. what: the kind of names, for the message."""
    names, wanted = {*actual}, {*expected}
    missing, unknown = sorted(wanted - names), sorted(names - wanted)
    if missing or unknown:
        raise CheckpointError(f"{what}: missing {missing[:3]}, unknown {unknown[:3]}")
