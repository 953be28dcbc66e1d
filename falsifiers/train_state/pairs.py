"""Two modules with one optimizer, whose state is saved and restored."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from reference_trainer.training.update import MasterAdamW

__all__ = ["OPTIMIZERS", "Pair"]

Optimizers = Callable[[Iterable[Any]], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Optimizers] = {
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.1),
    "AdamW, amsgrad": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, amsgrad=True),
    "MasterAdamW": lambda parameters: MasterAdamW(parameters, lr=0.1),
    "SGD with momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
}


class Model(nn.Module):
    """Dropout, buffers of running means, a scalar, shared weights, and a parameter without a gradient."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.input, self.norm, self.drop = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.output = nn.Linear(4, 4)
        self.output.weight = nn.Parameter(self.output.weight.detach().T)  # strides other than those of its copy
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
        groups = [{"params": list(model.parameters())}, {"params": list(head.parameters()), "weight_decay": 0.5}]
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
        """Return weights, buffers and state by position, with their names."""
        weights = {f"{m}.{n}": t for m, each in self.modules.items() for n, t in each.state_dict().items()}
        held = [each for group in self.optimizer.param_groups for each in group["params"]]
        states = [self.optimizer.state.get(each, {}) for each in held]
        return weights | {f"{k}.{what}": each for k, state in enumerate(states) for what, each in state.items()}
