"""Manage the files of a run: output directory, initial weights, resumed checkpoint, metrics and trace."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from torch import nn

from reference_trainer.callbacks.base import Callback
from reference_trainer.callbacks.metrics_file import METRICS_FILE, MetricsCallback
from reference_trainer.callbacks.progress import SMOKE_OUTPUT_LINE, Lines
from reference_trainer.callbacks.trace import TraceCallback
from reference_trainer.config.kinds import path_in_json
from reference_trainer.config.settings import Settings
from reference_trainer.errors import CheckpointError, OutputError, SettingError
from reference_trainer.models.loading import is_skeleton
from reference_trainer.pipeline.checkpointing import (
    CHECKPOINTS,
    RUN_ID,
    Checkpoints,
    check_conditions,
    files_to_keep,
    fixed_settings,
    has_later,
    metrics_length,
    open_checkpoint,
    read_with_hint,
)
from reference_trainer.pipeline.parts import Run
from reference_trainer.plan.schedule import Schedule
from reference_trainer.ranks.coordination import Ranks
from reference_trainer.storage.checkpoints import Checkpoint, checkpoint_bytes, rank_file, read_checkpoint, saved_steps
from reference_trainer.storage.export import WEIGHTS, exported_bytes
from reference_trainer.storage.files import check_room, exclusive_directory, refuse_existing
from reference_trainer.storage.snapshot import expected_tensors
from reference_trainer.storage.whole_weights import SavedWeights, map_weights, read_model, read_weights
from reference_trainer.training.state import TrainState

CHECKPOINT_NAME = re.compile(rf"{RUN_ID}-step[0-9]+")


class InitialWeights:
    """The weights of the checkpoint or model that `init_from` names.

    Without `init_from`, there are none. A resumed run has none either, because its checkpoint has later weights. All
    ranks create an instance. Raise `CheckpointError` or `ModelFileError` on all ranks if the checkpoint or model is
    missing or damaged, and `RankError` if ranks read different ones.
    """

    def __init__(self, run: Run) -> None:
        settings, self._ranks = run.settings, run.ranks
        self._saved: SavedWeights | None = None
        if settings.student.init_from is not None and settings.checkpoints.resume is None:
            self._saved = self._ranks.run_on_all(partial(_read, settings.student.init_from, run))
            self._ranks.check_equal({"init_from": self._saved.manifest.sha256})

    @property
    def identity(self) -> dict[str, object] | None:
        """Return path, step and SHA-256 of the manifest, for the manifests of the run; None without initial weights."""
        if self._saved is None:
            return None
        manifest = self._saved.manifest
        return {"path": path_in_json(self._saved.path.resolve()), "step": manifest.step, "sha256": manifest.sha256}

    def load_into(self, name: str, module: nn.Module, lines: Lines) -> None:
        """Load the initial weights into a module, and write a line.

        Call this method before the module is wrapped for several ranks. Do nothing for a module without tensors. If no
        projections were saved, keep the new ones, and write another line. Raise as `SavedWeights.load_into`, on all
        ranks.
        """
        saved = self._saved
        if saved is None or not module.state_dict():
            return
        if name == "projections" and not saved.has_module(name):
            lines.write(f"projections: new random weights; {saved.path} has no projections")
            return
        self._ranks.run_on_all(partial(saved.load_into, name, module))
        step = f", step {saved.manifest.step}" if saved.manifest.step else ""
        lines.write(f"{name}: weights of {saved.path}{step}")


def _read(path: Path, run: Run) -> SavedWeights:
    """Open the weights of a model or checkpoint."""
    is_model = os.path.isfile(path / WEIGHTS)  # noqa: PTH113  (Path.is_file raises for a name that is too long)
    if "load" in run.replaced or run.recipe.export.has_own_format:
        # A custom format may have any file names, so a directory is a model unless it is a checkpoint.
        match = CHECKPOINT_NAME.fullmatch(path.resolve().name)
        is_model = match is None and not os.path.isfile(path / rank_file(0))  # noqa: PTH113  (raises for long names)
    if not is_skeleton(run.student):
        return read_model(path, run.load) if is_model else read_with_hint(read_weights, path)
    # The student will be sharded: no rank reads whole tensors, and one rank per machine verifies the file digests.
    once = run.ranks.on_each_machine
    return read_model(path, run.load, once) if is_model else read_with_hint(partial(map_weights, once=once), path)


class RunFiles:
    """The files of one run, which rank 0 creates and writes. All methods are called on all ranks.

    Files that `claim` and `callbacks` open are closed when their argument `contexts` is closed.

    Attributes:
        directory: The output directory; None for a smoke run, which creates no file except the trace.
        resuming: The checkpoint to resume from; None for a new run, and before `claim`.
    """

    def __init__(self, settings: Settings, ranks: Ranks, lines: Lines) -> None:
        self.settings, self.ranks, self.lines = settings, ranks, lines
        self.directory = None if settings.run.smoke is not None else settings.run.out
        self.resuming: Checkpoint | None = None
        self._metrics: MetricsCallback | None = None  # of rank 0

    @property
    def resumed_from(self) -> Path | None:
        """Return the path of the resumed checkpoint if it is in this output directory, else None."""
        path = None if self.resuming is None else self.resuming.path
        directory = (self.settings.run.out / CHECKPOINTS).resolve()
        return path if path is not None and path.resolve().parent == directory else None

    @property
    def metrics_length(self) -> int:
        """Return the length of the metrics file in bytes; 0 without a metrics file, and on other ranks than 0."""
        return 0 if self._metrics is None else self._metrics.length

    def claim(self, contexts: ExitStack) -> None:
        """Claim the output directory, and open the checkpoint to resume from; refuse conflicting settings.

        Call this method before data and models are read, because reading them may take long.
        """
        resumed = self.ranks.broadcast_decision(partial(self._claim, contexts))
        # Rank 0 has already opened the checkpoint, but every rank must call `run_on_all`.
        if resumed is not None and self.ranks.rank > 0:
            self.resuming = self.ranks.run_on_all(partial(read_checkpoint, Path(resumed), rank=self.ranks.rank))
        elif resumed is not None:
            self.ranks.run_on_all(lambda: None)
        conditions = fixed_settings(self.settings)
        del conditions["strategy"]  # a checkpoint contains the strategy in use instead of the setting
        self.check(conditions)

    def check_room(self, student: nn.Module) -> None:
        """Raise `OutputError` if the output directory has no room for this student and, with saves, a checkpoint.

        Other ranks than 0 raise `RankError`.
        """
        settings, directory = self.settings, self.directory
        if directory is None:
            return
        needed = exported_bytes(student)
        if settings.checkpoints.save_every or settings.evaluation.every:
            needed += checkpoint_bytes(expected_tensors(student, masters=settings.student.weights == "bfloat16"))
        self.ranks.run_on_all(partial(check_room, directory, needed) if self.ranks.rank == 0 else lambda: None)

    def _claim(self, contexts: ExitStack) -> str | None:
        """Claim the output directory on rank 0; return the path of the checkpoint to resume from, or None."""
        settings = self.settings
        allowed = files_to_keep(settings.run.out, settings.checkpoints.resume, rewinding=settings.checkpoints.rewind)
        needs_rewind = (
            has_later(settings.run.out / CHECKPOINTS, settings.checkpoints.resume) and not settings.checkpoints.rewind
        )
        also = " and --rewind, which sets checkpoints aside," if needs_rewind else ""
        if self.directory is None:
            try:
                refuse_existing(settings.run.out, force=settings.run.force, allowed=allowed, also=also)
            except OutputError as error:  # only a line, because a smoke run writes nothing into the directory
                self.lines.write(SMOKE_OUTPUT_LINE.format(error=error))
            return None
        with suppress(CheckpointError):  # raised for an unreadable directory, which is refused below
            if saved_steps(settings.run.out / CHECKPOINTS, RUN_ID):
                allowed.append(CHECKPOINTS)  # the error of `open_checkpoint` says how to resume from them
        claimed = exclusive_directory(
            settings.run.out, force=settings.run.force, bytes_needed=0, allowed=allowed, also=also
        )
        directory = contexts.enter_context(claimed)
        self.resuming = open_checkpoint(
            directory / CHECKPOINTS, settings.checkpoints.resume, rewinding=settings.checkpoints.rewind
        )
        return None if self.resuming is None else str(self.resuming.path)

    def check(self, conditions: Mapping[str, object]) -> None:
        """Raise `DriftError`, on all ranks, if these conditions have other values in the checkpoint to resume from."""
        if self.resuming is not None:
            self.ranks.run_on_all(partial(check_conditions, self.resuming.manifest, conditions))

    def callbacks(self, contexts: ExitStack) -> tuple[Callback, ...]:
        """Return the callbacks that write files; none on other ranks than 0."""
        if self.ranks.rank > 0:
            return ()
        return (*self._metrics_callbacks(contexts), *self._trace_callbacks(contexts))

    def _metrics_callbacks(self, contexts: ExitStack) -> list[MetricsCallback]:
        if self.directory is None:
            return []
        # A length of 0 empties the file of an earlier, unfinished run.
        length = metrics_length(self.resuming, self.directory / CHECKPOINTS)
        self._metrics = MetricsCallback(self.directory / METRICS_FILE, truncate_to=length)
        contexts.callback(self._metrics.close)
        return [self._metrics]

    def _trace_callbacks(self, contexts: ExitStack) -> list[TraceCallback]:
        settings = self.settings
        if settings.run.trace is None:
            return []
        if (
            settings.data.path is not None
            and settings.run.trace.exists()
            and settings.run.trace.samefile(settings.data.path)
        ):
            raise SettingError(f"invalid value '{settings.run.trace}' for 'trace': expected a file other than the text")
        trace = TraceCallback(settings.run.trace, force=settings.run.force)
        contexts.callback(trace.close)
        return [trace]

    def restore(self, checkpoints: Checkpoints, schedule: Schedule) -> TrainState | None:
        """Load the checkpoint to resume from, equal on all ranks, and return its state; None for a new run."""
        if self.resuming is None:
            return None
        resumed = self.ranks.run_on_all(partial(checkpoints.load, self.resuming, schedule))
        self.ranks.check_equal({"manifest_sha256": self.resuming.manifest.sha256})
        self.lines.write(f"resumed from {self.resuming.path}")
        return resumed

    def rewind(self, checkpoints: Checkpoints) -> None:
        """Move checkpoints later than the resumed one, or all for a new run, if the settings have `rewind`."""
        if not self.settings.checkpoints.rewind:
            return
        start = None if self.resuming is None else self.resuming.manifest.step
        aside = self.ranks.broadcast_decision(partial(_set_aside, checkpoints, start))
        if aside is not None:
            self.lines.write(f"set later checkpoints aside in {aside}")


def _set_aside(checkpoints: Checkpoints, start: int | None) -> str | None:
    """Call `Checkpoints.rewind`, and convert its result to JSON."""
    aside = checkpoints.rewind(start)
    return None if aside is None else str(aside)
