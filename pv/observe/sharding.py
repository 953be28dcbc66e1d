"""Facts about parameters that FSDP1 or FSDP2 (`fully_shard`) shards.

With FSDP2, a parameter is a DTensor that contains the shard of this rank. FSDP2 adds reduced gradients to the shard of
the gradient, so the version counter of the DTensor does not change.

After `set_requires_gradient_sync(False)`, backward passes store gradients in the whole parameters, which are not
parameters of the optimizer. A later backward pass reduces these gradients.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, Optional

from torch import Tensor, nn


def local(tensor: Tensor) -> Tensor:
    """Return the local shard of a DTensor; a plain tensor is returned unchanged."""
    if type(tensor) in (Tensor, nn.Parameter):  # faster than a search for a missing attribute
        return tensor
    part = getattr(tensor, "_local_tensor", tensor)
    return part if isinstance(part, Tensor) else tensor


def version(tensor: Tensor) -> int:
    """Return the version counter of a tensor; for a DTensor, the sum of the counters of the DTensor and its shard."""
    part = local(tensor)
    return tensor._version if part is tensor else tensor._version + part._version


def is_unchanged(p: Tensor, versions: dict[int, tuple[weakref.ref[Tensor], int]]) -> bool:
    """Return whether the gradient of a parameter is the stored tensor, and its version is the stored version.

    Args:
        p: The parameter.
        versions: Weak references to the stored gradients, and their versions, by id of the parameter.
    """
    stored = versions.get(id(p))
    return stored is not None and p.grad is not None and stored[0]() is p.grad and stored[1] == version(p.grad)


def is_shard(tensor: Tensor) -> bool:
    """Return whether a tensor is a DTensor whose elements are divided among the ranks."""
    return any(placement.is_shard() for placement in getattr(tensor, "placements", ()))


def is_partial(tensor: Tensor) -> bool:
    """Return whether a tensor is a result for the local shard only, such as a sum, not yet reduced over all ranks.

    A norm other than the 2-norm does not count.
    """
    placements = getattr(tensor, "placements", ())
    return any(placement.is_partial() and getattr(placement, "norm_type", 2) == 2 for placement in placements)


class Shards:
    """Finds the sharded parameters of a model in private attributes of FSDP2, and in FSDP1 modules.

    Args:
        modules: The model and all its submodules.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._groups: list[weakref.ref[Any]] = []
        """The groups of parameters that FSDP2 shards together."""
        self._flat: list[weakref.ref[nn.Module]] = []
        """The FSDP1 modules that shard parameters. Their shards are plain tensors."""
        for module in modules:
            if type(module).__name__ == "FullyShardedDataParallel":
                if getattr(getattr(module, "sharding_strategy", None), "name", "NO_SHARD") != "NO_SHARD":
                    self._flat.append(weakref.ref(module))
            state_of: Any = getattr(module, "_get_fsdp_state", None)
            if state_of is not None and hasattr(type(module), "set_requires_gradient_sync"):
                state = state_of()
                groups = getattr(state, "_fsdp_param_groups", None)
                if groups is None:  # before torch 2.12
                    groups = [state._fsdp_param_group] if state._fsdp_param_group is not None else []
                self._groups.extend(map(weakref.ref, groups))

    def _live_groups(self) -> list[Any]:
        """Return the groups of `_groups` that still exist."""
        return [group for reference in self._groups if (group := reference()) is not None]

    def waiting(self) -> dict[int, Tensor]:
        """Return the gradients that FSDP2 has not reduced yet, by id of the sharded parameter."""
        gradients: dict[int, Tensor] = {}
        for group in self._live_groups():
            for part in group.fsdp_params:
                # FSDP2 stores the gradient of one backward pass in `grad`, and the sum over several passes in
                # `unsharded_accumulated_grad`.
                gradient: Optional[Tensor] = getattr(part, "unsharded_accumulated_grad", None)
                whole = getattr(part, "_unsharded_param", None)
                if gradient is None and whole is not None:
                    gradient = whole.grad
                if gradient is not None:
                    gradients[id(part.sharded_param)] = gradient
        return gradients

    def flat_ids(self) -> set[int]:
        """Return the ids of the parameters that FSDP1 shards."""
        modules = [module for reference in self._flat if (module := reference()) is not None]
        return {id(p) for module in modules for p in module.parameters()}

    def has_custom_divisor(self) -> bool:
        """Return whether FSDP2 divides gradients by a number that the script has set, not by the number of ranks."""
        return any(getattr(group, "gradient_divide_factor", None) is not None for group in self._live_groups())
