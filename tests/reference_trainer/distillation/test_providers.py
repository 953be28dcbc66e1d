"""What the refusals of teachers, students and steps say about the likely cause."""

import pytest
import torch
from torch import nn

from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import FixtureStudent, FixtureTeacher, ModuleStudent
from reference_trainer.distillation.step import kd_step
from reference_trainer.errors import ProviderError, VocabularyError

TOKENS = torch.tensor([[0, 1]])
BATCH = Batch(tokens=TOKENS, labels=TOKENS)


def test_gradient_for_a_frozen_module_names_the_frozen_parameters() -> None:
    done = ModuleStudent(nn.Embedding(2, 2).requires_grad_(False), 2).forward(BATCH)
    with pytest.raises(ProviderError, match=r"no parameter that requires a gradient; probably all are frozen"):
        done.backward(torch.zeros(1, 2, 2))


def test_token_without_a_row_names_the_tokenizers() -> None:
    with pytest.raises(ProviderError, match=r"token 1 has no row .* probably the tokenizers differ"):
        FixtureTeacher(torch.zeros(1, 2)).logits(BATCH)


def test_step_of_two_vocabularies_names_tokenizers_and_padding() -> None:
    teacher, student = FixtureTeacher(torch.zeros(2, 3)), FixtureStudent(torch.zeros(2, 2), 1.0)
    with pytest.raises(VocabularyError, match="student 2, teacher 3; probably the tokenizers differ or one output"):
        kd_step(teacher, student, BATCH, temperature=1.0, ce_weight=0.5, kd_weight=0.5)
