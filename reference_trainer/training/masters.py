"""AdamW of weights that are stored in fewer bits than the sum of their updates needs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

__all__ = ["MASTER", "MasterAdamW", "needs_master"]

MASTER = "master"
"""Name of the state that is the parameter in float32."""


def needs_master(parameter: Tensor) -> bool:
    """Return whether a parameter has fewer bits than float32."""
    return torch.finfo(parameter.dtype).bits < 32


class MasterAdamW(torch.optim.AdamW):
    """`AdamW` in float32, also of parameters of fewer bits: it updates their masters, and rounds these to them.

    Source: Micikevicius et al. 2018, arXiv:1710.03740, section 3.1.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take a step. A closure is not called."""
        for group in self.param_groups:
            held = [parameter for parameter in group["params"] if parameter.grad is not None]
            states = [self._begun(parameter, group) for parameter in held]
            masters = [state.get(MASTER, parameter) for parameter, state in zip(held, states, strict=True)]
            adamw(
                masters,
                [parameter.grad.to(master.dtype) for parameter, master in zip(held, masters, strict=True)],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                [state["step"] for state in states],
                fused=group["fused"],
                found_inf=getattr(self, "found_inf", None),
                amsgrad=False,
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=False,
            )
            for parameter, master in zip(held, masters, strict=True):
                if master is not parameter:
                    parameter.copy_(master)

    def _begun(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """Return the state of a parameter, which is made before its first step."""
        state: dict[str, Any] = self.state[parameter]
        if not state:
            place = parameter.device if group["fused"] else "cpu"
            master = parameter.detach().float() if needs_master(parameter) else parameter
            state["step"] = torch.zeros((), dtype=torch.float32, device=place)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(master), torch.zeros_like(master)
            if master is not parameter:
                state[MASTER] = master
        return state
