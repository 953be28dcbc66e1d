"""Puts a distillation term of somebody else's in the place of the KD contract's subject.

    sum = ce_weight * CE(s, y)  +  kd_weight * term(s, t, y)

A term answers in nats, summed over the scored positions, at temperature tau and with the factor tau^2: what a library
means by its parameters is brought to that by its documented parameters, and a mean is multiplied by the library's own
denominator. Nothing is repaired: no mask, no filter for NaN or infinities, no detached teacher. The gradient is the
library's own backward. Cross-entropy is torch's, on the scored rows, where the library has none.

Shape letters: B batch, T position, V vocabulary, N rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORED = -100
Term = Callable[[Tensor, Tensor, Tensor, float], Tensor]
"""Student and teacher logits [B, T, V], labels [B, T] with -100 where unscored, and the temperature."""


@dataclass(frozen=True, slots=True)
class LossSum:
    """The undivided loss in nats, and how many positions were scored."""

    sum: Tensor
    count: Tensor


@dataclass(frozen=True, slots=True)
class Adapter:
    """A subject of the KD contract whose teacher term is `term`.

    ARITHMETIC: the precision in which the library computes whatever it is given; the falsifiers allow for its rounding.
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
        """The mix; a part of weight 0 is not asked for."""
        labels_BT = labels_BT.long()
        scored_BT = labels_BT != ignore_index
        parts = []
        if kd_weight:
            labels = labels_BT.masked_fill(~scored_BT, IGNORED)
            parts.append(kd_weight * self.term(student_BTV, teacher_BTV, labels, temperature))
        if ce_weight:
            parts.append(ce_weight * cross_entropy(student_BTV[scored_BT], labels_BT[scored_BT]))
        return LossSum(sum(parts[1:], parts[0]) if parts else student_BTV[:0].sum(), scored_BT.sum())

    def kd_logit_gradient(self, student_BTV: Tensor, teacher_BTV: Tensor, labels_BT: Tensor, **how: Any) -> Tensor:
        """The gradient that the library's own backward gives."""
        leaf = student_BTV.detach().clone().requires_grad_()
        loss = self.kd_loss(leaf, teacher_BTV, labels_BT, **how)
        (gradient,) = torch.autograd.grad(loss.sum, leaf)
        return gradient


def cross_entropy(student_NV: Tensor, labels_N: Tensor) -> Tensor:
    """torch's own, summed, in float32 at least."""
    wide = torch.promote_types(student_NV.dtype, torch.float32)
    return F.cross_entropy(student_NV.to(wide), labels_N, reduction="sum").double()


def count(labels_BT: Tensor) -> Tensor:
    """How many positions are scored."""
    return (labels_BT != IGNORED).sum()


@dataclass(frozen=True, slots=True)
class Fused:
    """A subject of the KD contract whose whole mix is `mean`'s, a loss of hidden states and output weights.

    It gets student and teacher logits [N, V] as hidden states, each with the identity as its weights, the labels [N],
    and by name the weights `hard` and `soft` of the two terms and the temperature `tau`.
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
        labels = labels_BT.long().masked_fill(labels_BT == ignore_index, IGNORED)
        rows = [x for logits in (student_BTV, teacher_BTV) for x in (logits.flatten(0, 1), _identity(logits))]
        soft = kd_weight * temperature**2
        mean = self.mean(*rows, labels.flatten(), hard=ce_weight, soft=soft, tau=temperature)
        return LossSum(mean * count(labels).clamp_min(1), count(labels))

    def kd_logit_gradient(self, student_BTV: Tensor, teacher_BTV: Tensor, labels_BT: Tensor, **how: Any) -> Tensor:
        """The gradient that the library computes in its forward."""
        leaf = student_BTV.detach().clone().requires_grad_()
        (gradient,) = torch.autograd.grad(self.kd_loss(leaf, teacher_BTV, labels_BT, **how).sum, leaf)
        return gradient


def _identity(logits: Tensor) -> Tensor:
    return torch.eye(logits.shape[-1], dtype=logits.dtype, device=logits.device)
