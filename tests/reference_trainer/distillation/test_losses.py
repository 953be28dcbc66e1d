"""What a refusal of the loss says beside the value: the expected type and the likely cause."""

import pytest
import torch
from torch import Tensor

from reference_trainer.distillation.losses import kd_logit_gradient, kd_loss

LOGITS, LABELS = torch.zeros(1, 3, 4), torch.tensor([[1, -100, 3]])
CAUSES = {
    "tokenizers differ": (LOGITS, torch.zeros(1, 3, 5), LABELS),
    "expected one device": (LOGITS, torch.zeros(1, 3, 4, device="meta"), LABELS),
    "expected an integer tensor": (LOGITS, LOGITS, LABELS.double()),
    "expected a floating tensor": (LOGITS.long(), LOGITS, LABELS),
    "padding is not labelled with ignore_index": (LOGITS, LOGITS, LABELS + 1),
    "the student diverged": (torch.full_like(LOGITS, torch.nan), LOGITS, LABELS),
}


@pytest.mark.parametrize("call", [kd_loss, kd_logit_gradient], ids=["loss", "gradient"])
@pytest.mark.parametrize("cause", CAUSES)
def test_refusal_states_what_was_expected_or_the_likely_cause(cause: str, call: object) -> None:
    tensors: tuple[Tensor, Tensor, Tensor] = CAUSES[cause]
    assert callable(call)
    with pytest.raises(ValueError, match=cause):
        call(*tensors, temperature=1.0, ce_weight=0.5, kd_weight=0.5)
