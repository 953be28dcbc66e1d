"""Corrected versions of the other modules' losses, with the same signatures and conventions.

Each docstring lists the corrections. All select the scored rows before any arithmetic, so unscored positions have no
influence, and sum terms only where the teacher's probability is positive.

Shape letters: N rows, V vocabulary of the student, W of the teacher, H hidden.
"""

import math

import torch
from torch import Tensor

from falsifiers.peers.adapter import IGNORED, Adapter, Fused, count, cross_entropy


def torchtune_forward_kl(student_NV: Tensor, teacher_NV: Tensor, labels_N: Tensor) -> Tensor:
    """Return the mean forward KL with the teacher's entropy, and 0 with a graph if nothing is scored."""
    keep = labels_N != IGNORED
    nats_N = divergence(student_NV[keep].float(), teacher_NV[keep].float(), 1.0)
    return nats_N.sum() / keep.sum().clamp_min(1)


def trl_jsd(student_NV: Tensor, teacher_NV: Tensor, labels_N: Tensor, temperature: float) -> Tensor:
    """Return the mean at beta = 0: no NaN for banned tokens or unscored rows, half precision computed in float32."""
    keep = labels_N != IGNORED
    nats_N = divergence(student_NV[keep], teacher_NV[keep], temperature)
    return nats_N.sum() / keep.sum().clamp_min(1)


def liger_chunked_jsd(
    student_NH: Tensor, student_VH: Tensor, teacher_NH: Tensor, teacher_WH: Tensor, labels_N: Tensor,
    *, hard: float, soft: float, tau: float,
) -> Tensor:  # fmt: skip
    """Return the mean at beta = 0: teacher padding is cut off, and unscored rows are left out."""
    keep = labels_N != IGNORED
    student_NV, teacher_NW = student_NH[keep] @ student_VH.mT, teacher_NH[keep] @ teacher_WH.mT
    teacher_NV = teacher_NW[:, : len(student_VH)]
    nats = student_NV[:0].sum()  # zero, and part of the graph; a term of weight 0 is left out with its infinities
    if soft:
        nats = nats + soft * divergence(student_NV, teacher_NV, tau).sum()
    if hard:
        nats = nats + hard * cross_entropy(student_NV, labels_N[keep])
    return nats / keep.sum().clamp_min(1)


def modelopt_logits_loss(student_NV: Tensor, teacher_NV: Tensor, temperature: float) -> Tensor:
    """Return the mean over rows, not over rows and vocabulary, with the factor tau^2, and 0 without rows.

    The recipes too: with no terms for banned tokens.
    """
    return divergence(student_NV, teacher_NV, temperature).sum() / max(len(student_NV), 1) * temperature**2


def divergence(student_NV: Tensor, teacher_NV: Tensor, temperature: float) -> Tensor:
    """Return KL(teacher || student) of each row in nats, [N], computed in float32 or wider.

    The maximum is subtracted before the division, which would overflow. A probability that underflows is still
    positive, so the result is +inf, not NaN, where only the student's logit is -inf.
    """
    log_p, log_q = _log_softmax(teacher_NV.detach(), temperature), _log_softmax(student_NV, temperature)
    p = log_p.exp().clamp_min(torch.finfo(log_p.dtype).tiny)
    return torch.where(log_p > -math.inf, p * (log_p - log_q), 0.0).sum(-1)


def _log_softmax(logits_NV: Tensor, temperature: float) -> Tensor:
    wide = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
    return ((wide - wide.detach().amax(-1, keepdim=True)) / temperature).log_softmax(-1)


def _torchtune(student_BTV: Tensor, teacher_BTV: Tensor, labels_BT: Tensor, temperature: float) -> Tensor:
    student_NV, teacher_NV = (x.flatten(0, 1) / temperature for x in (student_BTV, teacher_BTV))
    return torchtune_forward_kl(student_NV, teacher_NV, labels_BT.flatten()) * count(labels_BT) * temperature**2


def _trl(student_BTV: Tensor, teacher_BTV: Tensor, labels_BT: Tensor, temperature: float) -> Tensor:
    mean = trl_jsd(student_BTV.flatten(0, 1), teacher_BTV.flatten(0, 1), labels_BT.flatten(), temperature)
    return mean * count(labels_BT) * temperature**2


def _modelopt(student_BTV: Tensor, teacher_BTV: Tensor, labels_BT: Tensor, temperature: float) -> Tensor:
    keep = labels_BT != IGNORED
    return modelopt_logits_loss(student_BTV[keep], teacher_BTV[keep], temperature) * count(labels_BT)


torchtune = Adapter(_torchtune, torch.float32)
trl = Adapter(_trl)
liger = Fused(liger_chunked_jsd)
modelopt = recipes = Adapter(_modelopt)
