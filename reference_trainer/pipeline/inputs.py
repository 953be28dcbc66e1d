"""What a run begins with: its ranks, device, data, student, and teacher or a teacher's outputs."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn

from reference_trainer.callbacks.lines import SilentLines
from reference_trainer.data.text import Rows
from reference_trainer.distillation.providers import ModuleTeacher
from reference_trainer.distillation.vocabulary import share_vocabulary
from reference_trainer.errors import SettingError
from reference_trainer.models.placement import computing_in, cpu_threads, usable_device
from reference_trainer.pipeline.evaluations import check_metric
from reference_trainer.pipeline.parts import Parts
from reference_trainer.pipeline.ranks import connect_ranks, local_device
from reference_trainer.pipeline.stored_teacher import check_outputs, outputs_identity, stored_teacher
from reference_trainer.ranks.parallel import shard
from reference_trainer.storage.teacher_outputs import SavedOutputs

__all__ = ["Inputs"]


class Inputs(Parts):
    """The inputs of a run: `join`, `make_inputs`, then `load_teacher`.

    outputs: those of a teacher that the settings name, None for a teacher that is run.
    """

    outputs: SavedOutputs | None = None

    def join(self) -> None:
        """Meet the other ranks."""
        place = self.place
        self.enter_context(cpu_threads(self.settings.threads, self._environment))
        self.ranks = self.enter_context(connect_ranks(place, self._environment, timeout_s=self.settings.rank_timeout))
        self.lines = self.lines if place.rank == 0 else SilentLines()

    def make_inputs(self) -> None:
        """Make data and student. Outputs of a teacher that do not fit are refused."""
        self.ranks.run_on_all(self._make_inputs)
        if self.settings.teacher_outputs is not None:
            self._read_outputs(SavedOutputs(self.settings.teacher_outputs))
        self.ranks.start(self.device)

    def _make_inputs(self) -> None:
        self.check_metric(self.settings.best_metric)
        self.device = usable_device(local_device(self.settings.device, self.place))
        self.batches = self.make_batches()
        self.student = self.make_student().to(self.device)
        self.check_parts()

    def check_metric(self, metric: str, user: str = "best_metric") -> None:
        """Raise `SettingError` for a metric that no evaluation of the run has; an own `evaluate` may have any."""
        if type(self).evaluate is Parts.evaluate:
            whole = self.outputs is None or self.outputs.manifest.top_k is None
            check_metric(metric, self.settings.accept_depth, whole=whole, user=user)

    def _read_outputs(self, saved: SavedOutputs) -> None:
        """Let the run have these outputs. Errors: those of `check_outputs` and `check_metric`."""
        own = type(self).make_teacher is not Parts.make_teacher and type(self).teacher_digest is Parts.teacher_digest
        digest = None if self.settings.teacher is None or own else self.teacher_digest()
        rows = sum(map(len, self.numbered_rows()))
        check_outputs(saved, self.settings, outputs_identity(self.settings, self.digests, rows), digest)
        self.outputs = saved
        self.check_metric(self.settings.best_metric)
        self.digests["teacher_sha256"] = saved.manifest.teacher_sha256
        self.digests["teacher_outputs_sha256"] = saved.sha256

    def numbered_rows(self) -> list[Rows]:
        """Return the parts of the data whose rows are numbered: to train on, and held back if the run has them.

        Raise `SettingError` for batches of another kind than `ShuffledBatches`.
        """
        sequences = getattr(self.batches, "sequences", None)
        if sequences is None:
            raise SettingError(
                f"{type(self.batches).__name__} has no `sequences`, whose rows outputs of a teacher belong to; return "
                f"ShuffledBatches from make_batches"
            )
        held_back = getattr(self, "held_back", None)
        return [sequences] if held_back is None else [sequences, held_back]

    def load_teacher(self) -> None:
        """Make the teacher, and its digest unless nothing is saved; an empty module if its outputs are read."""
        if self.outputs is not None:
            self.teacher = nn.Module()
            return
        self.teacher = self.make_teacher()
        if self.settings.smoke is None:  # a smoke run compares nothing
            self.digests["teacher_sha256"] = self.ranks.run_on_all(self.teacher_digest)
        if self.is_sharded:
            self.teacher = shard(self.teacher.requires_grad_(False), self.device)
        elif self.settings.teacher_device_map is None:
            self.teacher = self.teacher.to(self.device)

    @property
    def _top_k(self) -> int | None:
        return None if self.outputs is None else self.outputs.manifest.top_k

    @property
    def is_sharded(self) -> bool:
        """Whether each rank has a shard of the teacher, so that all ranks run it equally often."""
        return self.settings.shard_teacher and self.place.world_size > 1 and self.outputs is None

    def with_one_vocabulary(self, learner: Any) -> tuple[Any, Any]:
        """Return the frozen teacher and the student of a step, one of them wrapped if their vocabularies differ."""
        mode, wrap = self.settings.share_vocabulary, partial(computing_in, self.settings.dtype)
        if self.outputs is not None:
            teacher: Any = stored_teacher(self.outputs)
        elif mode is None:
            teacher = ModuleTeacher(wrap(self.teacher), self.vocab_size, note=self.lines.write)
        else:
            self.check_tokens()
            teacher = ModuleTeacher(wrap(self.teacher), self.teacher_vocab_size(), note=self.lines.write)
        return (teacher, learner) if mode is None else share_vocabulary(teacher, learner, mode)
