"""What refusals say beside the value: the expected type and the likely cause."""

from collections import defaultdict
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from reference_trainer.distillation.losses import kd_loss
from reference_trainer.distillation.objective import Weights
from reference_trainer.distillation.protocols import Batch, checked_logits
from reference_trainer.distillation.providers import FixtureStudent, FixtureTeacher, ModuleStudent
from reference_trainer.distillation.step import kd_step
from reference_trainer.errors import ProviderError, VocabularyError

LOGITS, LABELS = torch.zeros(1, 3, 4), torch.tensor([[1, -100, 3]])
BATCH = Batch(tokens=torch.tensor([[0, 1]]), labels=torch.tensor([[0, 1]]))
CAUSES = {
    "tokenizers differ": (LOGITS, torch.zeros(1, 3, 5), LABELS),
    "expected one device": (LOGITS, torch.zeros(1, 3, 4, device="meta"), LABELS),
    "expected an integer tensor": (LOGITS, LOGITS, LABELS.double()),
    "padding is not labelled with ignore_index": (LOGITS, LOGITS, LABELS + 1),
    "the student diverged": (torch.full_like(LOGITS, torch.nan), LOGITS, LABELS),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_refusal_of_the_loss_states_what_was_expected_or_the_likely_cause(cause: str) -> None:
    tensors: tuple[Tensor, Tensor, Tensor] = CAUSES[cause]
    with pytest.raises(ValueError, match=cause):
        kd_loss(*tensors, temperature=1.0, ce_weight=0.5, kd_weight=0.5)


@pytest.mark.parametrize(
    ("cause", "returned"),
    [
        ("weights are missing or device initialisation failed", None),
        ("the module has another output type", {"logits": LOGITS}),
        ("config and checkpoint differ", LOGITS[..., :-1]),
        ("the last position only", LOGITS[:, -1:]),
    ],
)
def test_refusal_of_a_models_result_states_the_model_and_the_likely_cause(cause: str, returned: object) -> None:
    with pytest.raises(ProviderError, match=f"^the teacher returned .*{cause}"):
        checked_logits("teacher", returned, torch.zeros(1, 3, dtype=torch.int64), 4)


def test_gradient_for_a_frozen_module_names_the_frozen_parameters() -> None:
    done = ModuleStudent(nn.Embedding(2, 2).requires_grad_(False), 2).forward(BATCH)
    with pytest.raises(ProviderError, match=r"no parameter that requires a gradient; probably all are frozen"):
        done.backward(torch.zeros(1, 2, 2))


def test_step_of_two_vocabularies_names_tokenizers_and_padding() -> None:
    teacher, student = FixtureTeacher(torch.zeros(2, 3)), FixtureStudent(torch.zeros(2, 2), 1.0)
    with pytest.raises(VocabularyError, match="student 2, teacher 3; probably the tokenizers differ or one output"):
        kd_step(teacher, student, BATCH, temperature=1.0, ce_weight=0.5, kd_weight=0.5)


def test_infinite_term_without_weight_is_zero_in_the_fused_loss() -> None:
    fused = pytest.importorskip("reference_trainer.distillation.fused")

    def infinite(*arguments: Any, **options: Any) -> None:
        arguments[5].fill_(torch.inf)

    for ce_weight, expected in ((0.0, [0, torch.inf]), (1.0, [torch.inf, 0])):
        weights = Weights(temperature=1.0, ce_weight=ce_weight, kd_weight=1 - ce_weight)
        with mock.patch.object(fused, "row_loss", defaultdict(lambda: infinite)):
            terms = fused.fused_loss(*torch.zeros(2, 1, 4), torch.tensor([0]), torch.tensor([True]), weights, 1.0)
        assert terms[:2, 0].tolist() == expected
