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
from reference_trainer.distillation.protocols import EvaluatedStudent, Teacher, TopKTeacher
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

RESUME_HINT = "the last step is saved: go on with --resume latest"


def distill(
    settings: Settings,
    *,
    callbacks: Iterable[Callback] = (),
    lines: Lines | None = None,
    clock: Callable[[], float] = time.monotonic,
    environment: Mapping[str, str] = os.environ,
) -> DistillResult:
    """Train a student as configured.

    The weights depend only on settings, text and versions; the global random generators are restored. Processes that a
    launcher such as `torchrun` started train together: all return the same result; only rank 0 writes files and lines.

    Args:
        settings: The settings. In a resumed run, settings without an explicit value are taken from the checkpoint.
        callbacks: Called after the built-in `ProgressCallback`.
        lines: The writer of all lines; by default to standard output.
        clock: Returns a time in seconds, by which the training of the student is measured.
        environment: The variables that a launcher sets.

    Returns:
        The models, the sums on held-back rows, and the output directory.

    Raises:
        DataError, ModelFileError, OutputError, SettingError: If the inputs are invalid, before the training; an
            OutputError also if results cannot be written.
        CheckpointError: If the checkpoint to resume is missing or damaged, or the run cannot continue from it.
        RankError: If another process has failed.
        SmokeError: If a smoke run took no step.
        TrainerError: As `loop.train`.
        KeyboardInterrupt: With the note `interrupts.WRITTEN` if the model was written.
    """
    settings = resumed_settings(settings)
    distillation = create_run(
        settings, Distillation, callbacks=callbacks, lines=lines, clock=clock, environment=environment
    )
    # Two nested `with` blocks: if an interrupt arrives while the inner block closes the contexts of the run, the outer
    # block closes the remaining contexts.
    with distillation as run, run:
        run.prepare()
        return run.conclude(run.run())


