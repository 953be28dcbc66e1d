"""The gradient of a window as a function of its logits: the subject that the equation of the window is checked against.

Shape letters: M micro-batch, B batch, T scored position, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from falsifiers.support.cases import IGNORED
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import ModuleStudent, ModuleTeacher
from reference_trainer.distillation.rows import Weights
from reference_trainer.training.window import kd_window


def window_gradient(
    student_MBTV: Tensor, teacher_MBTV: Tensor, labels_MBT: Tensor, tau: float, ce_weight: float, kd_weight: float
) -> Tensor:
    """Return the gradient of the student's logits after one window. labels_MBT[m, b, i] is that of the logits there."""
    (M, B, T, V), device = student_MBTV.shape, labels_MBT.device
    student, teacher = (_Logits(logits) for logits in (student_MBTV, teacher_MBTV))
    numbers_MBT = torch.arange(M, device=device)[:, None, None].expand(M, B, T + 1)
    labels_MBT = F.pad(labels_MBT, (1, 0), value=IGNORED)  # of the tokens, which are predicted one position before
    batches = [Batch(tokens=numbers_MBT[m], labels=labels_MBT[m]) for m in range(M)]
    weights = Weights(temperature=tau, ce_weight=ce_weight, kd_weight=kd_weight)
    kd_window(ModuleTeacher(teacher, V), ModuleStudent(student, V), batches, weights)
    assert student.logits.grad is not None
    return student.logits.grad[:, :, :-1]


class _Logits(nn.Module):
    """Logits as parameters; every token is the number of its micro-batch. The last position predicts nothing."""

    def __init__(self, logits_MBTV: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(F.pad(logits_MBTV, (0, 0, 0, 1)))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.logits[int(tokens[0, 0])]
