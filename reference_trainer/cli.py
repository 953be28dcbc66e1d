"""The command line of the reference trainer."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import torch

# Rounding of two ways to sum V products in float64, with a margin; a factor tau too many is off by 0.5 and more.
AGREE = 1e-10


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("pv-contracts"), prog_name="reference-trainer")
def main() -> None:
    """A knowledge-distillation trainer whose behaviour is under contract."""


@main.command()
@click.option("--device", default="cpu", show_default=True, help="A torch device, such as cuda or cuda:1.")
@click.option("--vocabulary", type=click.IntRange(2), default=512, show_default=True)
@click.option("--positions", type=click.IntRange(1), default=64, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
def gradcheck(device: str, vocabulary: int, positions: int, seed: int) -> None:
    """Compare the closed-form gradient with automatic differentiation on this machine, in float64.

    Exit code 1 when they differ: then no run on this device can be trusted.
    """
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise click.BadParameter(f"{device!r} cannot be used: {str(error).splitlines()[0]}") from error
    worst = 0.0
    for temperature in (0.25, 1.0, 2.0, 4.0, 20.0):
        difference = _difference(torch.device(device), temperature, vocabulary, positions, seed)
        worst = max(worst, difference)
        click.echo(f"temperature {temperature:5.2f}: relative difference {difference:.2e}")
    agree = worst <= AGREE
    click.echo(f"{'agree' if agree else 'DIFFER'}: at most {AGREE:.0e} is rounding")
    sys.exit(0 if agree else 1)


def _difference(device: torch.device, temperature: float, vocabulary: int, positions: int, seed: int) -> float:
    """||closed form - autograd|| / ||autograd|| on random logits."""
    import torch

    from reference_trainer.losses import kd_logit_gradient, kd_loss

    generator = torch.Generator().manual_seed(seed)
    shape = (2, positions, vocabulary)
    student_BTV = (3 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(device).requires_grad_()
    teacher_BTV = (3 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(device)
    labels_BT = torch.randint(vocabulary, shape[:2], generator=generator).to(device)
    tensors = (student_BTV, teacher_BTV, labels_BT)
    loss = kd_loss(*tensors, temperature=temperature, ce_weight=0.3, kd_weight=0.7)
    (expected,) = torch.autograd.grad(loss.sum, student_BTV)
    found = kd_logit_gradient(*tensors, temperature=temperature, ce_weight=0.3, kd_weight=0.7)
    return float((found - expected).norm() / expected.norm())
