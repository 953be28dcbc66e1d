"""The same kernels, each with a fault that has been seen in one."""

import functools

import torch
from kernels import adamw_step as right_adamw_step
from torch import Tensor
from torch.nn import functional as F


def softmax(x: Tensor) -> Tensor:
    """Overflows: no maximum is subtracted."""
    return x.exp() / x.exp().sum(-1, keepdim=True)


def softmax_pulled(x: Tensor, g: Tensor) -> Tensor:
    """The value is right; the normaliser carries no gradient."""
    return (x.exp() / x.exp().sum().detach() * g).sum()


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Smoothed a little."""
    return F.cross_entropy(logits, targets, label_smoothing=1e-3)


def rms_norm(x: Tensor, gamma: Tensor, eps: float) -> Tensor:
    """Epsilon stands outside the root."""
    return x / (x.square().mean(-1, keepdim=True).sqrt() + eps) * gamma


def rms_norm_pulled(x: Tensor, gamma: Tensor, g: Tensor, eps: float) -> Tensor:
    """The value is right; the norm carries no gradient."""
    return (x / (x.square().mean(-1, keepdim=True) + eps).sqrt().detach() * gamma * g).sum()


def silu(x: Tensor) -> Tensor:
    """GELU's approximation."""
    return x * torch.sigmoid(1.702 * x)


def silu_sum(x: Tensor) -> Tensor:
    return silu(x).sum()


def swiglu(x: Tensor, w: Tensor, v: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Gate and value have changed places."""
    return (x @ w + b) * F.silu(x @ v + c)


adamw_step = functools.partial(right_adamw_step, kind=torch.optim.Adam)  # decay goes through the moments
