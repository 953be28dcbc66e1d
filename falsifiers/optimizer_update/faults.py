"""Wrong versions of public functions: the faults that the contract declares."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch


def gradients_zeroed(original: Any, parameters: Iterable[Any], rate: float, **rest: Any) -> Any:
    optimizer = original(parameters, rate, **rest)
    clear = optimizer.zero_grad
    optimizer.zero_grad = lambda set_to_none=True: clear(set_to_none=False)
    return optimizer


def decay_through_the_moments(original: Any, parameters: Iterable[Any], rate: float, **rest: Any) -> Any:
    chosen = original(parameters, rate, **rest)
    groups = [{name: group[name] for name in ("params", "weight_decay")} for group in chosen.param_groups]
    return torch.optim.Adam(groups, rate, chosen.defaults["betas"], chosen.defaults["eps"])


def rate_without_its_scale(original: Any, *args: Any, **options: Any) -> Any:
    """Have the scaled rates until the first step sets the rate of all groups."""
    optimizer = original(*args, **options)
    for group in optimizer.param_groups:
        group.pop("lr_scale", None)
    return optimizer


def output_layer_lowest(original: Any, module: Any, decay: float) -> dict[Any, float]:
    scales: dict[Any, float] = original(module, decay)
    least = min(scales.values())
    return {parameter: decay * least / scale for parameter, scale in scales.items()}


def tied_embedding_as_output_layer(original: Any, module: Any, decay: float) -> dict[Any, float]:
    scales: dict[Any, float] = original(module, decay)
    return scales | {module.head.weight: 1.0}


def rounded_after_each_step(original: Any, self: Any, *closure: Any) -> None:
    """Go on from the rounded weights, as if there were no masters."""
    original(self, *closure)
    with torch.no_grad():
        for parameter, state in self.state.items():
            state["master"].copy_(parameter)


def moments_in_fewer_bits(original: Any, self: Any, *closure: Any) -> None:
    """Round the moments to the type of the parameter, as `torch.optim.AdamW` makes them."""
    original(self, *closure)
    for parameter, state in self.state.items():
        for name in ("exp_avg", "exp_avg_sq"):
            state[name].copy_(state[name].to(parameter.dtype))


def known_norms_only(original: Any, *modules: Any) -> set[Any]:
    kinds = (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Embedding, torch.nn.LayerNorm, torch.nn.RMSNorm)
    every = [layer for module in modules for layer in module.modules() if isinstance(layer, kinds)]
    return set(original(*modules)) & {parameter for layer in every for parameter in layer.parameters(recurse=False)}


def micro_batches_clipped(original: Any, self: Any, position: Any, rate: float, *hooks: Any) -> Any:
    clip = self.options.clip
    if clip is None or self.optimizer is None:
        return original(self, position, rate, *hooks)
    parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
    return original(replace(self, parallel=_Clipping(self.parallel, parameters, clip)), position, rate, *hooks)


class _Clipping:
    """The ranks of a run, with the gradient clipped after every micro-batch."""

    def __init__(self, parallel: Any, parameters: list[Any], clip: float) -> None:
        self.parallel, self.parameters, self.clip = parallel, parameters, clip

    def __getattr__(self, name: str) -> Any:
        return getattr(self.parallel, name)

    @contextmanager
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        with self.parallel.micro_batch(last=last):
            yield
        torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)


SEEDED: list[int] = []
"""The seeds that `seeded_once` was given."""


def joined_without_a_separator(original: Any, seed: int, **at: int) -> int:
    digits = "".join(map(str, (seed, *at.values())))
    return int(original(int(digits), **dict.fromkeys(at, 0)))


def epoch_zero_for_ever(original: Any, seed: int, **at: int) -> int:
    return int(original(seed, **at | {"epoch": 0, "step": 0}))


def seeded_once(original: Any, seed: int, device: Any) -> None:
    if not SEEDED:
        original(seed, device)
    SEEDED.append(seed)


def unnumbered_gpu_has_no_generator(original: Any, device: torch.device) -> Any:
    """Compare devices as they are named: `cuda` is unequal to `cuda:0`, the device of the generator."""
    return original(torch.device("cpu") if device.index is None else device)
