"""Minimal reproductions of each fault that the comparison finds, with the library alone: no contract, no adapter.

Each function imports its library and returns the wrong number; `FAULTS` states the right one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: `show` returns the package's result, `is_wrong` recognises it, `right` states the right one."""

    name: str
    package: str
    show: Callable[[], float]
    right: str
    is_wrong: Callable[[float], bool]


def torchtune_forward_kl_of_itself() -> float:
    from torchtune.modules.loss import ForwardKLLoss

    logits = torch.zeros(1, 2)
    return float(ForwardKLLoss()(logits, logits, torch.tensor([0])))


def torchtune_nothing_scored(name: str = "ForwardKLLoss") -> float:
    """Return 1 if the result is differentiable, else 0."""
    from torchtune.modules import loss

    student, teacher = torch.zeros(1, 2, requires_grad=True), torch.zeros(1, 2, requires_grad=True)
    return float(getattr(loss, name)()(student, teacher, torch.tensor([-100])).requires_grad)


def torchtune_reverse_nothing_scored() -> float:
    return torchtune_nothing_scored("ReverseKLLoss")


def torchtune_reverse_chunked_nothing_scored() -> float:
    from torchtune.modules.loss import ReverseKLWithChunkedOutputLoss

    chunks = [torch.zeros(1, 1, 2)]
    return float(ReverseKLWithChunkedOutputLoss(1)(chunks, chunks, torch.tensor([[-100]])))


def torchtune_reverse_drops_what_the_teacher_rules_out() -> float:
    from torchtune.modules.loss import ReverseKLLoss

    teacher = torch.tensor([[-math.inf, 0.0]])
    return float(ReverseKLLoss()(torch.zeros(1, 2), teacher, torch.tensor([0])))


def torchtune_padding_of_nan(name: str = "ForwardKLLoss") -> float:
    from torchtune.modules import loss

    student = torch.tensor([[0.0, 1.0], [math.nan, 0.0]])
    return float(getattr(loss, name)()(student, torch.zeros(2, 2), torch.tensor([0, -100])))


def torchtune_reverse_padding_of_nan() -> float:
    return torchtune_padding_of_nan("ReverseKLLoss")


def trl_banned_token() -> float:
    from trl.experimental.gkd.gkd_trainer import GKDTrainer

    logits = torch.tensor([[[0.0, 1.0, -math.inf]]])
    return float(GKDTrainer.generalized_jsd_loss(logits, logits, labels=torch.tensor([[0]]), beta=0.0))


def trl_padding_of_nan() -> float:
    from trl.experimental.gkd.gkd_trainer import GKDTrainer

    student = torch.tensor([[[0.0, 1.0], [math.nan, 0.0]]], requires_grad=True)
    labels = torch.tensor([[0, -100]])
    GKDTrainer.generalized_jsd_loss(student, torch.zeros(1, 2, 2), labels=labels, beta=0.0).backward()
    assert student.grad is not None
    return float(student.grad[0, 1].sum())


