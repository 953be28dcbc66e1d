"""A distillation from settings to files: text, teacher, student, training, evaluation, export."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from reference_trainer.config.settings import Settings
from reference_trainer.data.text import VOCABULARY, Sequences, Text, epoch_order, read_text
from reference_trainer.distillation.gradcheck import relative_difference
from reference_trainer.distillation.providers import ModuleStudent, ModuleTeacher
from reference_trainer.distillation.step import MetricSum
from reference_trainer.errors import LogitsError, SettingError
from reference_trainer.models.decoder import Decoder, DecoderConfig, new_decoder
from reference_trainer.models.placement import computing_in, stored_in, usable_device
from reference_trainer.pipeline import smoke
from reference_trainer.pipeline.teachers import cached_or_trained, heads_for, load_teacher
from reference_trainer.storage.directories import exclusive_directory, reject_existing
from reference_trainer.storage.export import (
    exported_bytes,
    note_interrupts,
    save_decoder,
    versions,
    weights_digest,
)
from reference_trainer.storage.paths import path_in_json
from reference_trainer.training.callbacks import Callback, checked
from reference_trainer.training.evaluation import evaluate
from reference_trainer.training.formats import SMOKE_START_LINE
from reference_trainer.training.lines import BarCallback, Lines
from reference_trainer.training.loop import BETAS, EPSILON, WEIGHT_DECAY, Objective, TrainResult, new_optimizer, train
from reference_trainer.training.progress import ProgressCallback
from reference_trainer.training.schedule import Schedule, learning_rate
from reference_trainer.training.trace import TraceCallback

__all__ = ["EVALUATED_BYTES", "DistillResult", "distill"]

EVALUATED_BYTES = 2**16  # of the held-back part; more adds little precision and takes long for a large text


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillResult:
    """The result of a distillation.

    train: the result of the training loop. output: the directory of the model; None for a smoke run.
    held_back: sums in nats of "cross_entropy" and "kl" on held-back text; empty for a smoke run.
    checks: of a smoke run; else empty. student: the trained model. teacher: the frozen one.
    """

    train: TrainResult
    output: Path | None
    held_back: dict[str, MetricSum]
    checks: tuple[smoke.Check, ...]
    student: Decoder
    teacher: Decoder

    @property
    def go(self) -> bool:
        """Whether every check of a smoke run passed; True for other runs."""
        return all(check.passed for check in self.checks)


def distill(
    settings: Settings,
    *,
    callbacks: Iterable[Callback] = (),
    lines: Lines | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> DistillResult:
    """Train a student as configured; `callbacks` are called after the built-in `ProgressCallback`.

    The weights depend on settings, text and versions only; no generator of the process moves. Output goes to `lines`,
    by default standard output. `clock` times the training of the student, in seconds. Errors: `DataError`,
    `ModelFileError`, `OutputError` and `SettingError` before the training; then those of `loop.train`; `SmokeError`.
    A KeyboardInterrupt has the note `interrupts.WRITTEN` if the model was written.
    """
    lines = lines or Lines()
    callbacks = checked(callbacks)
    device = usable_device(settings.device)
    text = read_text(settings.data, settings.length)
    training, held_back = _training_and_held_back(settings, text, device)
    student = _new_student(settings).to(device)
    with ExitStack() as outermost, ExitStack() as stack:
        directory = stack.enter_context(_output_directory(settings, student))
        # The trace may be in the output directory, so it is created after the check that this is empty.
        traces = _trace_callbacks(settings, stack)
        if settings.smoke is not None:
            lines.write(SMOKE_START_LINE.format(steps=settings.smoke))
        try:
            teacher = _load_or_train_teacher(settings, training, text.digest, lines)
            run = _Distillation(settings, training, student, teacher, lines, clock)
            result = run.train((*callbacks, *traces))
        except LogitsError as error:
            if settings.smoke is not None:
                _report_divergence(error, lines)
            raise
        if directory is None:
            return DistillResult(
                train=result,
                output=None,
                held_back={},
                checks=run.smoke_checks(result),
                student=student,
                teacher=teacher,
            )
        metrics = evaluate(run.frozen, run.learning, held_back)
        outermost.enter_context(note_interrupts(directory))  # also while the other contexts are closed
        save_decoder(student, directory, _manifest(settings, text.digest, teacher, device, result, metrics))
        return DistillResult(
            train=result, output=directory, held_back=metrics, checks=(), student=student, teacher=teacher
        )


def _training_and_held_back(settings: Settings, text: Text, device: torch.device) -> tuple[Sequences, Sequences]:
    """Return the sequences to train on and those to evaluate on."""
    part = partial(Sequences, length=settings.length, batch_size=settings.batch_size, device=device)
    return part(bytes_N=text.training), part(bytes_N=text.held_back[:EVALUATED_BYTES])


class _Distillation:
    """The two models of a run, their training and the checks of a smoke run."""

    def __init__(
        self,
        settings: Settings,
        training: Sequences,
        student: Decoder,
        teacher: Decoder,
        lines: Lines,
        clock: Callable[[], float],
    ) -> None:
        self._settings, self._training, self._lines, self._clock = settings, training, lines, clock
        self._student = student
        self._objective = Objective(
            temperature=settings.temperature, ce_weight=settings.ce_weight, kd_weight=settings.kd_weight
        )
        self.learning = computing_in(settings.dtype, student)
        self.frozen = ModuleTeacher(computing_in(settings.dtype, teacher), VOCABULARY)

    def train(self, callbacks: Sequence[Callback]) -> TrainResult:
        settings, training = self._settings, self._training
        progress = ProgressCallback(settings.log_every, lines=self._lines)
        progress.attached()
        planned = settings.epochs * training.batches  # a limit does not shorten the schedule
        return train(
            self.frozen,
            ModuleStudent(self.learning, VOCABULARY),
            lambda epoch, position: training.batch(epoch_order(settings.seed, epoch, len(training)), position),
            new_optimizer(self._student.parameters(), settings.lr),
            schedule=Schedule(
                epochs=settings.epochs, steps_per_epoch=training.batches, limit=settings.smoke or settings.max_steps
            ),
            objective=self._objective,
            learning_rate=lambda step: learning_rate(step, peak=settings.lr, warmup=settings.warmup, total=planned),
            callbacks=(progress, BarCallback(self._lines, "student"), *callbacks),
            clock=self._clock,
        )

    def smoke_checks(self, result: TrainResult) -> tuple[smoke.Check, ...]:
        """Print the summary and the checks of a smoke run, and return the checks."""
        for line in smoke.summary(result, self._settings.project_to_steps):
            self._lines.write(line)
        checks = smoke.checks(result, self._gradient_difference(), self._training.device)
        for line in smoke.verdict(checks):
            self._lines.write(line)
        return checks

    def _gradient_difference(self) -> float:
        batch = self._training.batch(torch.arange(len(self._training)), 1)
        student_BTV = ModuleStudent(self.learning, VOCABULARY).forward(batch).logits
        aligned = (student_BTV[:, :-1], self.frozen.logits(batch)[:, :-1], batch.labels[:, 1:])
        return relative_difference(*aligned, **asdict(self._objective))


def _report_divergence(error: LogitsError, lines: Lines) -> None:
    """Print the result of a smoke run that ended because a model diverged."""
    for line in smoke.verdict([smoke.Check(False, f"losses are not finite: {error}")]):
        lines.write(line)


def _new_student(settings: Settings) -> Decoder:
    config = DecoderConfig(
        vocab_size=VOCABULARY, layers=settings.layers, width=settings.width, heads=heads_for(settings.width)
    )
    return stored_in(settings.dtype, new_decoder(config, settings.seed))


def _load_or_train_teacher(settings: Settings, training: Sequences, digest: str, lines: Lines) -> Decoder:
    if settings.teacher is not None:
        return stored_in(settings.dtype, load_teacher(settings.teacher)).to(training.device)
    callbacks = [ProgressCallback(100, lines=lines, title="teacher"), BarCallback(lines, "teacher")]
    teacher = cached_or_trained(
        settings, training, digest, callbacks, lines.write, lambda decoder: computing_in(settings.dtype, decoder)
    )
    return stored_in(settings.dtype, teacher)


def _trace_callbacks(settings: Settings, stack: ExitStack) -> list[TraceCallback]:
    if settings.trace is None:
        return []
    if settings.data is not None and settings.trace.exists() and settings.trace.samefile(settings.data):
        raise SettingError(f"invalid value '{settings.trace}' for 'trace': expected a file other than the text")
    trace = TraceCallback(settings.trace, force=settings.force)
    stack.callback(trace.close)
    return [trace]


@contextmanager
def _output_directory(settings: Settings, student: Decoder) -> Iterator[Path | None]:
    """Yield the exclusive output directory; None for a smoke run, which creates nothing."""
    if settings.smoke is not None:
        reject_existing(settings.out, force=settings.force)  # the full run would be rejected too
        yield None
        return
    with exclusive_directory(settings.out, force=settings.force, bytes_needed=exported_bytes(student)) as directory:
        yield directory


def _manifest(
    settings: Settings,
    digest: str,
    teacher: Decoder,
    device: torch.device,
    result: TrainResult,
    metrics: dict[str, MetricSum],
) -> dict[str, Any]:
    on = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return {
        "schema": "reference-trainer/manifest/1",
        "settings": {name: path_in_json(value) if isinstance(value, Path) else value for name, value in settings},
        "seed": settings.seed,
        "data_sha256": digest,
        "teacher_sha256": weights_digest(teacher),
        "optimizer": {"name": "AdamW", "weight_decay": WEIGHT_DECAY, "betas": BETAS, "eps": EPSILON},
        "versions": versions(),
        "device": on,
        "result": {
            **asdict(result),
            "throughput_steps_per_s": result.steps_per_s,
            "throughput_tokens_per_s": result.tokens / max(result.elapsed_s, 1e-9),
        },
        "held_back": {name: {"nats": total.sum, "tokens": total.count} for name, total in metrics.items()},
    }
