"""What a distillation is made of, each part as the settings name it; a subclass replaces its own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from reference_trainer import interrupts
from reference_trainer.callbacks.base import Callback, checked
from reference_trainer.callbacks.from_file import load_callbacks
from reference_trainer.callbacks.lines import BarCallback, Lines
from reference_trainer.callbacks.progress import ProgressCallback
from reference_trainer.callbacks.watchdog import WatchdogCallback
from reference_trainer.config.place import read_place
from reference_trainer.config.settings import Settings
from reference_trainer.data.documents import document_rows
from reference_trainer.data.epochs import Batches, ShuffledBatches
from reference_trainer.data.text import VOCABULARY, Rows, Sequences, read_text, share_of
from reference_trainer.distillation.matching import FeatureMatching
from reference_trainer.distillation.step import MetricSum
from reference_trainer.errors import DataError, ModelFileError, SettingError
from reference_trainer.models.decoder import Decoder, DecoderConfig, new_decoder
from reference_trainer.models.placement import computing_in, stored_in
from reference_trainer.pipeline.loss import objective
from reference_trainer.pipeline.ranks import Ranks
from reference_trainer.pipeline.teachers import (
    LOGGED_EVERY,
    PACKAGED,
    heads_for,
    load_or_train,
    load_teacher,
    untrained_teacher,
)
from reference_trainer.plan.rates import learning_rate
from reference_trainer.plan.schedule import Schedule
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
from reference_trainer.training.update import new_optimizer, undecayed

__all__ = ["EVALUATED_BYTES", "Parts", "rows_of"]

PACKAGED_SHARE = 1 / 6  # of the packaged text: its teacher has seen all of it, and knows what this share does not say
EMPTY_LINE = "\n\n"  # separates documents by default
EVALUATED_BYTES = 2**16  # of the held-back part; more adds little precision and takes long for a large text


def rows_of(settings: Settings, bytes_N: Tensor, device: torch.device, *, first: int = 0) -> Rows:
    """Return a part of a text as the rows that the settings ask for: sequences, or documents, numbered from `first`."""
    shape: Any = {"length": settings.length, "batch_size": settings.batch_size, "device": device, "first": first}
    if settings.documents is None:
        return Sequences(bytes_N=bytes_N, **shape)
    return document_rows(bytes_N, settings.separator or EMPTY_LINE, pack=settings.documents == "pack", **shape)


class Parts(ExitStack):
    """Text, models, evaluation and export of one student; `Distillation` puts them together."""

    vocab_size = VOCABULARY
    _largest_byte = 0  # or other token of the data, where a model may have fewer

    ranks: Ranks
    device: torch.device
    batches: Batches
    held_back: Rows
    """What `evaluate` takes; set in `make_batches`, unless `evaluate` is replaced."""
    student: nn.Module
    teacher: nn.Module
    learner: Any
    frozen: Any
    parallel: Parallel
    schedule: Schedule
    features: FeatureMatching

    def __init__(
        self,
        settings: Settings,
        *,
        callbacks: Iterable[Callback] = (),
        lines: Lines | None = None,
        clock: Callable[[], float] = time.monotonic,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.settings, self.lines, self.clock = settings, lines or Lines(), clock
        self.place, self._environment = read_place(environment), environment
        self.callbacks = (*load_callbacks(settings.callbacks), *checked(callbacks))
        self.digests: dict[str, str] = {}
        super().__init__()
        self._outermost = self.enter_context(ExitStack())

    @property
    def unit(self) -> str:
        """Return what a token of the data is: "byte" of a text, or "token" of batches of a subclass."""
        return "byte" if type(self).make_batches is Parts.make_batches else "token"

    def make_batches(self) -> Batches:
        """Return the batches to train on, and keep the text for teacher and evaluation."""
        text = read_text(self.settings.data, self.settings.length)
        evaluated = text.held_back[: max(EVALUATED_BYTES, self.settings.length)]
        share = self.settings.data_share or (PACKAGED_SHARE if self.settings.data is None else 1.0)
        chosen = share_of(text, share, self.settings.length)
        self._training, trained_on = (rows_of(self.settings, part, self.device) for part in (text.training, chosen))
        self.held_back = rows_of(self.settings, evaluated, self.device, first=len(trained_on))
        self.digests["data_sha256"] = text.digest
        if self.settings.share_vocabulary is not None:
            self._largest_byte = max(int(part.max()) for part in (text.training, evaluated))
        place = {"rank": self.place.rank, "world_size": self.place.world_size}
        return ShuffledBatches(sequences=trained_on, seed=self.settings.seed, **place)

    def make_held_back(self, *, whole: bool) -> None:
        """Make what saved models are evaluated on: the rows that are held back, or those of the `whole` data.

        Own batches may have none; then `evaluate` takes its own.
        """
        kind, settings = type(self), self.settings
        if kind.make_batches is not Parts.make_batches:
            if whole:
                raise SettingError(f"--whole: {kind.__name__} has batches of its own; override make_held_back too")
            self.batches = self.make_batches()
            return
        text = read_text(settings.data, 1 if whole else settings.length)
        part = torch.cat([text.training, text.held_back]) if whole else text.held_back
        part = part if whole else part[: max(EVALUATED_BYTES, settings.length)]
        if len(part) < settings.length:
            raise DataError(f"{text.name} holds {len(part)} bytes; expected at least {settings.length}, the length")
        self.digests["data_sha256"], self._largest_byte = text.digest, int(part.max())
        self.held_back = rows_of(settings, part, self.device)

    @property
    def has_own_teacher(self) -> bool:
        """Return whether a subclass makes its teacher, so that the command `evaluate` does not load one."""
        return type(self).make_teacher is not Parts.make_teacher

    def evaluated_part(self, *, whole: bool) -> str:
        """Return which part of the data evaluations take; it is part of their identity."""
        return "whole" if whole else "held back"

    def make_student(self) -> nn.Module:
        """Return the untrained student, which maps tokens [B, T] to logits [B, T, V]."""
        settings, heads = self.settings, heads_for(self.settings.width)
        config = DecoderConfig(vocab_size=self.vocab_size, layers=settings.layers, width=settings.width, heads=heads)
        return stored_in(settings.dtype, new_decoder(config, settings.seed))

    def make_teacher(self) -> nn.Module:
        """Return the teacher that the settings name, one that is trained on the same text, or the packaged one."""
        settings, lines = self.settings, self.lines
        if not settings.trains_teacher:
            any_vocabulary = settings.share_vocabulary is not None
            teacher = load_teacher(settings.teacher or PACKAGED, any_vocabulary=any_vocabulary)
        else:
            progress = ProgressCallback(LOGGED_EVERY, lines=lines, title="teacher")
            callbacks = [*self._watchdog("teacher"), progress, BarCallback(lines, "teacher")]
            wrap = partial(computing_in, settings.dtype)
            digest = self.digests["data_sha256"]
            arguments = (settings, self._training, digest, callbacks, lines.write, wrap)
            like = partial(untrained_teacher, settings, self.device)
            teacher = self.ranks.broadcast_module(partial(load_or_train, *arguments), like)
        return stored_in(settings.dtype, teacher)

    def teacher_digest(self) -> str:
        """Return the SHA-256 of the teacher: of the files that the settings name, else of its weights in memory.

        It tells a resumed run whether the teacher is the same. Parts with a large teacher of their own override it.
        """
        directory = self.settings.teacher
        if directory is None or type(self).make_teacher is not Parts.make_teacher:
            return weights_digest(self.teacher)
        return str(self.ranks.on_each_machine(lambda: files_digest(weight_files(directory))))

    def make_optimizer(self, parameters: Sequence[nn.Parameter]) -> Optimizer:
        """Return the optimizer of these parameters: of the student, and of projections of hidden states.

        By default norms, biases and embeddings do not decay.
        """
        kept = undecayed(self.student, *self.features.projections)
        masters = self.settings.weights == "bfloat16"
        return new_optimizer(parameters, self.settings.lr, undecayed=kept, masters=masters)

    def learning_rate(self, step: int) -> float:
        """Return the rate of a step, from 1, which every parameter group has."""
        settings, total = self.settings, self.schedule.planned_steps  # a limit does not shorten the schedule
        shape: Any = {"shape": settings.schedule, "end": settings.lr_end, "decay": settings.lr_decay}
        return learning_rate(step, peak=settings.lr, warmup=settings.warmup, total=total, **shape)

    def _watchdog(self, title: str) -> list[Callback]:
        """Return the watchdog of a training, unless the settings want none. It ends with this distillation."""
        if not self.settings.hang_after:
            return []
        watchdog = WatchdogCallback(self.settings.hang_after, title=title)
        self.callback(watchdog.close)
        return [watchdog]

    def check_parts(self) -> None:
        """Raise `SettingError` for own parts with which optimizer, default teacher, evaluation or export would fail."""
        kind, settings = type(self), self.settings
        if not any(parameter.requires_grad for parameter in self.student.parameters()):
            name = type(self.student).__name__
            raise SettingError(f"{kind.__name__} has a student, {name}, of which no parameter requires a gradient")
        without_text, full_run = not hasattr(self, "held_back"), settings.smoke is None
        untaught = settings.teacher is None and settings.teacher_outputs is None
        if kind.make_teacher is Parts.make_teacher and without_text and untaught:
            raise SettingError(f"{kind.__name__} has batches of its own: override make_teacher too, or give a teacher")
        if kind.evaluate is Parts.evaluate and without_text and (full_run or settings.eval_every):
            raise SettingError(f"{kind.__name__} has batches of its own: override evaluate too, or set held_back")
        if kind.save is Parts.save and not isinstance(self.student, Decoder) and full_run:
            name = type(self.student).__name__
            raise SettingError(f"{kind.__name__} has a student of its own, {name}, and no save: override save too")

    def check_tokens(self) -> None:
        """Raise `SettingError` if the text has a byte that the teacher has no token for."""
        largest, tokens = self._largest_byte, self.teacher_vocab_size()
        if largest >= tokens:
            raise SettingError(
                f"the text has byte {largest}, and the teacher has {tokens} tokens: expected a teacher with more than "
                f"{largest} tokens, or a text with bytes below {tokens}"
            )

    def teacher_vocab_size(self) -> int:
        """Return the number of tokens that the teacher has logits for; used only with a `share_vocabulary`."""
        return cast(Decoder, self.teacher).config.vocab_size

    def evaluate(self) -> dict[str, MetricSum]:
        """Return sums of the student on held-back text, by name, over all ranks.

        Temperature and weights are those of the last planned step, so that evaluations of a run can be compared.
        """
        steps = self.schedule.planned_steps
        weights = objective(self.settings).weights(steps, steps)
        more: Any = {"parallel": self.parallel, "accept_depth": self.settings.accept_depth}
        return evaluate(self.frozen, self.learner, self.held_back, weights, **more)

    def save(self, directory: Path, manifest: dict[str, Any]) -> None:
        """Write the trained student and the manifest."""
        save_decoder(cast(Decoder, self.student), directory, manifest)

    def load(self, directory: Path) -> Mapping[str, Tensor]:
        """Return the weights of a model that `save` wrote, by their names in the `state_dict` of the student.

        `--init-from` begins with them; all ranks call it. The command `evaluate` loads them into what `make_student`
        returns. Raise `ModelFileError` for what cannot be read.
        """
        kind = type(self)
        if kind.save is not Parts.save:
            reason = f"{kind.__name__} has a save of its own and no load"
            raise ModelFileError(f"cannot load {directory}: {reason}; override load too, or give a checkpoint")
        return decoder_weights(directory)

    def saved_model(self, directory: Path) -> nn.Module:
        """Return a model that `save` wrote, on the CPU, verified: of own parts one of the shapes of their student."""
        kind = type(self)
        if kind.load is Parts.load and kind.save is Parts.save:
            verify_manifest(directory)
            return load_decoder(directory)
        weights, student = read_model(directory, self.load), self.make_student()
        weights.load_into("student", student)
        return student

    def saved_digest(self, path: Path, module: nn.Module) -> str:
        """Return the SHA-256 of a saved model: as `teacher_digest`, of its files, else of its weights in memory."""
        if isinstance(module, Decoder) and (path / WEIGHTS).is_file():
            return files_digest(weight_files(path))
        return weights_digest(module)

    @property
    def largest_token(self) -> int:
        """Return the largest token of the data that saved models are evaluated on; 0 if it is not known."""
        return self._largest_byte

    @contextmanager
    def stop_requests(self) -> Iterator[Callable[[], bool]]:
        """Yield a function that returns whether the run has to save and leave, which is asked after each step.

        It notes the interrupts of a command, if the run has checkpoints; otherwise they raise.
        """
        if not self.schedule.save_every:
            yield lambda: False
            return
        with interrupts.record_interrupts() as requested:
            yield requested
