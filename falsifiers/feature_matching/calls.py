"""Feature matching as a function of stacked tensors: the subject that the equations are checked against.

Shape letters: L layer, B batch, T position, S width of the student, W width of the teacher.
"""

from torch import Tensor

from reference_trainer.distillation.features import feature_loss
from reference_trainer.distillation.losses import LossSum


def cosine(student_LBTW: Tensor, teacher_LBTW: Tensor, scored_BT: Tensor) -> LossSum:
    """Return the cosine distance of equal layers."""
    return _of_equal_layers(student_LBTW, teacher_LBTW, scored_BT, "cosine")


def l2(student_LBTW: Tensor, teacher_LBTW: Tensor, scored_BT: Tensor) -> LossSum:
    """Return the mean squared difference of equal layers."""
    return _of_equal_layers(student_LBTW, teacher_LBTW, scored_BT, "l2")


def _of_equal_layers(student_LBTW: Tensor, teacher_LBTW: Tensor, scored_BT: Tensor, distance: str) -> LossSum:
    layers = [(layer, layer) for layer in range(len(student_LBTW))]
    return feature_loss([*student_LBTW], [*teacher_LBTW], scored_BT, layers=layers, distance=distance)


def projected(student_BTS: Tensor, teacher_BTW: Tensor, scored_BT: Tensor, weight_WS: Tensor) -> LossSum:
    """Return the mean squared difference of one layer, the student's projected linearly."""
    projections = [lambda rows_NS: rows_NS @ weight_WS.mT]
    return feature_loss(
        [student_BTS], [teacher_BTW], scored_BT, layers=[(0, 0)], distance="l2", projections=projections
    )
