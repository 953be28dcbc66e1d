"""One objective in several implementations: plain PyTorch, the trainer's walk, and other libraries.

    ce_weight * cross-entropy + kd_weight * tau^2 * KL(teacher || student) at tau, the mean over scored rows

Other libraries are called as `falsifiers.peers` documents it: what a library lacks is added with PyTorch.

Shape letters: B batch, T position, N rows, V vocabulary, H hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from reference_trainer.distillation.objective import Weights
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import ModuleStudent, ModuleTeacher
from reference_trainer.training.window import kd_window

TAU, CE, KD = 2.0, 0.3, 0.7
OBJECTIVE = f"temperature {TAU}, cross-entropy x {CE}, divergence x {KD}"
PRODUCTS, PLAIN = "the four matrix products", "plain F.kl_div"
STEP, LOGGED = "step", "step with metrics"
SWEPT = (PRODUCTS, PLAIN, STEP, LOGGED)
EXCLUDED: dict[str, str] = {}  # peers that cannot be imported, with the reason


class Head(nn.Module):
    """An output layer on given hidden states."""

    def __init__(self, rows: int, vocabulary: int, width: int, seed: int) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.hidden_BTH = nn.Parameter(torch.randn(1, rows, width, generator=draw) / width**0.5)
        self.weight_VH = nn.Parameter(torch.randn(vocabulary, width, generator=draw))

    def forward(self, tokens_BT: Tensor) -> Tensor:
        return F.linear(self.hidden_BTH, self.weight_VH)


class Problem:
    """A student, a teacher and labels of one sequence, whose last position predicts nothing."""

    def __init__(self, rows: int, vocabulary: int, width: int, *, masked: bool) -> None:
        self.student, self.teacher = (Head(rows, vocabulary, width, seed) for seed in (1, 2))
        self.teacher.requires_grad_(False)
        self.vocabulary = vocabulary
        draw = torch.Generator().manual_seed(0)
        labels_BT = torch.randint(vocabulary, (1, rows), generator=draw)
        if masked:
            labels_BT = labels_BT.where(torch.rand(1, rows, generator=draw) < 0.5, -100)
        self.batch = Batch(tokens=torch.zeros_like(labels_BT), labels=labels_BT)

    def double(self) -> Problem:
        wide = deepcopy(self)
        wide.student, wide.teacher = wide.student.double(), wide.teacher.double()
        return wide

    def logits(self) -> tuple[Tensor, Tensor]:
        """Return the logits of student and teacher at every position that has a label, [1, T, V]."""
        with torch.no_grad():
            teacher_BTV = self.teacher(self.batch.tokens)[:, :-1]
        return self.student(self.batch.tokens)[:, :-1], teacher_BTV

    @property
    def labels_BT(self) -> Tensor:
        return self.batch.labels[:, 1:]

    @torch.no_grad()
    def teacher_entropy(self, tau: float) -> float:
        """Return the teacher's entropy at a temperature in nats, the mean over scored rows."""
        log_p_NV = F.log_softmax(self.logits()[1][self.labels_BT != -100] / tau, -1)
        return float(-(log_p_NV.exp() * log_p_NV).sum(-1).mean())


Variant = Callable[[Problem], float]
"""Compute the loss, leave the student's gradients in its parameters, and return the loss."""


def products(problem: Problem) -> float:
    """The matrix products alone; the student's logits take the place of their gradient."""
    problem.student.zero_grad()
    student_BTV, _teacher_BTV = problem.logits()  # both are kept, as a loss needs them
    student_BTV.backward(student_BTV.detach())
    return 0.0


def with_autograd(loss: Callable[[Problem], Tensor], problem: Problem) -> float:
    problem.student.zero_grad()
    mean = loss(problem)
    mean.backward()
    return mean.item()


def plain(problem: Problem, *, select: bool = True) -> Tensor:
    """The textbook: F.cross_entropy and F.kl_div; masked rows are left out, or masked afterwards."""
    (student_NV, teacher_NV), labels_N = (x.flatten(0, 1) for x in problem.logits()), problem.labels_BT.flatten()
    scored_N = labels_N != -100
    if select and not scored_N.all():
        student_NV, teacher_NV, labels_N = student_NV[scored_N], teacher_NV[scored_N], labels_N[scored_N]
    log_q_NV, log_p_NV = F.log_softmax(student_NV / TAU, -1), F.log_softmax(teacher_NV / TAU, -1)
    if select:
        soft = F.kl_div(log_q_NV, log_p_NV, log_target=True, reduction="batchmean")
    else:
        each_N = F.kl_div(log_q_NV, log_p_NV, log_target=True, reduction="none").sum(-1)
        soft = (each_N * scored_N).sum() / scored_N.sum()
    return CE * F.cross_entropy(student_NV, labels_N) + KD * TAU**2 * soft


def step(problem: Problem, *, metrics: bool = False) -> float:
    """A micro-batch as the training loop takes it, read in one transfer; `metrics` as in a run that logs."""
    problem.student.zero_grad()
    V, weights = problem.vocabulary, Weights(temperature=TAU, ce_weight=CE, kd_weight=KD)
    providers = ModuleTeacher(problem.teacher, V), ModuleStudent(problem.student, V)
    window = kd_window(*providers, [problem.batch], weights, metrics=metrics)
    total, *_, count = torch.stack([*window.sums.values(), window.total]).tolist()
    return float(total / count)


def of_logits(subject: Any, problem: Problem) -> Tensor:
    """A peer's loss of logits."""
    loss = subject.kd_loss(*problem.logits(), problem.labels_BT, temperature=TAU, ce_weight=CE, kd_weight=KD)
    mean: Tensor = loss.sum / loss.count
    return mean


def of_hidden(subject: Any, problem: Problem) -> Tensor:
    """A peer's loss of hidden states and output weights."""
    student, teacher = problem.student, problem.teacher
    layers = [x for head in (student, teacher) for x in (head.hidden_BTH[0, :-1], head.weight_VH)]
    mean: Tensor = subject.mean(*layers, problem.labels_BT.flatten(), hard=CE, soft=KD * TAU**2, tau=TAU)
    return mean


PEERS = {
    "torchtune ForwardKLLoss": ("torchtune", "forward", of_logits),
    "torchtune ForwardKLWithChunkedOutputLoss": ("torchtune", "forward_chunked", of_logits),
    "Liger LigerFusedLinearJSDLoss": ("liger", "chunked_jsd", of_hidden),
    "TRL generalized_jsd_loss": ("trl", "gkd", of_logits),
    "ModelOpt LogitsDistillationLoss": ("modelopt", "masked", of_logits),
}
ENTROPY_MISSING = [name for name in PEERS if name.startswith("torchtune")]
"""Peers whose "KL" is the cross-entropy of the two distributions: another value, the same gradient."""


def variants() -> dict[str, Variant]:
    """Return every variant whose library can be imported, and note the others in `EXCLUDED`."""
    chosen: dict[str, Variant] = {
        PRODUCTS: products,
        PLAIN: partial(with_autograd, plain),
        "plain F.kl_div, masked afterwards": partial(with_autograd, partial(plain, select=False)),
        STEP: step,
        LOGGED: partial(step, metrics=True),
    }
    for name, (module, subject, call) in PEERS.items():
        try:
            loss = getattr(import_module(f"falsifiers.peers.{module}"), subject)
        except ImportError as error:
            EXCLUDED[name] = f"{error}; install the extra `bench`"
        else:
            chosen[name] = partial(with_autograd, partial(call, loss))
    return chosen
