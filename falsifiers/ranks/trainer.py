"""The parts of the trainer that several ranks use, as one subject."""

from reference_trainer.distillation.providers import FixtureTeacher, ModuleStudent
from reference_trainer.ranks.parallel import (
    DataParallel,
    OneProcess,
    ShardedParallel,
    shard,
    warm_up,
    wrap_projections,
    wrap_student,
)
from reference_trainer.training.evaluation import evaluate
from reference_trainer.training.window import kd_window

__all__ = ["DataParallel", "FixtureTeacher", "ModuleStudent", "OneProcess", "ShardedParallel"]
__all__ += ["evaluate", "kd_window", "shard", "warm_up", "wrap_projections", "wrap_student"]
