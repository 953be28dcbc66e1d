"""Adapters that make another library's distillation term a subject of the contracts `kd-loss` and `kd-domain`.

    sum = ce_weight * CE(s, y)  +  kd_weight * term(s, t, y)

A term returns nats, summed over scored positions, at temperature tau and with the factor tau^2. Conventions are
translated through a library's documented parameters, and a mean is multiplied by the library's own denominator.
Nothing is repaired: no mask, no filter for NaN or infinities, no detached teacher. The gradient is the library's own
backward. The cross-entropy of the scored rows is PyTorch's where the library has none.

Shape letters: B batch, T position, V vocabulary, N rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORED = -100
Term = Callable[[Tensor, Tensor, Tensor, float], Tensor]
"""A term's arguments: student and teacher logits [B, T, V], labels [B, T] with -100 where unscored, temperature."""


@dataclass(frozen=True, slots=True)
class LossSum:
    """An undivided loss: `sum` in nats over `count` scored positions."""

    sum: Tensor
    count: Tensor


class Differentiated:
    """A subject of the contract whose gradient is computed from its loss by autograd."""

    __slots__ = ()
    kd_loss: Callable[..., LossSum]

    def kd_logit_gradient(self, student_BTV: Tensor, teacher_BTV: Tensor, labels_BT: Tensor, **options: Any) -> Tensor:
        """Return the gradient [B, T, V] of the sum, from the library's own backward, or its forward if it is fused."""
        leaf = student_BTV.detach().clone().requires_grad_()
        (gradient,) = torch.autograd.grad(self.kd_loss(leaf, teacher_BTV, labels_BT, **options).sum, leaf)
        return gradient


@dataclass(frozen=True, slots=True)
class Adapter(Differentiated):
    """A subject of the contract whose teacher term is `term`.

    ARITHMETIC: the dtype in which the library computes float64 logits; the falsifiers allow for its rounding.
    """

    term: Term
    ARITHMETIC: torch.dtype = torch.float64

    def kd_loss(
        self,
        student_BTV: Tensor,
        teacher_BTV: Tensor,
        labels_BT: Tensor,
        *,
        temperature: float,
        ce_weight: float,
        kd_weight: float,
        ignore_index: int = IGNORED,
    ) -> LossSum:
        """Return the weighted sum of both terms; a term of weight 0 is not called."""
        labels_BT = labels_BT.long()
        scored_BT = labels_BT != ignore_index
        parts = []
        if kd_weight:
            labels = labels_BT.masked_fill(~scored_BT, IGNORED)
            parts.append(kd_weight * self.term(student_BTV, teacher_BTV, labels, temperature))
        if ce_weight:
            parts.append(ce_weight * cross_entropy(student_BTV[scored_BT], labels_BT[scored_BT]))
        return LossSum(sum(parts[1:], parts[0]) if parts else student_BTV[:0].sum(), scored_BT.sum())


def cross_entropy(student_NV: Tensor, labels_N: Tensor) -> Tensor:
    """Return PyTorch's cross-entropy in nats, summed over rows, computed in float32 or wider."""
    wide = torch.promote_types(student_NV.dtype, torch.float32)
    return F.cross_entropy(student_NV.to(wide), labels_N, reduction="sum").double()


def count(labels_BT: Tensor) -> Tensor:
    """Return the number of scored positions, an int64 scalar."""
    return (labels_BT != IGNORED).sum()


@dataclass(frozen=True, slots=True)
class Fused(Differentiated):
    """A subject of the contract whose weighted sum is computed by `mean`, a loss of hidden states and output weights.

    `mean` gets student and teacher logits [N, V] as hidden states, each with the identity as output weights, the labels
    [N], and by name the weights `hard` and `soft` of the two terms and the temperature `tau`.
    """

    mean: Callable[..., Tensor]
    ARITHMETIC: torch.dtype = torch.float32

    def kd_loss(
        self,
        student_BTV: Tensor,
        teacher_BTV: Tensor,
        labels_BT: Tensor,
        *,
        temperature: float,
        ce_weight: float,
        kd_weight: float,
        ignore_index: int = IGNORED,
    ) -> LossSum:
        """Return the library's mean loss, multiplied by its denominator."""
        labels = labels_BT.long().masked_fill(labels_BT == ignore_index, IGNORED)
        rows = [x for logits in (student_BTV, teacher_BTV) for x in (logits.flatten(0, 1), _identity(logits))]
        soft = kd_weight * temperature**2
        mean = self.mean(*rows, labels.flatten(), hard=ce_weight, soft=soft, tau=temperature)
        return LossSum(mean * count(labels).clamp_min(1), count(labels))


def _identity(logits: Tensor) -> Tensor:
    return torch.eye(logits.shape[-1], dtype=logits.dtype, device=logits.device)
