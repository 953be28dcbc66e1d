"""torchtune's distillation losses (0.6.1, `torchtune.modules.loss`).

Mapped: the losses have no temperature, so logits are divided by it before the call and the result is multiplied by its
square; a mean over the unmasked positions is multiplied by their number (docstring: "The loss is divided over
non-ignored targets"); the chunked losses get the chunks of their docstring's example. The reverse losses are
KL(student || teacher) by their name, so the two change places. Arithmetic is float32 (`dtype=torch.float32`).
"""

import torch
from torch import Tensor
from torchtune.modules.loss import (
    ForwardKLLoss,
    ForwardKLWithChunkedOutputLoss,
    ReverseKLLoss,
    ReverseKLWithChunkedOutputLoss,
)

from falsifiers.peers.adapter import Adapter, Term, count

CHUNKS = 8


def _whole(loss: ForwardKLLoss | ReverseKLLoss, *, swapped: bool) -> Term:
    def term(student_BTV: Tensor, teacher_BTV: Tensor, labels_BT: Tensor, temperature: float) -> Tensor:
        student, teacher = (x.flatten(0, 1) / temperature for x in (student_BTV, teacher_BTV))
        mean = loss(*((teacher, student) if swapped else (student, teacher)), labels_BT.flatten())
        return mean * count(labels_BT) * temperature**2

    return term


def _chunked(loss: ForwardKLWithChunkedOutputLoss | ReverseKLWithChunkedOutputLoss, *, swapped: bool) -> Term:
    def term(student_BTV: Tensor, teacher_BTV: Tensor, labels_BT: Tensor, temperature: float) -> Tensor:
        student, teacher = (list((x / temperature).chunk(CHUNKS, dim=1)) for x in (student_BTV, teacher_BTV))
        mean = loss(*((teacher, student) if swapped else (student, teacher)), labels_BT)
        return mean * count(labels_BT) * temperature**2

    return term


forward = Adapter(_whole(ForwardKLLoss(), swapped=False), torch.float32)
reverse = Adapter(_whole(ReverseKLLoss(), swapped=True), torch.float32)
forward_chunked = Adapter(_chunked(ForwardKLWithChunkedOutputLoss(CHUNKS), swapped=False), torch.float32)
reverse_chunked = Adapter(_chunked(ReverseKLWithChunkedOutputLoss(CHUNKS), swapped=True), torch.float32)
