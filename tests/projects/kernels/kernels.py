"""Five kernels as PyTorch has them, each behind a function of arrays and numbers."""

import torch
from torch import Tensor
from torch.nn import functional as F


def softmax(x: Tensor) -> Tensor:
    return F.softmax(x, -1)


def softmax_pulled(x: Tensor, g: Tensor) -> Tensor:
    return (F.softmax(x, -1) * g).sum()


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits, targets)


def rms_norm(x: Tensor, gamma: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], gamma, eps)


def rms_norm_pulled(x: Tensor, gamma: Tensor, g: Tensor, eps: float) -> Tensor:
    return (rms_norm(x, gamma, eps) * g).sum()


def silu(x: Tensor) -> Tensor:
    return F.silu(x)


def silu_sum(x: Tensor) -> Tensor:
    return F.silu(x).sum()


def swiglu(x: Tensor, w: Tensor, v: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return F.silu(x @ w + b) * (x @ v + c)


def adamw_step(
    theta: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    step: int,
    *,
    lr: float,
    betas: list[float],
    eps: float,
    decay: float,
    kind: type[torch.optim.Adam] = torch.optim.AdamW,
) -> tuple[Tensor, Tensor, Tensor]:
    """Parameters and both moments after step number `step`, by the optimizer itself."""
    parameter = torch.nn.Parameter(theta)
    parameter.grad = g
    optimizer = kind([parameter], lr=lr, betas=tuple(betas), eps=eps, weight_decay=decay)
    optimizer.state[parameter] = {"step": torch.tensor(step - 1.0), "exp_avg": m, "exp_avg_sq": v}
    optimizer.step()
    return parameter.detach(), m, v
