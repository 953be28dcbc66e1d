"""ModelOpt's logits distillation loss (0.47, `modelopt.torch.distill.losses.LogitsDistillationLoss`).

Mapping: `temperature` is passed on; the library applies the factor tau^2. The loss takes no labels. `mean` is the
default: it gets the scored rows, and its mean is multiplied by their number. `masked` follows the docstring's advice
for masks: `reduction="none"`, summed by the caller over the scored positions.
"""

from modelopt.torch.distill.losses import LogitsDistillationLoss
from torch import Tensor

from falsifiers.peers.adapter import IGNORED, Adapter, count


def _mean(student_BTV: Tensor, teacher_BTV: Tensor, labels_BT: Tensor, temperature: float) -> Tensor:
    scored_BT = labels_BT != IGNORED
    mean = LogitsDistillationLoss(temperature)(student_BTV[scored_BT], teacher_BTV[scored_BT])
    return mean * count(labels_BT)


def _masked(student_BTV: Tensor, teacher_BTV: Tensor, labels_BT: Tensor, temperature: float) -> Tensor:
    divergence_BT = LogitsDistillationLoss(temperature, reduction="none")(student_BTV, teacher_BTV)
    return divergence_BT[labels_BT != IGNORED].sum()


mean = Adapter(_mean)
masked = Adapter(_masked)
