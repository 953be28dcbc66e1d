"""Feature matching: the distance between hidden states of student and teacher, over pairs of layers.

    L = sum over scored positions of the mean over pairs (i, j) of  distance(P_i(h_i), g_j)

h_i: the student's hidden state after layer i, g_j: the teacher's hidden state after layer j, P_i: an optional
projection onto the teacher's width. With x^ = x / max(|x|, 1e-4), the distance of vectors h and g of width W is

    cosine   |h^ - g^|^2 / 2, which is 1 - cos(h, g) for norms of at least 1e-4
    l2       |h - g|^2 / W

Both are nonnegative, and exactly 0 if h equals g, also for zero vectors. The floor under the norm bounds the gradient
of `cosine` by 2e4, which float16 can represent. A zero vector has the cosine distance 1/2 from every vector whose norm
is at least the floor.

Sources: Romero et al. 2015, arXiv:1412.6550, section 2.2, for hidden states as targets and for the projection;
google/maxtext, `CombinedDistillationStrategy`, for the two distances. In maxtext, two zero vectors have the cosine
distance 1.

    >>> import torch
    >>> student = [torch.tensor([[[3.0, 4.0], [9.0, 9.0]]])]  # one layer, [B=1, T=2, W=2]
    >>> teacher = [torch.tensor([[[4.0, -3.0], [0.0, 0.0]]])]
    >>> scored = torch.tensor([[True, False]])
    >>> loss = feature_loss(student, teacher, scored, layers=[(0, 0)], distance="cosine")
    >>> f"{loss.sum / loss.count:.3f}"  # orthogonal
    '1.000'

Domain:

* `scored_BT[b, t]` states whether position t counts, as `labels_BT[b, t] != ignore_index` in `kd_loss`; nothing is
  shifted here. Unscored states, even NaN, have no influence, and their gradient is exactly 0. NaN in scored states
  gives NaN.
* With no scored position (also B = 0 or T = 0), sum and count are 0 and the sum is still differentiable.
* Distances of float16, bfloat16 and float32 states are computed in float32; if one of the two states is float64, in
  float64. Distances are summed over features, positions and layers in float64; counts are int64. If a layer is in
  several pairs, autograd adds its gradients in the dtype of its states.

Shape letters: B batch, T position, S width of the student, W width of the teacher, N scored positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from reference_trainer.distillation.losses import LossSum
from reference_trainer.errors import SettingError, ShapeError

SMALLEST_NORM = 1e-4
"""Floor under the norm of a state, which bounds the gradient of `cosine`."""

Projection = Callable[[Tensor], Tensor]


def feature_loss(
    student: Sequence[Tensor],
    teacher: Sequence[Tensor],
    scored_BT: Tensor,
    *,
    layers: Sequence[tuple[int, int]],
    distance: str,
    projections: Sequence[Projection] | None = None,
) -> LossSum:
    """Return the distance of hidden states, averaged over pairs of layers and summed over scored positions.

    The sum has no unit, and is differentiable with respect to the student's states and the projections only; the
    teacher is detached. The count is the number of scored positions, as for `kd_loss`, so `sum / count` is a mean over
    positions and pairs. Definition and domain: see the module's docstring.

    Args:
        student: The states of all layers, floating [B, T, S].
        teacher: The states of all layers, floating [B, T, W].
        scored_BT: Whether a position is scored, bool.
        layers: Pairs (i, j), of the states `student[i]` and `teacher[j]`; -1 is the last layer.
        distance: A key of `DISTANCES`.
        projections: One module per pair, such as `torch.nn.Linear(S, W)`, called with the scored states of the
            student's layer, [N, S] in float32 or float64. Required if S differs from W.

    Raises:
        ShapeError: If shapes, dtypes, devices or widths do not match.
        SettingError: If the distance is unknown, there is no pair, a layer does not exist, or the number of
            projections is not the number of pairs.
    """
    check_pairs(distance, layers, len(student), len(teacher))
    if projections is not None and len(projections) != len(layers):
        raise SettingError(f"{len(projections)} projections for {len(layers)} pairs of layers; expected one for each")
    for i, j in layers:
        _check_states(student[i], teacher[j], scored_BT)
    # Unscored rows are left out before the arithmetic: multiplied by 0, NaN would still give NaN.
    at = scored_BT.nonzero(as_tuple=True)
    per_pair: Sequence[Projection | None] = projections or [None] * len(layers)
    sums = [
        DISTANCES[distance](*_rows(student[i][at], teacher[j].detach()[at], per_pair[k])).sum()
        for k, (i, j) in enumerate(layers)
    ]
    return LossSum(sum=torch.stack(sums).mean(), count=scored_BT.sum())


def cosine_distance(student_NW: Tensor, teacher_NW: Tensor) -> Tensor:
    """Return half the squared distance of the two directions of every row, from 0 to 2: float64 [N].

    For norms of at least `SMALLEST_NORM` this is 1 - cos. The form 1 - cos would lose all digits to cancellation for
    nearly equal directions in float32.
    """
    return (_direction(student_NW) - _direction(teacher_NW)).square().sum(1, dtype=torch.float64) / 2


def squared_distance(student_NW: Tensor, teacher_NW: Tensor) -> Tensor:
    """Return the mean over features of the squared differences of each row: float64 [N]."""
    return (student_NW - teacher_NW).square().mean(1, dtype=torch.float64)


DISTANCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"cosine": cosine_distance, "l2": squared_distance}


def _direction(rows_NW: Tensor) -> Tensor:
    """Return x / max(|x|, SMALLEST_NORM) for every row x."""
    # `sqrt` of a sum of squares would not do: its derivative at a zero vector is inf * 0, which is NaN.
    norm_N1: Tensor = torch.linalg.vector_norm(rows_NW, dim=1, keepdim=True)
    return rows_NW / norm_N1.clamp_min(SMALLEST_NORM)


def _rows(student_NS: Tensor, teacher_NW: Tensor, projection: Projection | None) -> tuple[Tensor, Tensor]:
    """Return the projected rows of the student and the rows of the teacher: [N, W], in the dtype of the distance."""
    dtype = torch.float64 if torch.float64 in (student_NS.dtype, teacher_NW.dtype) else torch.float32
    rows = student_NS.to(dtype)
    if projection is not None:
        rows = projection(rows).to(dtype)  # under autocast a linear layer returns half precision
    if rows.shape != teacher_NW.shape:
        after = "" if projection is None else " after the projection"
        raise ShapeError(
            f"different widths: student {list(rows.shape)}{after}, teacher {list(teacher_NW.shape)}; pass a projection "
            f"for each pair of layers, such as torch.nn.Linear({student_NS.shape[-1]}, {teacher_NW.shape[-1]})"
        )
    return rows, teacher_NW.to(dtype)


def check_pairs(distance: str, layers: Sequence[tuple[int, int]], student_count: int, teacher_count: int) -> None:
    """Raise `SettingError` for an unknown distance, an empty `layers`, or a layer that a model does not have."""
    if distance not in DISTANCES:
        raise SettingError(f"unknown distance {distance!r} (choose from {', '.join(DISTANCES)})")
    if not layers:
        raise SettingError("no pairs of layers; expected at least one pair of a student's and a teacher's layer")
    for i, j in layers:
        for model, index, count in (("student", i, student_count), ("teacher", j, teacher_count)):
            if not -count <= index < count:
                raise SettingError(f"unknown layer {index} of the {model} in the pair {(i, j)}; it has {count} layers")


def _check_states(student_BTS: Tensor, teacher_BTW: Tensor, scored_BT: Tensor) -> None:
    """Raise `ShapeError` unless states and mask match."""
    for model, states in (("student", student_BTS), ("teacher", teacher_BTW)):
        if not states.is_floating_point() or states.dim() != 3 or states.shape[-1] == 0:
            raise ShapeError(
                f"invalid {model} states: {states.dtype} {list(states.shape)}, expected a floating tensor "
                f"[B, T, width] with width >= 1"
            )
    if scored_BT.dtype is not torch.bool:
        raise ShapeError(f"invalid mask: {scored_BT.dtype}, expected bool [B, T], such as labels_BT != ignore_index")
    if not student_BTS.shape[:2] == teacher_BTW.shape[:2] == scored_BT.shape:
        raise ShapeError(
            f"shapes do not match: student {list(student_BTS.shape)}, teacher {list(teacher_BTW.shape)}, mask "
            f"{list(scored_BT.shape)}; expected [B, T, S], [B, T, W] and [B, T]"
        )
    if not student_BTS.device == teacher_BTW.device == scored_BT.device:
        devices = f"{student_BTS.device}, {teacher_BTW.device}, {scored_BT.device}"
        raise ShapeError(f"different devices for student, teacher and mask: {devices}; expected one device")


NO_PROJECTIONS: Sequence[nn.Module] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureMatching:
    """The pairs of hidden states that a step matches.

    Attributes:
        layers: Pairs of layers, as in `feature_loss`.
        distance: A key of `DISTANCES`.
        projections: Empty, or one module per pair, from the student's width to the teacher's. Projections are trained
            with the student: the optimizer has their parameters. On data-parallel ranks, every projection with
            parameters is wrapped in its own `DistributedDataParallel`, so that its gradient is reduced.
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
        """Return the distance summed over scored positions, and its gradient for every student state, times `scale`.

        The gradient of the parameters of the projections, times `scale`, is accumulated in these parameters. The
        gradient of a state that is in no pair is None. Raise the errors of `feature_loss`.

        Args:
            student: States [B, T, S] on the device of the projections.
            teacher: States [B, T, W], on any device.
            scored_BT: Whether a position is scored, bool, on the student's device.
            scale: The factor of the gradients.
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
    """Return the matching for models with such hidden states, with new projections if the widths of any pair differ.

    The projections are linear layers from S to W on the student's device, initialised with `seed`, in float64 if one of
    the two states is float64, else in float32. States of equal widths are not projected. The global random generators
    are not changed. Raise the errors of `check_pairs`.
    """
    check_pairs(distance, layers, len(student), len(teacher))
    pairs = [(student[i], teacher[j]) for i, j in layers]
    if all(state_BTS.shape[-1] == state_BTW.shape[-1] for state_BTS, state_BTW in pairs):
        return FeatureMatching(layers=layers, distance=distance)
    # Draw on the CPU, so that a seed gives the same projections on every device.
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        projections = [_projection(*pair) for pair in pairs]
    return FeatureMatching(layers=layers, distance=distance, projections=projections)


def _projection(state_BTS: Tensor, state_BTW: Tensor) -> nn.Module:
    """Return a new projection between the widths of two states; the identity for equal widths."""
    S, W = state_BTS.shape[-1], state_BTW.shape[-1]
    if S == W:
        return nn.Identity()
    dtype = torch.float64 if torch.float64 in (state_BTS.dtype, state_BTW.dtype) else torch.float32
    return nn.Linear(S, W, dtype=dtype).to(state_BTS.device)
