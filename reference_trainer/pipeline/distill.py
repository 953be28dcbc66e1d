"""A distillation from settings to files: text, teacher, student, training, evaluation, export."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import torch
from torch import nn

from reference_trainer.callbacks.base import Callback
from reference_trainer.callbacks.progress import SMOKE_START_LINE, BarCallback, Lines, ProgressCallback, SilentLines
from reference_trainer.config.settings import Settings, find_unused
from reference_trainer.data.text import Rows
from reference_trainer.distillation.protocols import EvaluatedStudent
from reference_trainer.distillation.providers import ModuleStudent, ModuleTeacher
from reference_trainer.distillation.step import MetricSum
from reference_trainer.distillation.universal import AlignedTeacher, Frozen
from reference_trainer.distillation.vocabulary import share_vocabulary
from reference_trainer.errors import DataError, SettingError, StopRequestedError
from reference_trainer.models.placement import computing_in, cpu_threads, placed, usable_device
from reference_trainer.pipeline import smoke
from reference_trainer.pipeline.checkpointing import CHECKPOINTS, Checkpoints, WritingCallback, conditions
from reference_trainer.pipeline.custom_class import create_run, custom_settings
from reference_trainer.pipeline.defaults import kept_settings, resumed_settings
from reference_trainer.pipeline.evaluations import (
    BestTracker,
    check_metric,
    check_sums,
    eval_config,
    evaluation_metrics,
    evaluation_mode,
)
from reference_trainer.pipeline.loss import matching, objective
from reference_trainer.pipeline.parts import Run
from reference_trainer.pipeline.report import (
    DistillResult,
    describe_optimizer,
    find_unreachable,
    manifest,
    resume_note,
    student_notes,
)
from reference_trainer.pipeline.run_files import InitialWeights, RunFiles
from reference_trainer.pipeline.teachers import check_outputs, outputs_identity, stored_teacher
from reference_trainer.plan.schedule import Schedule, count_steps
from reference_trainer.ranks.coordination import connect_ranks, local_device
from reference_trainer.ranks.parallel import (
    ONE_PROCESS,
    gather_full,
    shard,
    strategy_of,
    wrap_projections,
    wrap_student,
)
from reference_trainer.storage.background import Background
from reference_trainer.storage.export import note_interrupts
from reference_trainer.storage.teacher_outputs import SavedOutputs
from reference_trainer.training.flops import counted_flops
from reference_trainer.training.loop import Saved, TrainResult, train
from reference_trainer.training.state import ResumePoint, RunIdentity, RunServices, UpdateOptions
from reference_trainer.training.window import is_scored

GO_ON = "the last step is saved: go on with --resume latest"


def distill(
    settings: Settings,
    *,
    callbacks: Iterable[Callback] = (),
    lines: Lines | None = None,
    clock: Callable[[], float] = time.monotonic,
    environment: Mapping[str, str] = os.environ,
) -> DistillResult:
    """Train a student as configured.

    The weights depend on settings, text and versions only; the global random generators are restored. Under a
    launcher such as `torchrun` this is one of several processes that train together: all return the same result; only
    rank 0 writes files and lines.

    Args:
        settings: The settings. A resumed run takes the settings that are not set explicitly from its checkpoint.
        callbacks: Called after the built-in `ProgressCallback`.
        lines: Where lines are written; by default standard output.
        clock: Times the training of the student, in seconds.
        environment: The variables that a launcher sets.

    Returns:
        Models, sums on held-back rows, and the output directory.

    Raises:
        DataError, ModelFileError, OutputError, SettingError: Before the training.
        RankError: If another process has failed.
        SmokeError: If a smoke run has no step.
        TrainerError: As `loop.train`.
        KeyboardInterrupt: With the note `interrupts.WRITTEN` if the model was written.
    """
    # Entered twice: an interrupt at the end of the inner block is handled by the outer one, which closes the rest.
    settings = resumed_settings(settings)
    distillation = create_run(
        settings, Distillation, callbacks=callbacks, lines=lines, clock=clock, environment=environment
    )
    with distillation as run, run:
        run.prepare()
        return run.conclude(run.run())


class Distillation(Run):
    """The distillation of one student: call `prepare`, `run` and `conclude` once, in this order, in a `with` block.

    The parts are defined by `recipe`, or by a subclass that overrides their methods; see `Run`. `Callback.attach` is
    called with the distillation at the end of `prepare`. All ranks call every method except `save`, which rank 0 calls.

    Attributes:
        optimizer: The optimizer.
        directory: The output directory; None for a smoke run.
        outputs: The precomputed outputs of a teacher that the settings name; None for a teacher that is run.

    `prepare` sets these attributes, and the attributes of `Run`.
    """

    outputs: SavedOutputs | None = None
    _is_saved = False  # whether the training has ended, and its last step is saved

    def prepare(self) -> None:
        """Connect the ranks, claim the output directory, and make models, batches and optimizer.

        Most invalid settings are refused before a teacher is trained, which may take long.
        """
        # 1. Ranks, output directory, data and student. No teacher yet.
        settings, place = self.settings, self.place
        self.join()
        self.files = RunFiles(settings, self.ranks, self.lines)
        self.files.claim(self.contexts)  # before the inputs, which may take long
        self.directory = self.files.directory
        self.make_inputs()
        self.files.check_room(self.student)
        self.schedule = self._new_schedule()
        self.files.check(self._conditions(self.digests))
        initial = InitialWeights(self)
        initial.load_into("student", self.student, self.lines)
        notes = self._notes()
        # The trace may be in the output directory, so it is created after the check that this is empty.
        file_callbacks = self.ranks.run_on_all(partial(self.files.callbacks, self.contexts))
        if settings.run.smoke is not None:
            self.lines.write(SMOKE_START_LINE.format(steps=settings.run.smoke))
        # 2. The teacher, and both models as the loop takes them. Notes come before a long training of a teacher.
        if settings.trains_teacher:
            self._write(notes)
        with self._reporting_divergence():
            self.load_teacher()
        self.frozen, self.learner = self._models()
        self.features = matching(settings, self.learner, self.frozen, self.batches)
        self._projections = nn.ModuleList(self.features.projections)
        initial.load_into("projections", self._projections, self.lines)
        self.parallel = ONE_PROCESS
        if place.world_size > 1:
            self.features, self.parallel = wrap_projections(self._trained, self.features, self.teacher)
        # 3. The optimizer, then the state of a resumed run, which is loaded into modules and optimizer.
        self.optimizer = self.make_optimizer([*self.student.parameters(), *self.features.parameters])
        self.checkpoints = self._checkpoints()
        self._optimizer = describe_optimizer(self.optimizer, self.checkpoints.modules)
        self.checkpoints.initial = initial.identity
        self.ranks.check_equal(self.checkpoints.conditions)
        self.resumed = self.files.restore(self.checkpoints, self.schedule)
        if self.resumed is not None and (note := resume_note(self.resumed, self.schedule)):
            self.lines.write(note)
        self.files.rewind(self.checkpoints)
        # 4. The callbacks.
        compiles = settings.run.compile and settings.student.model is not None
        progress = ProgressCallback(settings.run.log_every, lines=self.lines, compiles=compiles)
        packaged = (progress, BarCallback(self.lines, "student", self.unit), WritingCallback(self.checkpoints.writer))
        self.callbacks = (*self.watchdog("student"), *packaged, *self.callbacks, *file_callbacks)
        if not settings.trains_teacher:  # after all checks, so that a refused run does not print them
            self._write(notes)
        for callback in self.callbacks:
            callback.attach(self)

    def _write(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.lines.write(line)

    def _notes(self) -> list[str]:
        """Return warnings about settings that are valid but probably not intended."""
        settings = self.settings
        return [
            *find_unused(settings),
            *find_unreachable(settings, self.schedule),
            *student_notes(settings, self.student),
        ]

    def join(self) -> None:
        """Connect to the other ranks; set `ranks`, and `lines`, which writes on rank 0 only."""
        place = self.place
        self.enter_context(cpu_threads(self.settings.run.threads, self.environment))
        ranks = connect_ranks(place, self.environment, timeout_s=self.settings.run.rank_timeout)
        self.ranks = self.enter_context(ranks)
        self.lines = self.lines if place.rank == 0 else SilentLines()

    def make_inputs(self) -> None:
        """Make device, batches and student, and read the outputs of the teacher that the settings name."""
        self.ranks.run_on_all(self._make_inputs)
        if self.settings.teacher.outputs is not None:
            self.read_outputs(SavedOutputs(self.settings.teacher.outputs))
        self.ranks.start(self.device)

    def _make_inputs(self) -> None:
        self.check_metric(self.settings.evaluation.best_metric)
        self.device = usable_device(local_device(self.settings.run.device, self.place))
        self.batches = self.make_batches()
        self._check_scored()
        self.student = placed(self.make_student(), self.device)
        self.check_parts()

    def _check_scored(self) -> None:
        """Raise `DataError` if no row has a token to predict, so that no step would change a weight."""
        rows = getattr(self.batches, "sequences", None)
        if rows is None:  # batches of another type may have different data in every epoch
            return
        order = torch.arange(len(rows), device="cpu")
        if not any(is_scored(rows.batch(order, position)) for position in range(1, rows.batches + 1)):
            raise DataError(
                f"none of the {len(rows)} rows to train on has a token to predict: all labels are masked, or precede "
                f"every other token; check the masks of the data, or use a larger --length"
            )

    def check_metric(self, metric: str, user: str = "best_metric") -> None:
        """Raise `SettingError` for a metric that evaluations do not measure. An overridden `evaluate` may have any."""
        if "evaluate" not in self.replaced:
            settings = self.settings
            aligned = settings.teacher.cross_tokenizer and settings.student.model is not None
            all_logits, depth = self._top_k is None, settings.evaluation.accept_depth
            check_metric(metric, depth, all_logits=all_logits, aligned=aligned, user=user)

    def read_outputs(self, saved: SavedOutputs) -> None:
        """Use these outputs as the teacher. Raise as `check_outputs` and `check_metric`."""
        # Without the setting `teacher`, there is no digest to compare the outputs with.
        if self.settings.teacher.model is None:
            digest = None
        elif "teacher_digest" in self.replaced:
            digest = self.teacher_digest()
        else:
            digest = self.recipe.teacher.digest_of_files()
        rows = sum(map(len, self.numbered_rows()))
        check_outputs(saved, self.settings, outputs_identity(self.settings, self.digests, rows), digest)
        self.outputs = saved
        self.check_metric(self.settings.evaluation.best_metric)
        self.digests["teacher_sha256"] = saved.manifest.teacher_sha256
        self.digests["teacher_outputs_sha256"] = saved.sha256

    def numbered_rows(self) -> list[Rows]:
        """Return the numbered rows: the rows to train on and, if there are any, the rows held back.

        Raise `SettingError` for batches without numbered rows, unlike `ShuffledBatches`.
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
        """Set `teacher`, an empty module if its outputs are read, and its digest except in a smoke run."""
        if self.outputs is not None:
            self.teacher = nn.Module()
            return
        self.teacher = self.make_teacher()
        if self.settings.run.smoke is None:  # a smoke run saves nothing that has to fit a teacher later
            self.digests["teacher_sha256"] = self.ranks.run_on_all(self.teacher_digest)
        if self.is_sharded:
            self.teacher = shard(self.teacher.requires_grad_(False), self.device, self.settings.run.dtype)
        elif self.settings.teacher.device_map is None:
            self.teacher = self.teacher.to(self.device)

    @property
    def _top_k(self) -> int | None:
        """Return the number of tokens that the teacher gives per position; None for all."""
        if self.settings.teacher.url is not None:
            return self.settings.teacher.top_k
        return None if self.outputs is None else self.outputs.manifest.top_k

    def with_one_vocabulary(self, learner: EvaluatedStudent) -> tuple[Frozen, EvaluatedStudent]:
        """Return the teacher and the student as `loop.train` takes them, one wrapped if their vocabularies differ."""
        mode, wrap = self.settings.teacher.share_vocabulary, partial(computing_in, self.settings.run.dtype)
        if self.outputs is not None:
            teacher: Frozen = stored_teacher(self.outputs)
        elif self.served is not None:
            teacher = self.served
        elif self.pairs is not None:
            module = ModuleTeacher(wrap(self.teacher), self.teacher_vocab_size(), note=self.lines.write)
            teacher = AlignedTeacher(module, self.pairs)
        elif mode is None:
            teacher = ModuleTeacher(wrap(self.teacher), self.vocab_size, note=self.lines.write)
        else:
            self.check_tokens()
            teacher = ModuleTeacher(wrap(self.teacher), self.teacher_vocab_size(), note=self.lines.write)
        if mode is None or isinstance(teacher, AlignedTeacher):
            return teacher, learner
        return share_vocabulary(teacher, learner, mode)

    def run(self) -> TrainResult:
        """Train the student. Raise as `loop.train`."""
        settings = self.settings
        # A smoke run compares the loss of one batch before and after the training.
        if settings.run.smoke is not None:
            with evaluation_mode([self.student, self.teacher], self.device):
                self._first_batch = self.batches.batch(1, 1)  # batches of a subclass may depend on the student
            self._loss_before = self._first_batch_loss()
        with self._reporting_divergence(), self._resumable(), self.stop_requests() as stop_requested:
            with self.checkpoints.writer:
                result = train(
                    self.frozen,
                    self.learner,
                    self.batches.batch,
                    self.optimizer,
                    schedule=self.schedule,
                    objective=objective(settings),
                    learning_rate=self.learning_rate,
                    callbacks=self.callbacks,
                    parallel=self.parallel,
                    features=self.features,
                    options=UpdateOptions(clip=settings.optimizer.clip, seed=settings.run.seed),
                    services=RunServices(
                        evaluate=lambda: evaluation_metrics(self._evaluate_all_ranks()),
                        save=self._save,
                        stop_requested=stop_requested,
                        step_flops=self._step_flops,
                        clock=self.clock,
                    ),
                    resume_from=self._resume_point(),
                    identity=RunIdentity(
                        run=settings.run.out.resolve().name,
                        attempt=self.ranks.broadcast_decision(lambda: time.time_ns() // 10**6),
                    ),
                )
            self._is_saved = self.schedule.save_every > 0 and result.steps_completed > 0
        return result

    def _resume_point(self) -> ResumePoint | None:
        if self.resumed is None:
            return None
        return ResumePoint(state=self.resumed, checkpoint=self.files.resumed_from)

    def conclude(self, result: TrainResult) -> DistillResult:
        """Evaluate and write the student. After a smoke run, check whether a full run looks healthy instead."""
        # The weights are needed whole: to write them, and to check the gradient.
        if self._strategy == "fsdp2":
            self.student = gather_full(self.student, lambda: placed(self.make_student(), self.device))
        if self.directory is None:
            last = self.schedule.planned_steps
            weights = objective(self.settings).weights(last, last)
            difference = smoke.gradient_difference(self.learner, self.frozen, self.batches.batch(1, 1), weights)
            losses = (self._loss_before, self._first_batch_loss())
            projected = (self.settings.run.project_to_steps, last)
            checks = smoke.report_checks(result, projected, losses, difference, self.device, self.lines)
            return self._result(result, output=None, held_back={}, checks=checks)
        with self._resumable():
            held_back = self._evaluate_all_ranks()
        self.outermost.enter_context(note_interrupts(self.directory))  # also while the other contexts are closed
        fields = {"unit": self.unit, "optimizer": self._optimizer, **self.digests}
        teacher = self.digests["teacher_sha256"]
        fields["evaluation"] = eval_config(self, whole=False, teacher=teacher, top_k=self._top_k).in_json()
        content = manifest(self.settings, self.device, result, held_back, **fields)
        if self.checkpoints.initial is not None:
            content["initial_weights"] = self.checkpoints.initial
        with self._resumable(interrupts=False):  # the outermost context knows whether the model was written
            self.ranks.run_on_all(partial(self.save, self.directory, content) if self.place.rank == 0 else lambda: None)
        return self._result(result, output=self.directory, held_back=held_back, checks=())

    def _first_batch_loss(self) -> float:
        """Return the loss of the first batch, with the loss weights of the last planned step, without dropout."""
        last = self.schedule.planned_steps
        weights = objective(self.settings).weights(last, last)
        with evaluation_mode([self.student, self.teacher], self.device):
            return smoke.first_batch_loss(self.learner, self.frozen, self._first_batch, weights)

    @contextmanager
    def _resumable(self, *, interrupts: bool = True) -> Iterator[None]:
        """If the last step is saved, add a note to errors, and convert an interrupt into a `StopRequestedError`."""
        try:
            yield
        except KeyboardInterrupt as interrupt:
            if not (self._is_saved and interrupts):
                raise
            raise StopRequestedError("interrupted after the training") from interrupt
        except Exception as error:
            if self._is_saved:
                error.add_note(GO_ON)
            raise

    def _result(
        self,
        train: TrainResult,
        *,
        output: Path | None,
        held_back: dict[str, MetricSum],
        checks: tuple[smoke.Check, ...],
    ) -> DistillResult:
        return DistillResult(
            train=train,
            output=output,
            held_back=held_back,
            checks=checks,
            student=self.student,
            teacher=self.teacher,
            unit=self.unit,
        )

    @property
    def _strategy(self) -> str:
        return strategy_of(self.settings.run.strategy, self.place.world_size)

    def _new_schedule(self) -> Schedule:
        settings, batches = self.settings, self.batches.batches
        return Schedule(
            epochs=settings.schedule.epochs,
            steps_per_epoch=count_steps(batches, settings.optimizer.accumulate),
            limit=settings.run.smoke or settings.schedule.max_steps,
            accumulation=settings.optimizer.accumulate,
            micro_batches=batches,
            log_every=settings.run.log_every,
            eval_every=settings.evaluation.every,
            save_every=0 if self.directory is None else settings.checkpoints.save_every,
        )

    def _evaluate_all_ranks(self) -> dict[str, MetricSum]:
        """Return the result of `evaluate`. Raise on all ranks if it is invalid, or if ranks have different results."""
        with evaluation_mode([self.student, self.teacher], self.device):
            sums = self.evaluate()
        self.ranks.run_on_all(partial(check_sums, sums, type(self).__name__))
        self.ranks.check_equal({f"{name} of evaluate": [total.sum, total.count] for name, total in sums.items()})
        return sums

    def _save(self, run: Saved) -> Path | None:
        return None if self.directory is None else self.checkpoints.save(run, self.files.metrics_length)

    def _checkpoints(self) -> Checkpoints:
        settings = self.settings
        return Checkpoints(
            directory=settings.run.out / CHECKPOINTS,
            keep=settings.checkpoints.keep,
            modules={"student": self.student, "projections": self._projections},
            optimizer=self.optimizer,
            conditions=self._conditions(self.digests),
            ranks=self.ranks,
            best=BestTracker(
                metric=settings.evaluation.best_metric,
                mode=settings.evaluation.best_mode,
                min_delta=settings.evaluation.best_min_delta,
            ),
            writer=Background(),
            custom_settings=custom_settings(settings),
            settings=kept_settings(settings),
        )

    def _conditions(self, digests: Mapping[str, str]) -> dict[str, object]:
        place, strategy = self.place, self._strategy
        return conditions(self.settings, self.device, self.schedule, digests, place.world_size, strategy)

    def _models(self) -> tuple[Frozen, EvaluatedStudent]:
        """Return the teacher and the student as `loop.train` takes them."""
        wrap = partial(computing_in, self.settings.run.dtype)
        if self.place.world_size == 1:
            self._trained = wrap(self.student)
        else:
            strategy, dtype = self.settings.run.strategy, self.settings.run.dtype
            self._trained = wrap_student(self.student, strategy, self.device, wrap, dtype)
        return self.with_one_vocabulary(ModuleStudent(self._trained, self.vocab_size, note=self.lines.write))

    def _step_flops(self) -> int | None:
        """Return the operations of a step of all ranks; None, with a line, if they cannot be counted."""
        if self.is_sharded:
            self.lines.write("metrics: without flops_per_s, because shards of the teacher cannot be counted")
            return None
        if self.pairs is not None:
            self.lines.write("metrics: without flops_per_s, because the teacher runs on other tokens than the student")
            return None
        tokens = self.batches.batch(1, 1).tokens
        student = self.student if self._strategy != "fsdp2" else self.make_student()  # shards cannot be counted
        flops, note = counted_flops(self._running_teacher(), student, tokens)
        self._write(note)
        return self.place.world_size * min(self.settings.optimizer.accumulate, self.batches.batches) * flops

    def _running_teacher(self) -> nn.Module | None:
        """Return the teacher, if the loss of any step needs it."""
        last = self.schedule.planned_steps
        is_run = self.outputs is None and self.served is None and objective(self.settings).needs_teacher(1, last, last)
        return self.teacher if is_run else None

    def _reporting_divergence(self) -> AbstractContextManager[None]:
        return smoke.reporting_divergence(self.lines, smoke=self.settings.run.smoke is not None)
