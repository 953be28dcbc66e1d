"""What saved models are measured on: the parts of a run, their rows, and a teacher."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from reference_trainer.config.settings import Settings
from reference_trainer.distillation.acceptance import accepted_name
from reference_trainer.distillation.objective import Weights
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import ModuleStudent, ModuleTeacher
from reference_trainer.distillation.step import MetricSum
from reference_trainer.distillation.vocabulary import share_vocabulary
from reference_trainer.errors import DataError, ModelFileError, SettingError, TrainerError, first_line
from reference_trainer.models.decoder import Decoder
from reference_trainer.models.placement import computing_in, usable_device
from reference_trainer.pipeline.checkpoint_list import checkpoint_student
from reference_trainer.pipeline.checkpointing import CHECKPOINTS, RUN_ID
from reference_trainer.pipeline.evaluations import check_sums, evaluation_mode
from reference_trainer.pipeline.own import checkpoint_module
from reference_trainer.pipeline.parts import Run
from reference_trainer.plan.schedule import Schedule
from reference_trainer.ranks.parallel import ONE_PROCESS
from reference_trainer.storage.checkpoint_manifest import rank_file
from reference_trainer.storage.export import MANIFEST, WEIGHTS
from reference_trainer.storage.whole_weights import read_weights
from reference_trainer.training.evaluation import evaluate

__all__ = ["Evaluator", "ScoredModel", "load_saved", "metric_names"]

AT_ONE = Weights(temperature=1.0, ce_weight=1.0, kd_weight=1.0)
OF_A_MODEL = ("hard_loss", "token_accuracy")
AGAINST_A_TEACHER = ("hard_loss", "token_accuracy", "kl_at_1", "agreement", "teacher_loss")


def metric_names(settings: Settings, *, taught: bool) -> tuple[str, ...]:
    """Return the names of the sums of a built-in evaluation, in order; a depth that no draft reaches has none."""
    if not taught:
        return OF_A_MODEL
    return (*AGAINST_A_TEACHER, *(accepted_name(depth) for depth in range(1, settings.accept_depth + 1)))


class ScoredModel:
    """A model that gives its logits for the rows, once for each batch, also if it is teacher and student.

    path: of a saved one; None for a teacher that own parts make. digest: its SHA-256, by `saved_digest` or
    `teacher_digest`. Raise `DataError` if the data of the run has a token that the model lacks.
    """

    def __init__(self, path: Path | None, module: nn.Module, digest: str, run: Run) -> None:
        self.path, self.digest, self.vocab_size = path, digest, _tokens_of(module, run)
        largest = run.recipe.data.largest_token
        if largest >= self.vocab_size:
            what = f"the {'text' if run.unit == 'byte' else 'data'} has {run.unit} {largest}"
            raise DataError(f"{what}, and {path} has {self.vocab_size} tokens; expected more")
        self.module = module.to(run.device)
        self._model = ModuleTeacher(computing_in(run.settings.dtype, self.module), self.vocab_size)
        self._last: tuple[Batch, Tensor] | None = None

    def logits(self, batch: Batch) -> Tensor:
        if self._last is None or self._last[0] is not batch:
            self._last = batch, self._model.logits(batch)
        return self._last[1]


class Evaluator:
    """The rows of one run's data and one teacher, on which models are measured one after the other.

    run: parts as the settings name them, entered; it computes on `device`. Errors: those of the parts.
    """

    def __init__(self, run: Run, settings: Settings, *, whole: bool) -> None:
        self.run, self.device = run, usable_device(settings.device)
        run.device, run.parallel = self.device, ONE_PROCESS
        run.schedule = Schedule(epochs=1, steps_per_epoch=1)  # whose last step has the last temperature and weights
        run.make_held_back(whole=whole)
        if not hasattr(run, "held_back") and not self.is_own:
            name = f"{type(run).__name__} has batches of its own"
            raise SettingError(f"{name}: override evaluate too, or set held_back")
        self.teacher = self._made_teacher()

    @property
    def is_own(self) -> bool:
        """Whether the parts have an evaluation of their own."""
        return "evaluate" in self.run.replaced

    def student(self, path: Path) -> ScoredModel:
        """Return a saved model. Errors: those of `load_saved` and `ScoredModel`."""
        module = load_saved(path, self.run)
        return ScoredModel(path, module, self.run.saved_digest(path, module), self.run)

    def sums(self, student: ScoredModel) -> dict[str, MetricSum]:
        """Return the sums of a model: at temperature 1, or those of an own evaluation. Errors name the model."""
        try:
            return self._own_sums(student) if self.is_own else self._sums(student)
        except TrainerError as error:
            error.add_note(f"in the evaluation of {student.path}")
            raise

    def _sums(self, student: ScoredModel) -> dict[str, MetricSum]:
        settings, rows, teacher = self.run.settings, self.run.held_back, self.teacher
        frozen: Any = teacher or student
        learner: Any = student
        if teacher is not None and settings.share_vocabulary is not None:
            frozen, learner = share_vocabulary(frozen, learner, settings.share_vocabulary)
        sums = evaluate(frozen, learner, rows, AT_ONE, accept_depth=settings.accept_depth)
        return {name: sums[name] for name in metric_names(settings, taught=teacher is not None) if name in sums}

    def _own_sums(self, student: ScoredModel) -> dict[str, MetricSum]:
        run, teacher = self.run, self.teacher or student
        wrap = partial(computing_in, run.settings.dtype)
        run.student, run.teacher = student.module, teacher.module
        run.learner = ModuleStudent(wrap(student.module), student.vocab_size)
        run.frozen = ModuleTeacher(wrap(teacher.module), teacher.vocab_size)
        with evaluation_mode([run.student, run.teacher], self.device):
            sums = run.evaluate()
        check_sums(sums, type(run).__name__)
        return sums

    def _made_teacher(self) -> ScoredModel | None:
        """Return the teacher of own parts, or the saved one that the settings name; None without either."""
        run, settings = self.run, self.run.settings
        if settings.parts is not None and "make_teacher" in run.replaced:
            run.teacher = run.make_teacher()
            return ScoredModel(None, run.teacher, run.teacher_digest(), run)
        return None if settings.teacher is None else self.student(settings.teacher)


def _tokens_of(module: nn.Module, run: Run) -> int:
    if isinstance(module, Decoder):
        return module.config.vocab_size
    return int(getattr(module, "vocab_size", run.vocab_size))


def load_saved(path: Path, run: Run) -> nn.Module:
    """Return the model in a directory, or the student of a checkpoint, on the CPU in the dtype it was saved in.

    Every file is compared with its digest, if it has one. Raise `ModelFileError` or `CheckpointError` if it is missing,
    damaged, or not of these parts, and `SettingError` for own parts that cannot load one.
    """
    is_own = run.settings.parts is not None or run.settings.student is not None
    if os.path.isfile(path / rank_file(0)):  # noqa: PTH113  (Path.is_file raises for a name that is too long)
        saved = read_weights(path)
        return checkpoint_module(saved, run) if is_own else checkpoint_student(saved)
    if is_own:
        return _own(path, run)
    if os.path.isfile(path / WEIGHTS):  # noqa: PTH113  (Path.is_file raises for a name that is too long)
        return run.saved_model(path)
    if not os.path.isfile(path / MANIFEST):  # noqa: PTH113  (Path.is_file raises for a name that is too long)
        raise ModelFileError(f"{path} has no {MANIFEST}; expected a model or a checkpoint{_hint(path)}")
    return checkpoint_student(read_weights(path))


def _own(path: Path, run: Run) -> nn.Module:
    try:
        return run.saved_model(path)
    except TrainerError as error:
        if hint := _hint(path):
            error.add_note(hint.removeprefix("; "))
        raise
    except Exception as error:  # of own code, or of a library
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise ModelFileError(f"{type(run).__name__} cannot load {path}: {reason}{_hint(path)}") from error


def _hint(path: Path) -> str:
    """Return a hint at the latest checkpoint, if the path is that of a run or of its checkpoints; else no text."""
    latest = (path / CHECKPOINTS / f"{RUN_ID}-latest", path / f"{RUN_ID}-latest")
    present = filter(os.path.isdir, latest)  # Path.is_dir raises for long names
    return next((f"; did you mean {checkpoint}?" for checkpoint in present), "")
