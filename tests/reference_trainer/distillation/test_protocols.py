"""What the refusal of a model's result says beside its type or shape: the likely cause."""

import pytest
import torch

from reference_trainer.distillation.protocols import checked_logits
from reference_trainer.errors import ProviderError

TOKENS, LOGITS = torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 3, 4)
CAUSES = {
    "weights are missing or device initialisation failed": None,
    "the module has another output type": {"logits": LOGITS},
    "config and checkpoint differ": LOGITS[..., :-1],
    "the last position only": LOGITS[:, -1:],
}


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("model", ["teacher", "student"])
def test_refusal_states_the_model_and_the_likely_cause(model: str, cause: str) -> None:
    with pytest.raises(ProviderError, match=f"^the {model} returned .*{cause}"):
        checked_logits(model, CAUSES[cause], TOKENS, 4)
