"""A knowledge-distillation trainer whose every behaviour is under a contract."""

from __future__ import annotations

from reference_trainer.errors import (
    LabelError,
    LogitsError,
    PassConsumedError,
    ProviderError,
    SettingError,
    ShapeError,
    TrainerError,
    VocabularyError,
)
from reference_trainer.losses import LossSum, kd_logit_gradient, kd_loss
from reference_trainer.providers import (
    Batch,
    FixtureStudent,
    FixtureTeacher,
    ModuleStudent,
    ModuleTeacher,
    Student,
    StudentPass,
    Teacher,
)
from reference_trainer.step import MetricSum, StepResult, kd_step

__all__ = [
    "Batch",
    "FixtureStudent",
    "FixtureTeacher",
    "LabelError",
    "LogitsError",
    "LossSum",
    "MetricSum",
    "ModuleStudent",
    "ModuleTeacher",
    "PassConsumedError",
    "ProviderError",
    "SettingError",
    "ShapeError",
    "StepResult",
    "Student",
    "StudentPass",
    "Teacher",
    "TrainerError",
    "VocabularyError",
    "kd_logit_gradient",
    "kd_loss",
    "kd_step",
]
