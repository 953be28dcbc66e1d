"""Feature matching of a run: pairs of layers, a distance, and projections where the widths differ.

Shape letters: B batch, T position, S width of the student, W width of the teacher.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from reference_trainer.distillation.features import check_pairs, feature_loss

__all__ = ["NO_PROJECTIONS", "FeatureMatching", "new_matching"]

NO_PROJECTIONS: Sequence[nn.Module] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureMatching:
    """What a step matches. layers, distance: as in `features.feature_loss`.

    projections: none, or one module for each pair, from the student's width to the teacher's. They are trained with the
    student: their parameters belong to its optimizer. Under data-parallel ranks each one that has parameters is a
    `DistributedDataParallel` module of its own, so that its gradient is reduced too.
    """

    layers: Sequence[tuple[int, int]] = ((-1, -1),)
    distance: str = "cosine"
    projections: Sequence[nn.Module] = NO_PROJECTIONS

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Return the parameters of the projections."""
        return [parameter for projection in self.projections for parameter in projection.parameters()]

    def differentiate(
        self, student: Sequence[Tensor], teacher: Sequence[Tensor], scored_BT: Tensor, scale: float | Tensor
    ) -> tuple[Tensor, list[Tensor | None]]:
        """Return the distance summed over scored positions, and `scale` times its gradient for each student's state.

        `scale` times the gradient of the projections is accumulated in their parameters. student: detached states
        [B, T, S] on the device of the projections; teacher: [B, T, W]. Errors: those of `features.feature_loss`.
        """
        states = [state.detach().requires_grad_() for state in student]
        with torch.enable_grad():
            loss = feature_loss(
                states,
                [state.to(scored_BT.device) for state in teacher],
                scored_BT,
                layers=self.layers,
                distance=self.distance,
                projections=self.projections or None,
            )
            torch.autograd.backward(loss.sum * scale)
        return loss.sum.detach(), [state.grad for state in states]


def new_matching(
    student: Sequence[Tensor], teacher: Sequence[Tensor], *, layers: Sequence[tuple[int, int]], distance: str, seed: int
) -> FeatureMatching:
    """Return the matching of models with hidden states like these, with new projections if any widths differ.

    The projections are linear layers from S to W on the student's device, drawn from `seed`, in float64 if either state
    is; a pair of equal widths keeps its states. No generator of the process moves. Errors: those of `check_pairs`.
    """
    check_pairs(distance, layers, len(student), len(teacher))
    pairs = [(student[i], teacher[j]) for i, j in layers]
    if all(S.shape[-1] == W.shape[-1] for S, W in pairs):
        return FeatureMatching(layers=layers, distance=distance)
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        projections = [_projection(*pair) for pair in pairs]
    return FeatureMatching(layers=layers, distance=distance, projections=projections)


def _projection(state_BTS: Tensor, state_BTW: Tensor) -> nn.Module:
    S, W = state_BTS.shape[-1], state_BTW.shape[-1]
    if S == W:
        return nn.Identity()
    dtype = torch.float64 if torch.float64 in (state_BTS.dtype, state_BTW.dtype) else torch.float32
    return nn.Linear(S, W, dtype=dtype).to(state_BTS.device)