class Distillation(Run):
    """The distillation of one student: call `prepare`, `run` and `conclude` once, in this order, in a `with` block.

    The parts are defined by `recipe`, or by a subclass that overrides their methods; see `Run`. At the end of
    `prepare`, the distillation is passed to `Callback.attach` of every callback. Rank 0 alone calls `save`; every other
    method is called on all ranks.

    Attributes:
        optimizer: The optimizer.
        directory: The output directory; None for a smoke run.
        outputs: The precomputed teacher outputs that the settings name; None without them.

    `prepare` sets these attributes, and the attributes that `Run` only declares.
    """

    outputs: SavedOutputs | None = None
    _is_saved = False  # whether the training has ended with a `save_every`, so that its last step has a checkpoint

    def prepare(self) -> None:
        """Connect the ranks, claim the output directory, and make models, batches, optimizer and callbacks.

        Most invalid settings are refused before the teacher is trained, because this training may take long.
        """
        # 1. Ranks, output directory, data and student. No teacher yet.
        settings, place = self.settings, self.place
        self.join()
        self.files = RunFiles(settings, self.ranks, self.lines)
        self.files.claim(self.contexts)  # before the inputs are read, which may take long
        self.directory = self.files.directory
        self.make_inputs()
        self.files.check_room(self.student)
        self.schedule = self._new_schedule()
        self.files.check(self._conditions(self.digests))
        initial = InitialWeights(self)
        initial.load_into("student", self.student, self.lines)
        notes = self._notes()
        # The trace file may be in the output directory, so create it after `claim`, which expects an empty directory.
        file_callbacks = self.ranks.run_on_all(partial(self.files.callbacks, self.contexts))
        if settings.run.smoke is not None:
            self.lines.write(SMOKE_START_LINE.format(steps=settings.run.smoke))
        # 2. The teacher, and the wrapped models that `train` is called with. If a teacher is trained, which may take
        # long, the notes are printed before.
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
        # 3. The optimizer. Then the state of a resumed run is loaded into modules and optimizer.
        self.optimizer = self.make_optimizer([*self.student.parameters(), *self.features.parameters])
        self.checkpoints = self._checkpoints()
        self._optimizer_description = describe_optimizer(self.optimizer, self.checkpoints.modules)
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
        if not settings.trains_teacher:  # print the notes after all checks, so that a refused run does not print them
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
        """Connect to the other ranks and set `ranks`. On other ranks than 0, replace `lines` by a silent writer."""
        place = self.place
        self.enter_context(cpu_threads(self.settings.run.threads, self.environment))
        ranks = connect_ranks(place, self.environment, timeout_s=self.settings.run.rank_timeout)
        self.ranks = self.enter_context(ranks)
        self.lines = self.lines if place.rank == 0 else SilentLines()

    def make_inputs(self) -> None:
        """Make device, batches and student, and read precomputed teacher outputs if the settings name them."""
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
        """Raise `DataError` if no row has a token to predict: no step would change a weight."""
        rows = getattr(self.batches, "sequences", None)
        if rows is None:  # batches of another type may have different data in every epoch
            return
        order = torch.arange(len(rows), device="cpu")
        if not any(is_scored(rows.batch(order, position)) for position in range(1, rows.batches + 1)):
            raise DataError(
                f"none of the {len(rows)} rows to train on has a token to predict: in every row, all labels after the "
                f"first are masked; check the masks of the data, or use a larger --length"
            )

    def check_metric(self, metric: str, used_by: str = "best_metric") -> None:
        """Raise `SettingError` if evaluations do not measure the metric, unless a subclass overrides `evaluate`."""
        if "evaluate" not in self.replaced:
            settings = self.settings
            aligned = settings.teacher.cross_tokenizer and settings.student.model is not None
            all_logits, depth = self._top_k is None, settings.evaluation.accept_depth
            check_metric(metric, depth, all_logits=all_logits, aligned=aligned, used_by=used_by)

    def read_outputs(self, saved: SavedOutputs) -> None:
        """Use these precomputed outputs instead of a teacher. Raise as `check_outputs` and `check_metric`."""
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

        Raise `SettingError` if the batches have no attribute `sequences` with the rows, as `ShuffledBatches` has.
        """
        sequences = getattr(self.batches, "sequences", None)
        if sequences is None:
            raise SettingError(
                f"{type(self.batches).__name__} has no `sequences`, so teacher outputs cannot be stored by row; return "
                f"ShuffledBatches from make_batches"
            )
        held_back = getattr(self, "held_back", None)
        return [sequences] if held_back is None else [sequences, held_back]

    def load_teacher(self) -> None:
        """Set `teacher`, and its digest except in a smoke run. With precomputed outputs, set an empty module only."""
        if self.outputs is not None:
            self.teacher = nn.Module()
            return
        self.teacher = self.make_teacher()
        if self.settings.run.smoke is None:  # a smoke run writes no file that contains the digest
            self.digests["teacher_sha256"] = self.ranks.run_on_all(self.teacher_digest)
        if self.is_sharded:
            self.teacher = shard(self.teacher.requires_grad_(False), self.device, self.settings.run.dtype)
        elif self.settings.teacher.device_map is None:
            self.teacher = self.teacher.to(self.device)

    @property
    def _top_k(self) -> int | None:
        """Return the number of tokens per position that have a logit of the teacher; None if all tokens have one."""
        if self.settings.teacher.url is not None:
            return self.settings.teacher.top_k
        return None if self.outputs is None else self.outputs.manifest.top_k

    def with_one_vocabulary(self, learner: EvaluatedStudent) -> tuple[Frozen, EvaluatedStudent]:
        """Return the wrapped teacher and the wrapped student; with `share_vocabulary`, of the same vocabulary size.

        learner: the wrapped student, before its vocabulary changes.
        """
        mode = self.settings.teacher.share_vocabulary
        if self.outputs is not None:
            teacher: Teacher | TopKTeacher = stored_teacher(self.outputs)
        elif self.served is not None:
            teacher = self.served
        else:
            size = self.vocab_size if mode is None and self.pairs is None else self.teacher_vocab_size()
            module = computing_in(self.settings.run.dtype, self.teacher)
            teacher = ModuleTeacher(module, size, note=self.lines.write)
            if self.pairs is not None:
                return AlignedTeacher(teacher, self.pairs), learner
            if mode is not None:
                self.check_tokens()
        return (teacher, learner) if mode is None else share_vocabulary(teacher, learner, mode)

    def run(self) -> TrainResult:
        """Train the student. Raise as `loop.train`."""
        settings = self.settings
        # A smoke run compares the loss of one batch before and after the training.
        if settings.run.smoke is not None:
            with evaluation_mode([self.student, self.teacher], self.device):
                self._first_batch = self.batches.batch(1, 1)  # batches of a subclass may run the student
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
        """Evaluate and write the student. After a smoke run, instead check whether a full run looks healthy."""
        # Writing the weights and checking the gradient need the full weights, not shards.
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
        self.outermost.enter_context(note_interrupts(self.directory))  # active until all other contexts are closed
        fields = {"unit": self.unit, "optimizer": self._optimizer_description, **self.digests}
        teacher = self.digests["teacher_sha256"]
        fields["evaluation"] = eval_config(self, whole=False, teacher=teacher, top_k=self._top_k).in_json()
        content = manifest(self.settings, self.device, result, held_back, **fields)
        if self.checkpoints.initial is not None:
            content["initial_weights"] = self.checkpoints.initial
        with self._resumable(interrupts=False):  # `note_interrupts` handles interrupts while the model is written
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
        """If the last step is saved, add a note to errors, and convert an interrupt into a `StopRequestedError`.

        Args:
            interrupts: Whether to convert interrupts.
        """
        try:
            yield
        except KeyboardInterrupt as interrupt:
            if not (self._is_saved and interrupts):
                raise
            raise StopRequestedError("interrupted after the training") from interrupt
        except Exception as error:
            if self._is_saved:
                error.add_note(RESUME_HINT)
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
        """Return the result of `evaluate`. Raise, on all ranks, if it is invalid or differs between ranks."""
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
        """Return the wrapped teacher and student with which `loop.train` is called."""
        wrap = partial(computing_in, self.settings.run.dtype)
        if self.place.world_size == 1:
            self._trained = wrap(self.student)
        else:
            strategy, dtype = self.settings.run.strategy, self.settings.run.dtype
            self._trained = wrap_student(self.student, strategy, self.device, wrap, dtype)
        return self.with_one_vocabulary(ModuleStudent(self._trained, self.vocab_size, note=self.lines.write))

    def _step_flops(self) -> int | None:
        """Return the floating-point operations of a step on all ranks together.

        Print a line and return None if they cannot be counted.
        """
        if self.is_sharded:
            self.lines.write("metrics: without flops_per_s, because shards of the teacher cannot be counted")
            return None
        if self.pairs is not None:
            self.lines.write("metrics: without flops_per_s, because the teacher runs on other tokens than the student")
            return None
        tokens = self.batches.batch(1, 1).tokens
        student = self.student if self._strategy != "fsdp2" else self.make_student()  # shards cannot be counted
        flops, notes = counted_flops(self._running_teacher(), student, tokens)
        self._write(notes)
        return self.place.world_size * min(self.settings.optimizer.accumulate, self.batches.batches) * flops

    def _running_teacher(self) -> nn.Module | None:
        """Return the teacher if it runs and the loss of any step needs it, else None."""
        last = self.schedule.planned_steps
        is_run = self.outputs is None and self.served is None and objective(self.settings).needs_teacher(1, last, last)
        return self.teacher if is_run else None

    def _reporting_divergence(self) -> AbstractContextManager[None]:
        return smoke.reporting_divergence(self.lines, smoke=self.settings.run.smoke is not None)
