"""The weight of a token from logits and their gradient, against the weight that made the gradient."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from pv.observe.heads import _fitting_weights, head_weights
from pv.observe.losses import cross_entropy_weights

CASES = list(
    itertools.product([torch.float64, torch.float32, torch.bfloat16], [0.0, 0.1], [0.0, 1e-4], [16, 1000], [1, 5, 12])
)


@pytest.mark.parametrize(("dtype", "smoothing", "z_loss", "classes", "spread"), CASES)
def test_a_fitted_weight_is_the_weight_of_the_loss(
    dtype: torch.dtype, smoothing: float, z_loss: float, classes: int, spread: float
) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = (torch.randn(256, classes, generator=generator) * spread).to(dtype).requires_grad_()
    labels = torch.randint(classes, (256,), generator=generator)
    labels[:128] = logits[:128].argmax(-1)  # p_y near 1
    weight = 0.37 / 256
    wide = logits if dtype is torch.float64 else logits.float()
    loss = weight * F.cross_entropy(wide, labels, reduction="sum", label_smoothing=smoothing)
    loss = loss + z_loss * weight * (wide.logsumexp(-1) ** 2).sum()
    loss.backward()
    assert logits.grad is not None
    fitted, residual, allowed = cross_entropy_weights(logits.detach(), logits.grad)
    good = residual <= allowed
    tolerance = 0.02 if dtype is torch.bfloat16 else 1e-5
    assert float((fitted[good] / weight - 1).abs().max()) < tolerance if good.any() else z_loss and smoothing
    if not smoothing and not z_loss:
        assert bool(good.all())


def test_log_probabilities_have_the_weight_of_their_label() -> None:
    log_p = torch.randn(64, 20, dtype=torch.float64).log_softmax(-1).requires_grad_()
    (-0.25 * log_p[:, 3].sum()).backward()
    assert log_p.grad is not None
    fitted, residual, allowed = cross_entropy_weights(log_p.detach(), log_p.grad)
    assert bool((residual <= allowed).all())
    assert fitted.tolist() == pytest.approx([0.25] * 64)


@pytest.mark.parametrize("loss", ["soft targets", "squared error", "margin"])
def test_another_loss_has_no_weight(loss: str) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(640, 12, generator=generator).requires_grad_()
    target = torch.randn(640, 12, generator=generator).softmax(-1)
    labels = torch.randint(12, (640,), generator=generator)
    value = {
        "soft targets": lambda: F.cross_entropy(logits, target),
        "squared error": lambda: F.mse_loss(logits, target),
        "margin": lambda: F.multi_margin_loss(logits, labels),
    }[loss]()
    value.backward()
    assert logits.grad is not None
    _, residual, allowed = cross_entropy_weights(logits.detach(), logits.grad)
    assert int((residual <= allowed).sum()) == 0


HEADS = list(itertools.product([torch.float32, torch.bfloat16], [0.0, 0.1], [False, True], [50, 1000], [1, 6]))


def head_gradient(
    dtype: torch.dtype, classes: int, scale: float, target: str, smoothing: float = 0.0, cap: float = 0.0
) -> tuple[torch.Tensor, ...]:
    """Return hidden states, weight and bias of a head, and the gradient of a loss at the hidden states."""
    generator = torch.Generator().manual_seed(3)
    hidden = F.layer_norm(torch.randn(64, 32, generator=generator), (32,)).to(dtype).requires_grad_()
    weight = (torch.randn(classes, 32, generator=generator) * scale / 32**0.5).to(dtype)
    bias = torch.randn(classes, generator=generator).to(dtype)
    logits = F.linear(hidden, weight, bias).float()
    logits = cap * torch.tanh(logits / cap) if cap else logits
    labels = torch.randint(classes, (64,), generator=generator)
    labels[::4] = -100
    soft = torch.randn(64, classes, generator=generator).softmax(-1)
    right: torch.Tensor = {"labels": labels, "soft": soft, "best": logits.argmax(-1)}[target]
    (0.01 * F.cross_entropy(logits, right, reduction="sum", label_smoothing=smoothing)).backward()
    assert hidden.grad is not None
    return hidden.detach(), weight, bias, hidden.grad


@pytest.mark.parametrize(("dtype", "smoothing", "confident", "classes", "scale"), HEADS)
def test_a_fused_head_tells_the_weight_of_its_tokens(
    dtype: torch.dtype, smoothing: float, confident: bool, classes: int, scale: float
) -> None:
    precision = torch.finfo(dtype).eps
    *operands, gradient = head_gradient(dtype, classes, scale, "best" if confident else "labels", smoothing)
    scored = gradient.abs().amax(-1) > 0
    weights, residual, allowed = head_weights(*operands, gradient, precision)
    good = scored & (allowed > 0) & (residual <= allowed) & (weights > 0)
    # Where p_y is nearly 1, few tokens in half precision are visible.
    assert good.sum() >= (0.8 * scored.sum() if dtype is torch.float32 or not confident else 4)
    # In half precision, smoothing may be taken for rounding, which costs its share of the weight.
    tolerance = 1e-2 if dtype is torch.float32 else 0.02 + 1.2 * smoothing
    assert float((weights[good] / 0.01 - 1).abs().median()) < tolerance


@pytest.mark.parametrize(("classes", "scale"), [(50, 1), (1000, 6)])
def test_a_fused_head_tells_negative_weights_of_rejected_tokens(classes: int, scale: float) -> None:
    *operands, gradient = head_gradient(torch.float32, classes, scale, "labels")
    weights, residual, allowed = head_weights(*operands, -gradient, torch.finfo(torch.float32).eps)
    scored = gradient.abs().amax(-1) > 0
    negative = scored & (residual <= allowed) & ((weights / -0.01 - 1).abs() < 0.01)
    assert negative.sum() >= 0.8 * scored.sum()


@pytest.mark.parametrize(("target", "cap"), [("soft", 0.0), ("labels", 5.0)])
def test_a_fused_head_with_another_loss_has_no_weight(target: str, cap: float) -> None:
    *operands, gradient = head_gradient(torch.float32, 50, 3, target, cap=cap)
    _, residual, allowed = head_weights(*operands, gradient, torch.finfo(torch.float32).eps)
    assert int((residual <= allowed)[gradient.abs().amax(-1) > 0].sum()) == 0


def test_a_fused_head_in_half_precision_without_a_fitting_token_has_no_weight() -> None:
    counts = _fitting_weights(torch.finfo(torch.bfloat16).eps, [1.0], [1.0], [1.0], [0.1])
    assert counts == {"sampled": 1, "fitting": 0, "low": 0.0, "high": 0.0}
