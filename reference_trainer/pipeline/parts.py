"""The six parts of a run as protocols, their packaged implementations, and `Run`, which holds the parts.

    protocol    provides                                            in this module      in huggingface.parts
    data        batches to train on, rows that are held back        TextData            ChatData
    student     the module that is trained                          DecoderStudent      CausalStudent
    teacher     the frozen module                                   TextTeacher         CausalTeacher
    optimizer   the optimizer, and the learning rate of a step      ScheduledOptimizer
    evaluation  sums on held-back rows                              HeldBackEvaluation
    export      files of a trained student, written and read        DecoderExport       CausalExport

A part keeps a reference to its run, because parts share settings, device, ranks and digests. A subclass of `Run` may
override single methods of its parts; `Run.replaced` has the names of the overridden methods.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TypedDict, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from reference_trainer import interrupts
from reference_trainer.callbacks.base import Callback, as_callbacks
from reference_trainer.callbacks.from_file import load_callbacks
from reference_trainer.callbacks.loggers import loggers_of
from reference_trainer.callbacks.progress import BarCallback, Lines, ProgressCallback
from reference_trainer.callbacks.watchdog import WatchdogCallback
from reference_trainer.config.kinds import import_object
from reference_trainer.config.place import read_place
from reference_trainer.config.settings import Settings
from reference_trainer.data.documents import PACKING, DocumentRows, document_rows
from reference_trainer.data.text import (
    VOCABULARY,
    Batches,
    EpochOrder,
    Rows,
    Sequences,
    ShuffledBatches,
    read_text,
    share_of,
)
from reference_trainer.distillation.features import FeatureMatching
from reference_trainer.distillation.protocols import EvaluatedStudent, TopKTeacher
from reference_trainer.distillation.step import MetricSum
from reference_trainer.distillation.universal import Frozen, Paired
from reference_trainer.errors import DataError, ModelFileError, SettingError
from reference_trainer.models.decoder import Decoder, DecoderConfig, new_decoder
from reference_trainer.models.loading import NamedTensors
from reference_trainer.models.placement import computing_in, stored_in
from reference_trainer.pipeline.loss import objective
from reference_trainer.pipeline.teachers import (
    LOGGED_EVERY,
    PACKAGED,
    heads_for,
    load_or_train,
    load_teacher,
    untrained_teacher,
)
from reference_trainer.plan.rates import learning_rate, warmup_steps
from reference_trainer.plan.schedule import Schedule
from reference_trainer.ranks.coordination import Ranks
from reference_trainer.ranks.parallel import Parallel
from reference_trainer.storage.export import (
    WEIGHTS,
    files_digest,
    load_decoder,
    save_decoder,
    verify_manifest,
    weight_files,
    weights_digest,
)
from reference_trainer.storage.whole_weights import decoder_weights, read_model
from reference_trainer.training.evaluation import evaluate
from reference_trainer.training.update import layer_scales, new_optimizer, undecayed

Entered = TypeVar("Entered")

PACKAGED_SHARE = 1 / 6
"""Default share of the first nine tenths of the packaged text that the student is trained on.

The packaged teacher was trained on all nine tenths."""
EMPTY_LINE = "\n\n"
"""The default separator of documents."""
EVALUATED_BYTES = 2**16
"""Largest number of held-back bytes to evaluate, or `length` if that is larger.

More bytes add little precision and much time."""


class Data(Protocol):
    """The rows of a run.

    Attributes:
        unit: The unit of the data, "byte" or "token".
        largest_token: The largest token of the rows that saved models are evaluated on, or of all rows of a text with
            `share_vocabulary`; 0 if unknown.
    """

    unit: str
    largest_token: int

    def make_batches(self) -> Batches:
        """Return the batches to train on; set `held_back` and the digests of the data of the run."""
        ...

    def make_held_back(self, *, whole: bool) -> None:
        """Set `held_back` of the run to the rows that saved models are evaluated on; with `whole`, to all rows."""
        ...

    def evaluated_part(self, *, whole: bool) -> str:
        """Return the name of the evaluated part of the data, a key of stored evaluations."""
        ...


class StudentSource(Protocol):
    """The source of the module that is trained."""

    def make(self) -> nn.Module:
        """Return the student, which maps tokens [B, T] to logits [B, T, V]."""
        ...


class TeacherSource(Protocol):
    """The source of the frozen module."""

    def make(self) -> nn.Module:
        """Return the teacher, which maps tokens [B, T] to logits [B, T, V]."""
        ...

    def digest_of_files(self) -> str | None:
        """Return the SHA-256 of the teacher's files that the settings name; None without such files."""
        ...

    def vocab_size(self) -> int:
        """Return the number of tokens that the teacher has logits for."""
        ...


