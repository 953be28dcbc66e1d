import math

import pytest
import torch

from pv.suites.distillation_loss.forward_kl import forward_kl


def test_loss_of_two_tokens_by_hand() -> None:
    student, teacher = torch.zeros(1, 2, 2), torch.tensor([[[math.log(3.0), 0.0], [5.0, 0.0]]])
    right = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    found = forward_kl(student, teacher, torch.tensor([[1, -100]]), temperature=1.0)
    assert float(found) == pytest.approx(right)
