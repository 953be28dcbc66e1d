"""The weight of a token from logits and their gradient, against the weight that made the gradient."""

import itertools

import pytest
import torch
import torch.nn.functional as F

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