def _narrow_error(loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> float:
    """Return the relative error of a loss of bfloat16 logits [1, 2], compared with the same numbers in float64."""
    student, teacher = (torch.tensor([row], dtype=torch.bfloat16) for row in ([0.0, 0.0], [0.0, 1.0]))
    seen, exact = float(loss(student, teacher)), float(loss(student.double(), teacher.double()))
    return abs(seen - exact) / exact


def trl_bfloat16() -> float:
    return _narrow_error(lambda student, teacher: _trl(student[None], teacher[None]))


def trl_large_logits() -> float:
    return float(_trl(torch.zeros(1, 1, 2), torch.tensor([[[0.0, 2e38]]]), temperature=0.5))


def _trl(student: torch.Tensor, teacher: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    from trl.experimental.gkd.gkd_trainer import GKDTrainer

    labels = torch.zeros(student.shape[:2], dtype=torch.int64)
    answer: torch.Tensor = GKDTrainer.generalized_jsd_loss(
        student, teacher, labels=labels, beta=0.0, temperature=temperature
    )
    return answer


def _liger(student: torch.Tensor, teacher: torch.Tensor, label: int = 0, temperature: float = 1.0) -> torch.Tensor:
    """Return Liger's loss with label 0 for the first row and `label` for all others."""
    from liger_kernel.chunked_loss import LigerFusedLinearJSDLoss

    loss = LigerFusedLinearJSDLoss(
        weight_hard_loss=0.0, weight_soft_loss=1.0, beta=0.0, temperature=temperature, compiled=False
    )
    weights = [torch.eye(logits.shape[1], dtype=logits.dtype) for logits in (student, teacher)]
    labels = torch.full((len(student),), label)
    labels[0] = 0
    answer: torch.Tensor = loss(student, weights[0], teacher, weights[1], labels)
    return answer


def liger_padded_teacher() -> float:
    """Return the loss for two tokens and 1000 columns of teacher padding with negligible probability."""
    teacher = F.pad(torch.zeros(1, 2), (0, 1000), value=-1e4)
    return float(_liger(torch.zeros(1, 2), teacher))


def liger_bfloat16() -> float:
    return _narrow_error(_liger)


def liger_large_logits() -> float:
    return float(_liger(torch.zeros(1, 2), torch.tensor([[0.0, 2e38]]), temperature=0.5))


def liger_padding_of_nan() -> float:
    student = torch.tensor([[0.0, 1.0], [math.nan, 0.0]], requires_grad=True)
    _liger(student, torch.zeros(2, 2), -100).backward()
    assert student.grad is not None
    return float(student.grad[1].sum())


def modelopt_default_over_modelopt_none() -> float:
    """Return the default mean of one row with 4 tokens, divided by that row's divergence."""
    from modelopt.torch.distill.losses import LogitsDistillationLoss

    student, teacher = torch.zeros(1, 4), torch.tensor([[0.0, 1.0, 2.0, 3.0]])
    row = LogitsDistillationLoss(reduction="none")(student, teacher)
    return float(LogitsDistillationLoss()(student, teacher) / row.mean())


def modelopt_banned_token() -> float:
    from modelopt.torch.distill.losses import LogitsDistillationLoss

    logits = torch.tensor([[0.0, 1.0, -math.inf]])
    return float(LogitsDistillationLoss(reduction="none")(logits, logits))


def modelopt_bfloat16() -> float:
    from modelopt.torch.distill.losses import LogitsDistillationLoss

    return _narrow_error(LogitsDistillationLoss(reduction="none"))


def modelopt_large_logits() -> float:
    from modelopt.torch.distill.losses import LogitsDistillationLoss

    return float(LogitsDistillationLoss(0.5, reduction="none")(torch.zeros(1, 2), torch.tensor([[0.0, 2e38]])))


def modelopt_padding_of_nan() -> float:
    """Return the gradient of an ignored row, with `reduction="none"` and the mask applied afterwards, as documented."""
    from modelopt.torch.distill.losses import LogitsDistillationLoss

    student = torch.tensor([[0.0, 1.0], [math.nan, 0.0]], requires_grad=True)
    divergence = LogitsDistillationLoss(reduction="none")(student, torch.zeros(2, 2))
    divergence[torch.tensor([True, False])].sum().backward()
    assert student.grad is not None
    return float(student.grad[1].sum())


def recipe_nothing_scored() -> float:
    rows = torch.zeros(0, 2)
    return float(F.kl_div(F.log_softmax(rows, dim=-1), F.softmax(rows, dim=-1), reduction="batchmean"))


def recipe_bfloat16() -> float:
    return _narrow_error(lambda s, t: F.kl_div(F.log_softmax(s, dim=-1), F.softmax(t, dim=-1), reduction="batchmean"))


def recipe_large_logits() -> float:
    teacher = torch.tensor([[0.0, 2e38]]) / 0.5
    return float(F.kl_div(F.log_softmax(torch.zeros(1, 2), dim=-1), F.softmax(teacher, dim=-1), reduction="batchmean"))


def recipe_tutorial_underflow() -> float:
    student, teacher = torch.zeros(1, 2), torch.tensor([[0.0, -200.0]])
    soft_targets, soft_prob = F.softmax(teacher, dim=-1), F.log_softmax(student, dim=-1)
    return float(torch.sum(soft_targets * (soft_targets.log() - soft_prob)) / soft_prob.size()[0])


def recipe_batchmean_banned_token() -> float:
    logits = torch.tensor([[0.0, 1.0, -math.inf]])
    return float(F.kl_div(F.log_softmax(logits, dim=-1), F.softmax(logits, dim=-1), reduction="batchmean"))


def recipe_mean_over_batchmean() -> float:
    student, teacher = torch.zeros(1, 4), torch.tensor([[0.0, 1.0, 2.0, 3.0]])
    log_q, p = F.log_softmax(student, dim=-1), F.softmax(teacher, dim=-1)
    return float(torch.nn.KLDivLoss()(log_q, p) / F.kl_div(log_q, p, reduction="batchmean"))


def _is(value: float) -> Callable[[float], bool]:
    return lambda seen: math.isclose(seen, value, rel_tol=1e-5)


def _is_coarse(relative_error: float) -> bool:
    return relative_error > 1e-3  # float32 arithmetic has a relative error of 1e-6


FAULTS = (
    Fault("teacher's entropy missing", "torchtune", torchtune_forward_kl_of_itself, "0", _is(math.log(2))),
    Fault("nothing scored: no graph", "torchtune", torchtune_nothing_scored, "1 (a graph)", _is(0.0)),
    Fault("nothing scored: no graph", "torchtune", torchtune_reverse_nothing_scored, "1 (a graph)", _is(0.0)),
    Fault("nothing scored: NaN", "torchtune", torchtune_reverse_chunked_nothing_scored, "0", math.isnan),
    Fault(
        "infinite divergence, negative", "torchtune", torchtune_reverse_drops_what_the_teacher_rules_out, "inf",
        _is(-math.log(2) / 2),
    ),
    Fault("NaN of an ignored row", "torchtune", torchtune_padding_of_nan, "0.8133", math.isnan),
    Fault("NaN of an ignored row", "torchtune", torchtune_reverse_padding_of_nan, "0.1109", math.isnan),
    Fault("banned token: NaN", "trl", trl_banned_token, "0", math.isnan),
    Fault("NaN gradient of an ignored row", "trl", trl_padding_of_nan, "0", math.isnan),
    Fault("half-precision arithmetic", "trl", trl_bfloat16, "below 1e-6", _is_coarse),
    Fault("overflow", "trl", trl_large_logits, "inf or finite", math.isnan),
    Fault("mass on padding", "liger-kernel", liger_padded_teacher, "0", _is(math.log(1002 / 2))),
    Fault("half-precision arithmetic", "liger-kernel", liger_bfloat16, "below 1e-6", _is_coarse),
    Fault("overflow", "liger-kernel", liger_large_logits, "inf or finite", math.isnan),
    Fault("NaN gradient of an ignored row", "liger-kernel", liger_padding_of_nan, "0", math.isnan),
    Fault("1/V of the divergence", "nvidia-modelopt", modelopt_default_over_modelopt_none, "1", _is(0.25)),
    Fault("banned token: NaN", "nvidia-modelopt", modelopt_banned_token, "0", math.isnan),
    Fault("NaN gradient of an ignored row", "nvidia-modelopt", modelopt_padding_of_nan, "0", math.isnan),
    Fault("half-precision arithmetic", "nvidia-modelopt", modelopt_bfloat16, "below 1e-6", _is_coarse),
    Fault("overflow", "nvidia-modelopt", modelopt_large_logits, "inf or finite", math.isnan),
    Fault("nothing scored: NaN", "torch", recipe_nothing_scored, "0", math.isnan),
    Fault("half-precision arithmetic", "torch", recipe_bfloat16, "below 1e-6", _is_coarse),
    Fault("overflow", "torch", recipe_large_logits, "inf or finite", math.isnan),
    Fault("underflow: NaN", "torch", recipe_tutorial_underflow, "0.6931", math.isnan),
    Fault("banned token: NaN", "torch", recipe_batchmean_banned_token, "0", math.isnan),
    Fault("1/V of the divergence", "torch", recipe_mean_over_batchmean, "1", _is(0.25)),
)  # fmt: skip
