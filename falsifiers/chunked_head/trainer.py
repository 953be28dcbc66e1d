"""The subject of `contracts/chunked-head.yaml`: what a training loop with a large vocabulary is made of."""

from reference_trainer.distillation.providers import ModuleStudent, ModuleTeacher
from reference_trainer.distillation.vocabulary import share_vocabulary
from reference_trainer.models.placement import computing_in
from reference_trainer.ranks.parallel import DataParallel, ShardedParallel, shard
from reference_trainer.training.evaluation import evaluate
from reference_trainer.training.window import kd_window

__all__ = ["DataParallel", "ModuleStudent", "ModuleTeacher", "ShardedParallel"]
__all__ += ["computing_in", "evaluate", "kd_window", "shard", "share_vocabulary"]