class OptimizerSource(Protocol):
    """The source of the optimizer, and the learning rate of each step."""

    def make(self, parameters: Sequence[nn.Parameter]) -> Optimizer:
        """Return the optimizer of the parameters of the student and of the projections of hidden states."""
        ...

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of a step, from 1; the loop multiplies it by `lr_scale` of each parameter group."""
        ...


class Evaluation(Protocol):
    """The measurement of a student."""

    def evaluate(self) -> dict[str, MetricSum]:
        """Return sums of the student, by name, over all ranks."""
        ...


class Export(Protocol):
    """The files of a trained student.

    Attributes:
        has_own_format: Whether only `load` can read the files. Then `load` may also accept ids that are not paths.
    """

    has_own_format: bool

    def check_student(self) -> None:
        """Raise `SettingError` for a student that `save` cannot write."""
        ...

    def save(self, directory: Path, manifest: dict[str, object]) -> None:
        """Write the trained student and the manifest."""
        ...

    def load(self, directory: Path) -> NamedTensors:
        """Return the weights of a model that `save` wrote, by their names in the `state_dict` of the student."""
        ...

    def saved_model(self, directory: Path) -> nn.Module:
        """Return a model that `save` wrote, on the CPU, verified."""
        ...

    def saved_digest(self, path: Path, module: nn.Module) -> str:
        """Return the SHA-256 of a saved model: of its files if their format is known, else of its weights."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The parts of a run."""

    data: Data
    student: StudentSource
    teacher: TeacherSource
    optimizer: OptimizerSource
    evaluation: Evaluation
    export: Export


class RunOptions(TypedDict, total=False):
    """The arguments of `Run` other than settings and recipe."""

    callbacks: Iterable[Callback]
    lines: Lines | None
    clock: Callable[[], float]
    environment: Mapping[str, str]


