"""Compare the closed-form gradient of the distillation loss with automatic differentiation.

Shape letters: B batch, T position, V vocabulary, N scored positions, K tokens of these with a probability above 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from reference_trainer.distillation import losses
from reference_trainer.distillation.objective import IGNORE_INDEX, Weights

# Larger than the rounding error of V products in float64, and smaller than the difference by an additional factor tau,
# which is 0.5 or more.
AGREE = 1e-10


def relative_difference(
    student_BTV: Tensor,
    teacher_BTV: Tensor,
    labels_BT: Tensor,
    *,
    temperature: float,
    ce_weight: float,
    kd_weight: float,
    divergence: str = "forward_kl",
    beta: float = 0.5,
    gradient: Callable[..., Tensor] = losses.kd_logit_gradient,
) -> float:
    """Return ||closed form - autograd|| / scale for the gradient of the loss, computed in float64 from these logits.

    `scale` is ||autograd||, or about the norm of the gradient's two terms without cancellation if that is larger,
    because the terms nearly cancel at a high temperature. If both weights are 0, the result is 0 or +inf. A result up
    to `AGREE` is rounding. Scored logits may be -inf. If they make a reverse KL infinite, the loss has no derivative,
    and the result is NaN.

    Args:
        student_BTV: Logits of the student, floating [B, T, V].
        teacher_BTV: Logits of the teacher, floating [B, T, V], moved to the student's device.
        labels_BT: Labels, integers [B, T], moved to the student's device.
        temperature, ce_weight, kd_weight, divergence, beta: As in `losses.kd_loss`.
        gradient: Returns the closed form; called like `losses.kd_logit_gradient`.

    Raises:
        TrainerError: As `losses.kd_loss`.
    """
    student_BTV = student_BTV.detach().double().requires_grad_()
    teacher_BTV, labels_BT = teacher_BTV.to(student_BTV.device), labels_BT.to(student_BTV.device).long()
    tensors = (student_BTV, teacher_BTV, labels_BT)
    scored_BT = labels_BT != IGNORE_INDEX
    numbers = {"temperature": temperature, "ce_weight": ce_weight, "kd_weight": kd_weight, "beta": beta}
    weights = Weights(**numbers, divergence=divergence)
    closed_form = gradient(*tensors, **numbers, divergence=divergence)
    student_NV, teacher_NV, labels_N = (x[scored_BT] for x in tensors)
    (expected,) = torch.autograd.grad(_textbook_loss(student_NV, teacher_NV, labels_N, weights), student_BTV)
    # The N scored rows of softmax(s) - onehot(y) have a norm of about sqrt(N), since each is at most sqrt(2); so have
    # the rows of q - p, which are multiplied by the temperature.
    terms = (ce_weight + kd_weight * temperature) * max(1, len(labels_N)) ** 0.5
    difference = float((closed_form - expected).norm())
    scale = max(float(expected.norm()), terms)
    return difference / scale if scale else math.inf if difference else 0.0


def _textbook_loss(student_NV: Tensor, teacher_NV: Tensor, labels_N: Tensor, weights: Weights) -> Tensor:
    """Return the loss, by differentiable operations in float64. A term of weight 0 is left out."""
    loss = student_NV[:, :0].sum()  # 0, with a graph
    if weights.ce_weight:
        loss = loss + weights.ce_weight * F.cross_entropy(student_NV, labels_N, reduction="sum")
    if weights.kd_weight:
        log_q_NV, log_p_NV = ((x.double() / weights.temperature).log_softmax(-1) for x in (student_NV, teacher_NV))
        divergence = TEXTBOOK[weights.divergence](log_p_NV, log_q_NV, weights.beta)
        loss = loss + weights.kd_weight * weights.temperature**2 * divergence
    return loss


def _jensen_shannon(log_p_NV: Tensor, log_q_NV: Tensor, beta: float) -> Tensor:
    """Return `divergences.jensen_shannon` of p and q in nats, summed over rows."""
    if beta in (0, 1):
        return _kl(log_q_NV, log_p_NV) if beta else _kl(log_p_NV, log_q_NV)
    # Where p and q are both 0, the derivative of logaddexp(-inf, -inf) would be NaN, so log p is clamped.
    log_m_NV = torch.logaddexp(
        log_p_NV.clamp_min(torch.finfo(log_p_NV.dtype).min) + math.log(beta), log_q_NV + math.log1p(-beta)
    )
    return beta * _kl(log_p_NV, log_m_NV) + (1 - beta) * _kl(log_q_NV, log_m_NV)


def _kl(log_a_NV: Tensor, log_b_NV: Tensor) -> Tensor:
    """Return KL(a || b) in nats, summed over rows."""
    allowed_NV = log_a_NV != -math.inf  # a token of probability 0 has no term
    log_a_K, log_b_K = log_a_NV[allowed_NV], log_b_NV[allowed_NV]
    return (log_a_K.exp() * (log_a_K - log_b_K)).sum()


TEXTBOOK: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "forward_kl": lambda log_p_NV, log_q_NV, _: _kl(log_p_NV, log_q_NV),
    "reverse_kl": lambda log_p_NV, log_q_NV, _: _kl(log_q_NV, log_p_NV),
    "jensen_shannon": _jensen_shannon,
}


def differences(device: torch.device, shape: tuple[int, int, int], seed: int) -> Iterator[tuple[float, float]]:
    """Yield five temperatures, each with the relative difference for random float64 logits of a shape [B, T, V]."""
    generator = torch.Generator().manual_seed(seed)
    student_BTV, teacher_BTV = (
        (3 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(device) for _ in range(2)
    )
    labels_BT = torch.randint(shape[2], shape[:2], generator=generator).to(device)
    for temperature in (0.25, 1.0, 2.0, 4.0, 20.0):
        difference = relative_difference(
            student_BTV, teacher_BTV, labels_BT, temperature=temperature, ce_weight=0.3, kd_weight=0.7
        )
        yield temperature, difference
