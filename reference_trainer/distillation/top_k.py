"""A teacher of which the K most probable tokens are known, and the mass of the rest.

The loss is the divergence between two distributions of K + 1 outcomes: the kept tokens, and the rest as one, the tail.
So it is never negative, student mass in the tail costs what it costs, and K = V is the whole teacher. Kept
probabilities are not renormalised.

`completed` shares the tail out among its tokens as the student does, p_j = p_tail q_j / q_tail. Every such token then
has the ratio p_tail / q_tail, so each divergence of `objective.DIVERGENCES` between the completed teacher and the
student is that of the K + 1 outcomes, and its derivative with the completed teacher held fixed is too.

tau is the temperature. Shape letters: B batch, T position, N positions, V vocabulary, K kept tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from reference_trainer.distillation.protocols import Batch, Teacher, checked_logits
from reference_trainer.errors import SettingError

__all__ = ["TopK", "TopKTeacher", "completed", "keep_top_k", "teacher_logits"]


@dataclass(frozen=True, slots=True, eq=False)
class TopK:
    """The K largest logits of each position, in decreasing order, shifted so that the first is 0.

    logits: floating [..., K]. tokens: integers [..., K]. rest: floating [...], log-sum-exp of the other shifted logits
    divided by `temperature`; -inf if they have no mass.
    """

    logits: Tensor
    tokens: Tensor
    rest: Tensor
    temperature: float

    def to(self, device: torch.device) -> TopK:
        """Return these positions on a device."""
        return TopK(self.logits.to(device), self.tokens.to(device), self.rest.to(device), self.temperature)

    def rows(self, places_N: Tensor) -> TopK:
        """Return some of the positions, of which all are numbered one after another."""
        at_N = places_N.to(self.rest.device)
        logits_PK, tokens_PK = self.logits.flatten(0, -2), self.tokens.flatten(0, -2)
        return TopK(logits_PK[at_N], tokens_PK[at_N], self.rest.flatten()[at_N], self.temperature)


@runtime_checkable
class TopKTeacher(Protocol):
    """A frozen model of which only the most probable tokens are known."""

    @property
    def vocab_size(self) -> int:
        """Return V, the number of tokens that have a logit."""
        ...

    def top_k(self, batch: Batch) -> TopK:
        """Return what is known at each position [B, T]; unscored positions have any values."""
        ...


def keep_top_k(logits_NV: Tensor, k: int, temperature: float) -> TopK:
    """Return the k largest logits of each position; of equal ones, those of the first tokens."""
    wide_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
    sorted_NV, tokens_NV = torch.sort(wide_NV, dim=-1, descending=True, stable=True)
    sorted_NV = sorted_NV - sorted_NV[..., :1]
    rest_N = torch.logsumexp(sorted_NV[..., k:] / temperature, -1)
    return TopK(sorted_NV[..., :k].contiguous(), tokens_NV[..., :k].int(), rest_N, temperature)


def completed(top_k: TopK, student_BTV: Tensor, temperature: float) -> Tensor:
    """Return logits [B, T, V] of a teacher with these tokens, whose tail is shared out as the student does.

    Their dtype is the wider one of both, at least float32. A tail to which the student gives nothing is shared out
    equally. Raise `SettingError` for another temperature: the mass of the rest is known at one.
    """
    if temperature != top_k.temperature:
        raise SettingError(
            f"the teacher's outputs are for temperature {top_k.temperature:g}, the step has {temperature:g}"
        )
    tokens_BTK, V = top_k.tokens.long(), student_BTV.shape[-1]
    dtype = torch.promote_types(torch.promote_types(student_BTV.dtype, top_k.logits.dtype), torch.float32)
    share_BTV = (student_BTV - student_BTV.amax(-1, keepdim=True)).to(dtype).div_(temperature)
    share_BTV.scatter_(-1, tokens_BTK, -torch.inf)
    of_student_BT1 = torch.logsumexp(share_BTV, -1, keepdim=True)
    rest_BT1 = top_k.rest[..., None].to(dtype)
    equal_BT1 = rest_BT1 - torch.tensor(max(V - tokens_BTK.shape[-1], 1), dtype=dtype, device=rest_BT1.device).log()
    share_BTV = torch.where(of_student_BT1 == -torch.inf, equal_BT1, share_BTV + (rest_BT1 - of_student_BT1))
    return share_BTV.mul_(temperature).scatter_(-1, tokens_BTK, top_k.logits.to(dtype))


def teacher_logits(teacher: Teacher | TopKTeacher, batch: Batch, student_BTV: Tensor, temperature: float) -> Tensor:
    """Return the logits that a loss compares with the student's, on its device: the teacher's, or completed ones."""
    if isinstance(teacher, TopKTeacher):
        return completed(teacher.top_k(batch).to(student_BTV.device), student_BTV, temperature)
    teacher_BTV = checked_logits("teacher", teacher.logits(batch), batch.tokens, teacher.vocab_size)
    return teacher_BTV.to(student_BTV.device)
