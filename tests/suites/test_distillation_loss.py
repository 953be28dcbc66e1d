"""Claims of the suite `distillation-loss` on losses that are right, and on wrong ones."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch.nn.functional as F
from torch import Tensor

from reference_trainer.distillation.losses import kd_loss
from tests.suites.trying import trying_of

TRYING = trying_of("distillation-loss")
MASK = {"DKL-MASK-001"}


def mean_loss(student: Tensor, teacher: Tensor, labels: Tensor, temperature: float) -> Tensor:
    loss = kd_loss(student, teacher, labels, temperature=temperature, ce_weight=0.0, kd_weight=1.0)
    return loss.sum / loss.count


def documented(student: Tensor, teacher: Tensor, tau: float) -> Tensor:
    log_q, log_p = F.log_softmax(student / tau, -1), F.log_softmax(teacher.detach() / tau, -1)
    return F.kl_div(log_q, log_p, reduction="batchmean", log_target=True) * tau**2


documented.reduction = "batchmean"  # type: ignore[attr-defined]


def of_images(teacher: Tensor, student: Tensor, targets: Tensor, alpha: float, T: float) -> Tensor:
    soft = F.kl_div(F.log_softmax(student / T, 1), F.softmax(teacher.detach() / T, 1), reduction="batchmean")
    return (1 - alpha) * T * T * soft + alpha * F.cross_entropy(student, targets)


of_images.features = {"mask": "an image always counts"}  # type: ignore[attr-defined]


@pytest.mark.parametrize(("make", "not_claimed"), [(mean_loss, set()), (documented, MASK), (of_images, MASK)])
def test_correct_losses_keep_what_they_claim(make: Any, not_claimed: set[str]) -> None:
    assert TRYING.wrong(make) == dict.fromkeys(not_claimed, "")


def test_trl_keeps_what_it_claims_but_has_no_detached_teacher() -> None:
    trainer = pytest.importorskip("trl.experimental.gkd").GKDTrainer

    def reverse(student: Tensor, teacher: Tensor, labels: Tensor, temperature: float) -> Any:
        return trainer.generalized_jsd_loss(student, teacher, labels, beta=1.0, temperature=temperature)

    reverse.divergence, reverse.factor = "reverse", "1"  # type: ignore[attr-defined]
    assert TRYING.wrong(reverse).keys() == {"DKL-TEACHER-001"}


Of = Callable[[Tensor, Tensor], Tensor]


def kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    return log_p.exp() * (log_p - log_q)


def loss(rows: Of = kl, power: int = 2, divisor: float = 1.0, axis: int = -1) -> Callable[..., Tensor]:
    """Return a loss; what is not given is right."""

    def loss(of_student: Tensor, wanted: Tensor, temperature: float) -> Tensor:
        log_q, log_p = (logits.div(temperature).log_softmax(axis) for logits in (of_student, wanted.detach()))
        return rows(log_p, log_q).sum(-1).mean() * temperature**power / divisor

    return loss


def masked(reduced: Of, change: Callable[[Tensor], Tensor] = lambda keep: keep) -> Callable[..., Tensor]:
    def loss(student: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
        return reduced(kl(teacher.detach().log_softmax(-1), student.log_softmax(-1)).sum(-1), change(mask))

    return loss


def attached(student: Tensor, teacher: Tensor) -> Tensor:
    return kl(teacher.log_softmax(-1), student.log_softmax(-1)).sum(-1).mean()


def overflowing(student: Tensor, teacher: Tensor) -> Tensor:
    """Overflow for large logits in float16 alone."""
    return kl(*((logits * 100 / 100).log_softmax(-1) for logits in (teacher.detach(), student))).sum(-1).mean()


@pytest.mark.parametrize(
    ("make", "claim", "message"),
    [
        (loss(lambda p, q: kl(q, p)), "DKL-VALUE-001", r"it is KL\(student \|\| teacher\)$"),
        (loss(power=0), "DKL-VALUE-001", "it is 1/T\\^2 times that$"),
        (loss(divisor=7), "DKL-VALUE-001", "it is 1/V times that or"),
        (loss(lambda p, q: p.exp() * (p - q.exp())), "DKL-VALUE-001", "the student's softmax without a logarithm"),
        (loss(lambda p, q: kl(p, q.exp().log_softmax(-1))), "DKL-VALUE-001", "a softmax of the softmax in the student"),
        (loss(lambda p, q: kl(p.exp().log_softmax(-1), q)), "DKL-VALUE-001", "a softmax of the softmax in the teacher"),
        (loss(lambda p, q: kl(p.exp(), q)), "DKL-VALUE-001", "probabilities that are read as logarithms"),
        (loss(axis=1), "DKL-VALUE-001", "the softmax over positions"),
        (loss(lambda p, q: -p.exp() * q), "DKL-ZERO-001", "the cross-entropy, without the teacher's entropy"),
        (loss(lambda p, q: p.exp() * (p.exp().log() - q.exp().log())), "DKL-LARGE-001", "the loss is nan"),
        (overflowing, "DKL-LARGE-001", "the loss is nan"),
        (attached, "DKL-TEACHER-001", "detach them"),
        (masked(lambda rows, mask: (rows * mask).mean()), "DKL-MASK-001", r"it is 1/\(B\*L/N\) times that"),
        (masked(lambda rows, mask: rows.mean()), "DKL-MASK-001", "it is the loss of every position"),
        (
            masked(lambda rows, mask: rows[mask].mean(), lambda m: m.roll(1, 1)),
            "DKL-MASK-001",
            "masked one position late",
        ),
        (
            masked(lambda rows, keep: ((rows * keep).sum(1) / keep.sum(1)).mean()),
            "DKL-SPLIT-001",
            "their unweighted mean",
        ),
    ],
)
def test_wrong_losses_are_refuted(make: Any, claim: str, message: str) -> None:
    messages = TRYING.wrong(make)
    assert re.search(message, messages.get(claim, ""), re.MULTILINE), messages