class Run:
    """The state and the parts of a run; `Distillation` adds the training.

    The methods from `make_batches` to `saved_digest` delegate to the parts. A subclass may override single methods:
    parts call these methods of the run, never methods of each other.

    Attributes:
        settings: The settings.
        lines: The writer of all lines.
        clock: Returns a time in seconds.
        place: The rank of this process, and the number of ranks.
        callbacks: The callbacks.
        digests: SHA-256 digests for the manifest, by name.
        contexts: The contexts that are closed at the end of the run.
        outermost: The context in `contexts` that is closed last.
        recipe: The parts.
        held_back: The rows that `evaluate` uses, set by `make_batches` or `make_held_back`.
        learner: The wrapped student, which the step and `evaluate` call. Set by `Distillation.prepare`, as are ranks,
            device, batches, student, teacher, parallel, schedule and features.
        frozen: The wrapped teacher, which the step and `evaluate` call. Set by `Distillation.prepare`.

    Args:
        settings: The settings of the run.
        recipe: Returns the parts of the run; by default `packaged_recipe`.
        callbacks: Called after the packaged callbacks, except those that write the metrics file and the trace.
        lines: The writer of all lines; by default to standard output.
        clock: Returns a time in seconds that never decreases.
        environment: The environment variables by which a launcher gives this process its rank.
    """

    vocab_size = VOCABULARY
    served: TopKTeacher | None = None
    """The teacher behind a server; set by the part `teacher`, which then makes an empty module."""
    pairs: Sequence[Paired] | None = None
    """The documents in the tokens of a teacher with another tokenizer, by example number; set by the part `data`."""
    replaced: frozenset[str] = frozenset()
    """Names of the methods of parts that the class overrides."""

    ranks: Ranks
    device: torch.device
    batches: Batches
    held_back: Rows
    student: nn.Module
    teacher: nn.Module
    learner: EvaluatedStudent
    frozen: Frozen
    parallel: Parallel
    schedule: Schedule
    features: FeatureMatching

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        cls.replaced = frozenset(name for name in REPLACEABLE if getattr(cls, name) is not getattr(Run, name))

    def __init__(
        self,
        settings: Settings,
        *,
        recipe: Callable[[Self], Recipe] | None = None,
        callbacks: Iterable[Callback] = (),
        lines: Lines | None = None,
        clock: Callable[[], float] = time.monotonic,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.settings = settings
        self.lines = lines or Lines()
        self.clock = clock
        self.environment = environment
        self.place = read_place(environment)
        self.callbacks: tuple[Callback, ...] = (
            *loggers_of(settings),
            *load_callbacks(settings.run.callbacks),
            *as_callbacks(callbacks),
        )
        self.digests: dict[str, str] = {}
        self.contexts = ExitStack()
        self.outermost = self.contexts.enter_context(ExitStack())  # entered first, so it is closed last
        # The recipe is created last, because parts may read all attributes above.
        self.recipe = self.make_recipe() if recipe is None else recipe(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.contexts.__exit__(error_type, error, traceback)

    def enter_context(self, context: AbstractContextManager[Entered]) -> Entered:
        """Enter a context that is exited at the end of the run; return its value."""
        return self.contexts.enter_context(context)

    def make_recipe(self) -> Recipe:
        """Return the parts of a run that was created without a `recipe`."""
        return packaged_recipe(self)

    @property
    def unit(self) -> str:
        """Return the unit of the data: "byte" for a text, "token" for other data and batches of a subclass."""
        return "token" if "make_batches" in self.replaced else self.recipe.data.unit

    def make_batches(self) -> Batches:
        """Return the batches to train on, and set `held_back`."""
        return self.recipe.data.make_batches()

    def make_held_back(self, *, whole: bool) -> None:
        """Set `held_back` to the rows that saved models are evaluated on; with `whole`, to all rows."""
        self.recipe.data.make_held_back(whole=whole)

    def evaluated_part(self, *, whole: bool) -> str:
        """Return the name of the evaluated part of the data, a key of stored evaluations."""
        return self.recipe.data.evaluated_part(whole=whole)

    @property
    def is_sharded(self) -> bool:
        """Return whether the teacher is sharded. Then every rank must run the teacher the same number of times."""
        teacher = self.settings.teacher
        return teacher.shard and self.place.world_size > 1 and teacher.outputs is None and teacher.url is None

    @property
    def is_student_sharded(self) -> bool:
        """Return whether the student is sharded: every rank then stores a part of its weights."""
        return self.settings.run.strategy == "fsdp2" and self.place.world_size > 1

    def make_student(self) -> nn.Module:
        """Return the untrained student, which maps tokens [B, T] to logits [B, T, V]."""
        return self.recipe.student.make()

    def make_teacher(self) -> nn.Module:
        """Return the teacher, which maps tokens [B, T] to logits [B, T, V]."""
        return self.recipe.teacher.make()

    def teacher_digest(self) -> str:
        """Return the SHA-256 of the teacher: of the files that the settings name, else of its weights in memory.

        A resumed run is refused if the digest has changed. Override this method for a large teacher without files.
        """
        return self.recipe.teacher.digest_of_files() or weights_digest(self.teacher)

    def teacher_vocab_size(self) -> int:
        """Return the number of tokens that the teacher has logits for.

        Called only if this number may differ from the student's.
        """
        return self.recipe.teacher.vocab_size()

    def make_optimizer(self, parameters: Sequence[nn.Parameter]) -> Optimizer:
        """Return the optimizer of the parameters of the student and of the projections of hidden states.

        By default norms, biases and embeddings have no weight decay.
        """
        return self.recipe.optimizer.make(parameters)

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of a step, from 1; the loop multiplies it by `lr_scale` of each parameter group."""
        return self.recipe.optimizer.learning_rate(step)

    def evaluate(self) -> dict[str, MetricSum]:
        """Return sums of the student on held-back rows, by name, over all ranks."""
        return self.recipe.evaluation.evaluate()

    def save(self, directory: Path, manifest: dict[str, object]) -> None:
        """Write the trained student and the manifest."""
        self.recipe.export.save(directory, manifest)

    def load(self, directory: Path) -> NamedTensors:
        """Return the weights of a model that `save` wrote, by their names in the `state_dict` of the student.

        `--init-from` starts from these weights; all ranks call this method. The command `evaluate` loads the weights
        into the result of `make_student`. Raise `ModelFileError` if the model cannot be read.
        """
        return self.recipe.export.load(directory)

    def saved_model(self, directory: Path) -> nn.Module:
        """Return a model that `save` wrote, on the CPU, verified."""
        return self.recipe.export.saved_model(directory)

    def saved_digest(self, path: Path, module: nn.Module) -> str:
        """Return the SHA-256 of a saved model: of its files if their format is known, else of its weights."""
        return self.recipe.export.saved_digest(path, module)

    @contextmanager
    def stop_requests(self) -> Iterator[Callable[[], bool]]:
        """Yield a function, called once per step, that returns whether the run must save a checkpoint and stop.

        If the run saves checkpoints, the function returns True after an interrupt. Else the function returns False, and
        an interrupt raises `KeyboardInterrupt`.
        """
        if not self.schedule.save_every:
            yield lambda: False
            return
        with interrupts.record_interrupts() as requested:
            yield requested

    def watchdog(self, title: str) -> list[Callback]:
        """Return a list with the watchdog of a training; empty if `hang_after` is 0. The run closes the watchdog."""
        if not self.settings.run.hang_after:
            return []
        watchdog = WatchdogCallback(self.settings.run.hang_after, title=title)
        self.contexts.callback(watchdog.close)
        return [watchdog]

    def check_parts(self) -> None:
        """Raise `SettingError` if optimizer, teacher, evaluation or export would fail later with these parts."""
        # A packaged part that a subclass does not override may need attributes that only other packaged parts set.
        name = type(self).__name__
        settings = self.settings
        if not any(parameter.requires_grad for parameter in self.student.parameters()):
            student = type(self.student).__name__
            raise SettingError(f"the student of {name}, a {student}, has no parameter that requires a gradient")
        is_full_run = settings.run.smoke is None
        if not hasattr(self, "held_back"):  # `make_batches` of a subclass has not set the attribute
            has_no_teacher = settings.teacher.model is None and settings.teacher.outputs is None
            if "make_teacher" not in self.replaced and has_no_teacher:
                raise SettingError(f"{name} has batches of its own: override make_teacher too, or give a teacher")
            if "evaluate" not in self.replaced and (is_full_run or settings.evaluation.every):
                raise SettingError(f"{name} has batches of its own: override evaluate too, or set held_back")
        if "save" not in self.replaced and is_full_run:
            self.recipe.export.check_student()

    def check_tokens(self) -> None:
        """Raise `SettingError` if the teacher has no logit for some byte of the text."""
        largest = self.recipe.data.largest_token
        tokens = self.teacher_vocab_size()
        if largest >= tokens:
            raise SettingError(
                f"the text has byte {largest}, and the teacher has {tokens} tokens: expected a teacher with more than "
                f"{largest} tokens, or a text with bytes below {tokens}"
            )


REPLACEABLE = (
    *("make_batches", "make_held_back", "evaluated_part", "make_student", "make_teacher", "teacher_digest"),
    *("teacher_vocab_size", "make_optimizer", "learning_rate", "evaluate", "save", "load"),
    *("saved_model", "saved_digest"),
)
"""The methods of parts that a subclass of `Run` may replace."""


def packaged_recipe(run: Run) -> Recipe:
    """Return the packaged parts: byte-level decoders on a text."""
    data = TextData(run)
    return Recipe(
        data=data,
        student=DecoderStudent(run),
        teacher=TextTeacher(run, data),
        optimizer=ScheduledOptimizer(run),
        evaluation=HeldBackEvaluation(run),
        export=DecoderExport(run),
    )


def text_rows(settings: Settings, bytes_N: Tensor, device: torch.device, *, first: int = 0) -> Rows:
    """Return a part of a text as rows, numbered from `first`: documents if `documents` is set, else sequences."""
    length, batch_size = settings.data.length, settings.data.batch_size
    if settings.data.documents is None:
        return Sequences(bytes_N=bytes_N, length=length, batch_size=batch_size, device=device, first=first)
    return document_rows(
        bytes_N,
        settings.data.separator or EMPTY_LINE,
        pack=settings.data.documents == "pack",
        length=length,
        batch_size=batch_size,
        device=device,
        first=first,
    )


def shuffled_batches(run: Run, rows: Rows, order: EpochOrder | None = None) -> ShuffledBatches:
    """Return the batches of this rank; with packed documents, also set `digests["packing"]` of the run.

    order: the order of the rows in an epoch; by default random, or by similar length with `group_by_length`.
    """
    settings = run.settings
    if isinstance(rows, DocumentRows):
        if settings.data.documents == "pack":
            run.digests["packing"] = PACKING
        elif settings.data.group_by_length and order is None:
            order = rows.length_groups()
    place = run.place
    return ShuffledBatches(
        sequences=rows, seed=settings.run.seed, rank=place.rank, world_size=place.world_size, order=order
    )


class TextData:
    """A text as bytes; the last tenth is held back.

    Attributes:
        training: The rows of the first nine tenths. A teacher is trained on all these rows, the student on a share.
    """

    unit = "byte"
    largest_token = 0
    training: Rows

    def __init__(self, run: Run) -> None:
        self.run = run

    def make_batches(self) -> Batches:
        run, settings = self.run, self.run.settings
        text = read_text(settings.data.path, settings.data.length)
        evaluated = text.held_back[: max(EVALUATED_BYTES, settings.data.length)]
        share = settings.data.share or (PACKAGED_SHARE if settings.data.path is None else 1.0)
        self.training = text_rows(settings, text.training, run.device)
        student_rows = text_rows(settings, share_of(text, share, settings.data.length), run.device)
        # Held-back rows are numbered after the student's rows, because teacher outputs are stored by row number.
        run.held_back = text_rows(settings, evaluated, run.device, first=len(student_rows))
        run.digests["data_sha256"] = text.digest
        if settings.teacher.share_vocabulary is not None:
            self.largest_token = max(int(part.max()) for part in (text.training, evaluated))
        return shuffled_batches(run, student_rows)

    def make_held_back(self, *, whole: bool) -> None:
        run, settings = self.run, self.run.settings
        if "make_batches" in run.replaced:  # the subclass sets `held_back` in `make_batches`, or overrides `evaluate`
            if whole:
                name = type(run).__name__
                raise SettingError(f"--whole: {name} has batches of its own; override make_held_back too")
            run.batches = run.make_batches()
            return
        if whole:  # the length is checked below for both parts together, so accept a short text here
            text = read_text(settings.data.path, 1)
            part = torch.cat([text.training, text.held_back])
        else:
            text = read_text(settings.data.path, settings.data.length)
            part = text.held_back[: max(EVALUATED_BYTES, settings.data.length)]
        if len(part) < settings.data.length:
            raise DataError(
                f"{text.name} holds {len(part)} bytes; expected at least {settings.data.length}, the length"
            )
        run.digests["data_sha256"] = text.digest
        self.largest_token = int(part.max())
        run.held_back = text_rows(settings, part, run.device)

    def evaluated_part(self, *, whole: bool) -> str:
        return "whole" if whole else "held back"


class DecoderStudent:
    """A new decoder with the layers and width of the settings; its weights are drawn with the seed."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def make(self) -> nn.Module:
        settings = self.run.settings
        config = DecoderConfig(
            vocab_size=self.run.vocab_size,
            layers=settings.student.layers,
            width=settings.student.width,
            heads=heads_for(settings.student.width),
        )
        return stored_in(settings.run.dtype, new_decoder(config, settings.run.seed))


class TextTeacher:
    """The decoder that the settings name, or a decoder that is trained on the same text, or the packaged decoder."""

    def __init__(self, run: Run, data: TextData) -> None:
        self.run, self._data = run, data

    def make(self) -> nn.Module:
        run, settings, lines = self.run, self.run.settings, self.run.lines
        if not settings.trains_teacher:
            any_vocabulary = settings.teacher.share_vocabulary is not None
            teacher = load_teacher(settings.teacher.model or PACKAGED, any_vocabulary=any_vocabulary)
        else:
            # Rank 0 trains the teacher alone; the other ranks receive the weights.
            progress = ProgressCallback(LOGGED_EVERY, lines=lines, title="teacher")
            make = partial(
                load_or_train,
                settings,
                self._data.training,
                run.digests["data_sha256"],
                [*run.watchdog("teacher"), progress, BarCallback(lines, "teacher")],
                lines.write,
                partial(computing_in, settings.run.dtype),
            )
            teacher = run.ranks.broadcast_module(make, like=partial(untrained_teacher, settings, run.device))
        return stored_in(settings.run.dtype, teacher)

    def digest_of_files(self) -> str | None:
        run, directory = self.run, self.run.settings.teacher.model
        if directory is None or "make_teacher" in run.replaced:
            return None
        return str(run.ranks.on_each_machine(lambda: files_digest(weight_files(directory))))

    def vocab_size(self) -> int:
        return cast(Decoder, self.run.teacher).config.vocab_size


OPTIMIZERS: Mapping[str, type[Optimizer]] = {"adamw": torch.optim.AdamW, "adafactor": torch.optim.Adafactor}


class ScheduledOptimizer:
    """The optimizer and learning rate of the settings. Norms, biases and embeddings have no weight decay."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def make(self, parameters: Sequence[nn.Parameter]) -> Optimizer:
        run, settings = self.run, self.run.settings
        layer_decay = settings.optimizer.layer_decay
        if settings.optimizer.name == "adafactor" and settings.run.strategy == "fsdp2" and run.place.world_size > 1:
            raise SettingError(
                "conflicting settings: 'optimizer' is adafactor and 'strategy' is fsdp2; use ddp, because the rows and "
                "columns of a shard are not the rows and columns of its weights"
            )
        return new_optimizer(
            parameters,
            settings.optimizer.lr,
            undecayed=undecayed(run.student, *run.features.projections),
            masters=settings.student.weights == "bfloat16",
            kind=OPTIMIZERS.get(settings.optimizer.name) or import_object("optimizer", settings.optimizer.name),
            options=json.loads(settings.optimizer.options or "{}"),
            scales={} if layer_decay == 1.0 else layer_scales(run.student, layer_decay),
        )

    def learning_rate(self, step: int) -> float:
        settings, planned = self.run.settings, self.run.schedule.planned_steps
        return learning_rate(
            step,
            peak=settings.optimizer.lr,
            warmup=warmup_steps(settings.schedule.warmup, planned),
            total=planned,  # the schedule spans the planned steps, also if `max_steps` ends the run earlier
            shape=settings.schedule.shape,
            end=settings.schedule.lr_end,
            decay=settings.schedule.lr_decay,
        )


class HeldBackEvaluation:
    """The losses and metrics of the student on the rows that are held back.

    Temperature and loss weights have the values of the last planned step, so that evaluations at different steps can
    be compared.
    """

    def __init__(self, run: Run) -> None:
        self.run = run

    def evaluate(self) -> dict[str, MetricSum]:
        run, steps = self.run, self.run.schedule.planned_steps
        return evaluate(
            run.frozen,
            run.learner,
            run.held_back,
            objective(run.settings).weights(steps, steps),
            parallel=run.parallel,
            accept_depth=run.settings.evaluation.accept_depth,
        )


class DecoderExport:
    """A decoder as `model.safetensors`, `config.json` and `manifest.json`."""

    has_own_format = False

    def __init__(self, run: Run) -> None:
        self.run = run

    def check_student(self) -> None:
        student = self.run.student
        if not isinstance(student, Decoder):
            run, name = type(self.run).__name__, type(student).__name__
            raise SettingError(f"{run} has a student of its own, {name}, and no save: override save too")

    def save(self, directory: Path, manifest: dict[str, object]) -> None:
        save_decoder(cast(Decoder, self.run.student), directory, manifest)

    def load(self, directory: Path) -> NamedTensors:
        if "save" in self.run.replaced:
            reason = f"{type(self.run).__name__} has a save of its own and no load"
            raise ModelFileError(f"cannot load {directory}: {reason}; override load too, or give a checkpoint")
        return decoder_weights(directory)

    def saved_model(self, directory: Path) -> nn.Module:
        run = self.run
        if not run.replaced & {"save", "load"}:
            verify_manifest(directory)
            return load_decoder(directory)
        # A subclass may use any file format, so load the weights into the subclass's own student.
        weights, student = read_model(directory, run.load), run.make_student()
        weights.load_into("student", student)
        return student

    def saved_digest(self, path: Path, module: nn.Module) -> str:
        if isinstance(module, Decoder) and (path / WEIGHTS).is_file():
            return files_digest(weight_files(path))
        return weights_digest(module)
