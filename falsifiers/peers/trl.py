"""TRL's generalized JSD loss (1.16, `GKDTrainer.generalized_jsd_loss`).

Mapped: beta = 0 is KL(teacher || student) (the code's first branch, and eq. 1 of arXiv:2306.13649 as it is cited);
`temperature` is passed on; the loss has no factor tau^2, so it is multiplied by it; the default reduction, "batchmean",
divides by the number of unmasked positions, at least 1, and is multiplied by that. The loss has no cross-entropy.
"""

from torch import Tensor
from trl.experimental.gkd.gkd_trainer import GKDTrainer

from falsifiers.peers.adapter import Adapter, count


def _term(student_BTV: Tensor, teacher_BTV: Tensor, labels_BT: Tensor, temperature: float) -> Tensor:
    mean = GKDTrainer.generalized_jsd_loss(
        student_BTV, teacher_BTV, labels=labels_BT, beta=0.0, temperature=temperature
    )
    return mean * count(labels_BT).clamp_min(1) * temperature**2


gkd = Adapter(_term)
