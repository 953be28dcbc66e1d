"""Wrong versions of public functions: the faults that the contract `snapshot` declares."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def state_forgotten(original: Any, saved: Any, modules: Any, optimizer: Any) -> None:
    """Restore the weights, and leave the optimizer empty."""
    original(saved, modules, optimizer)
    if optimizer is not None:
        optimizer.state.clear()


def counter_starts_at_one(original: Any, modules: Any, optimizer: Any) -> Any:
    """Pretend a step, so that there is state to save."""
    saved = original(modules, optimizer)
    names = {each: f"{m}.{n}" for m, module in modules.items() for n, each in module.named_parameters()}
    for group in [] if optimizer is None else optimizer.param_groups:
        for each in group["params"]:
            key = f"optimizer.{names[each]}"
            if not any(name.startswith(key) for name in saved.tensors) and saved.optimizer["kind"] == "AdamW":
                moments = {f"{key}.{name}": torch.zeros_like(each, device="cpu") for name in ("exp_avg", "exp_avg_sq")}
                saved.tensors.update({f"{key}.step": torch.tensor(1.0), **moments})
    return saved


def snapshot_of_live_tensors(original: Any, modules: Any, optimizer: Any) -> Any:
    """Keep the tensors of the run itself."""
    saved = original(modules, optimizer)
    for module, each in modules.items():
        saved.tensors.update({f"{module}.{name}": value.detach() for name, value in each.state_dict().items()})
    return saved


def buffers_forgotten(original: Any, modules: Any, optimizer: Any) -> Any:
    """Save the initial value of buffers."""
    saved = original(modules, optimizer)
    for module, each in modules.items():
        saved.tensors.update({f"{module}.{name}": torch.zeros_like(value) for name, value in each.named_buffers()})
    return saved


def weights_first(original: Any, saved: Any, modules: Any, optimizer: Any) -> None:
    """Load weights before the optimizer is checked."""
    for module, each in modules.items():
        own = each.state_dict()
        with torch.no_grad():
            for name, value in own.items():
                given = saved.tensors.get(f"{module}.{name}")
                if given is not None and given.shape == value.shape:
                    value.copy_(given)
    original(saved, modules, optimizer)


def kinds_not_checked(original: Any, saved: Any, modules: Any, optimizer: Any) -> None:
    """Let tensors be cast and broadcast to what the run has."""
    from dataclasses import replace

    live = {f"{m}.{n}": t for m, module in modules.items() for n, t in module.state_dict().items()}
    fitted = {}
    for name, each in saved.tensors.items():
        like = live.get(name.removeprefix("optimizer.").rpartition(".")[0], live.get(name))
        counted = name.endswith(".step")
        try:
            fitted[name] = each.float() if counted else each.to(like.dtype).expand(like.shape).clone()
        except (AttributeError, RuntimeError):
            fitted[name] = each
    original(replace(saved, tensors=fitted), modules, optimizer)


def options_not_compared(original: Any, saved: Any, modules: Any, optimizer: Any) -> None:
    """Accept any optimizer."""
    from dataclasses import replace

    from reference_trainer.storage.snapshot import snapshot

    original(replace(saved, optimizer=snapshot(modules, optimizer).optimizer), modules, optimizer)


def rate_restored(original: Any, saved: Any, modules: Any, optimizer: Any) -> None:
    """Set another learning rate."""
    original(saved, modules, optimizer)
    for group in [] if optimizer is None else optimizer.param_groups:
        group["lr"] = 0.5


def odd_state_left_out(original: Any, modules: Any, optimizer: Any) -> Any:
    """Leave out state that is no tensor."""
    for state in () if optimizer is None else optimizer.state.values():
        for name in [name for name, value in state.items() if not isinstance(value, torch.Tensor)]:
            del state[name]
    return original(modules, optimizer)


def steps_on_the_device(original: Any, saved: Any, modules: Any, optimizer: Any) -> None:
    """Move every state to the device of its parameter."""
    original(saved, modules, optimizer)
    for parameter, state in ({} if optimizer is None else optimizer.state).items():
        state.update({what: each.to(parameter.device) for what, each in state.items()})


def divided_tensors_whole(original: Any, modules: Any, optimizer: Any) -> Any:
    """Save all rows."""
    import torch

    saved = original(modules, optimizer)
    for name, module in modules.items():
        for key, each in module.state_dict().items():
            saved.tensors[f"{name}.{key}"] = each.as_subclass(torch.Tensor).detach().clone()
    return saved


def moments_not_counted(original: Any, module: Any) -> list[Tensor]:
    """Expect weights and buffers."""
    return list(module.state_dict().values())
