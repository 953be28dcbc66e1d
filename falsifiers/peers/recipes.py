"""Three widely copied recipes of distillation with `torch.nn.functional`.

Each gets the scored rows [N, V] and returns a mean, which is multiplied by N.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from falsifiers.peers.adapter import IGNORED, Adapter, Term


def _on_scored_rows(recipe: Term) -> Term:
    def term(student_BTV: Tensor, teacher_BTV: Tensor, labels_BT: Tensor, temperature: float) -> Tensor:
        scored_BT = labels_BT != IGNORED
        student_NV, teacher_NV = student_BTV[scored_BT], teacher_BTV[scored_BT]
        return recipe(student_NV, teacher_NV, labels_BT[scored_BT], temperature) * len(student_NV)

    return term


def _tutorial(student_NV: Tensor, teacher_NV: Tensor, labels_N: Tensor, temperature: float) -> Tensor:
    """Return the loss of PyTorch's tutorial on knowledge distillation."""
    soft_targets = F.softmax(teacher_NV / temperature, dim=-1)
    soft_prob = F.log_softmax(student_NV / temperature, dim=-1)
    return torch.sum(soft_targets * (soft_targets.log() - soft_prob)) / soft_prob.size()[0] * temperature**2


def _batchmean(student_NV: Tensor, teacher_NV: Tensor, labels_N: Tensor, temperature: float) -> Tensor:
    """Return `kl_div` with reduction "batchmean", as its documentation advises."""
    log_q, p = F.log_softmax(student_NV / temperature, dim=-1), F.softmax(teacher_NV / temperature, dim=-1)
    return F.kl_div(log_q, p, reduction="batchmean") * temperature**2


def _mean(student_NV: Tensor, teacher_NV: Tensor, labels_N: Tensor, temperature: float) -> Tensor:
    """Return `nn.KLDivLoss()` with its default reduction "mean"."""
    log_q, p = F.log_softmax(student_NV / temperature, dim=-1), F.softmax(teacher_NV / temperature, dim=-1)
    return torch.nn.KLDivLoss()(log_q, p) * temperature**2


tutorial = Adapter(_on_scored_rows(_tutorial))
batchmean = Adapter(_on_scored_rows(_batchmean))
mean = Adapter(_on_scored_rows(_mean))
