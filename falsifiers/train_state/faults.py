"""Wrong versions of public functions: the faults that the contract declares."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch


def nan_becomes_best(original: Any, self: Any, sums: Mapping[str, Any], sequences: int) -> None:
    before = self.best_loss
    original(self, sums, sequences)
    if self.loss is not None and not (before is not None and self.loss >= before):
        self.best_loss = self.loss


def empty_step_is_perfect(original: Any, self: Any, sums: Mapping[str, Any], sequences: int) -> None:
    original(self, sums, sequences)
    if self.loss is None:
        self.loss = self.final_loss = self.best_loss = 0.0


def mean_of_means(original: Any, self: Any, sums: Mapping[str, Any], sequences: int) -> None:
    interval, epoch = dict(self.interval), self.epoch
    original(self, sums, sequences)
    for name, sum in sums.items():
        mean = replace(sum, sum=sum.sum / max(sum.count, 1), count=min(sum.count, 1))
        old = interval.get(name, replace(mean, sum=0.0, count=0))
        self.interval[name] = replace(mean, sum=old.sum + mean.sum, count=old.count + mean.count)
    loss = sums["loss"]
    mean = loss.sum / max(loss.count, 1)
    self.epoch = replace(epoch, sum=epoch.sum + mean, count=epoch.count + min(loss.count, 1))


def best_forgotten(original: Any, text: str) -> Any:
    return replace(original(text), best_loss=None)


def counter_starts_at_one(original: Any, modules: Any, optimizer: Any) -> Any:
    saved = original(modules, optimizer)
    names = {parameter: f"{m}.{n}" for m, module in modules.items() for n, parameter in module.named_parameters()}
    for group in [] if optimizer is None else optimizer.param_groups:
        for parameter in group["params"]:
            key = f"optimizer.{names[parameter]}"
            if not any(name.startswith(key) for name in saved.tensors) and saved.optimizer["kind"] == "AdamW":
                moments = {
                    f"{key}.{name}": torch.zeros_like(parameter, device="cpu") for name in ("exp_avg", "exp_avg_sq")
                }
                saved.tensors.update({f"{key}.step": torch.tensor(1.0), **moments})
    return saved


def numbers_forgotten(original: Any, modules: Any, optimizer: Any) -> Any:
    saved = original(modules, optimizer)
    state = {name: value for name, value in saved.optimizer.get("state", {}).items() if isinstance(value, str)}
    return replace(saved, optimizer=saved.optimizer | {"state": state}) if state else saved


def snapshot_of_live_tensors(original: Any, modules: Any, optimizer: Any) -> Any:
    saved = original(modules, optimizer)
    for module, flag in modules.items():
        saved.tensors.update({f"{module}.{name}": value.detach() for name, value in flag.state_dict().items()})
    return saved


def kinds_not_checked(original: Any, saved: Any, modules: Any, optimizer: Any) -> None:
    from dataclasses import replace

    live = {f"{m}.{n}": t for m, module in modules.items() for n, t in module.state_dict().items()}
    fitted = {}
    for name, tensor in saved.tensors.items():
        like = live.get(name.removeprefix("optimizer.").rpartition(".")[0], live.get(name))
        counted = name.endswith(".step")
        try:
            fitted[name] = tensor.float() if counted else tensor.to(like.dtype).expand(like.shape).clone()
        except (AttributeError, RuntimeError):
            fitted[name] = tensor
    original(replace(saved, tensors=fitted), modules, optimizer)


def options_not_compared(original: Any, saved: Any, modules: Any, optimizer: Any) -> None:
    from dataclasses import replace

    from reference_trainer.storage.snapshot import snapshot

    original(replace(saved, optimizer=snapshot(modules, optimizer).optimizer), modules, optimizer)


def rate_restored(original: Any, saved: Any, modules: Any, optimizer: Any) -> None:
    original(saved, modules, optimizer)
    for group in [] if optimizer is None else optimizer.param_groups:
        group["lr"] = 0.5


def steps_on_the_device(original: Any, saved: Any, modules: Any, optimizer: Any) -> None:
    original(saved, modules, optimizer)
    for parameter, state in ({} if optimizer is None else optimizer.state).items():
        tensors = {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}
        state.update({key: value.to(parameter.device) for key, value in tensors.items()})
