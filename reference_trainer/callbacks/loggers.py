"""Callbacks of `--log-to`, which send metrics and settings of a run to TensorBoard, Weights & Biases or MLflow.

Only rank 0 writes. W&B and MLflow read project, experiment, server and keys from their environment variables, such as
`WANDB_PROJECT` and `MLFLOW_TRACKING_URI`.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from reference_trainer.callbacks.base import Callback, Context
from reference_trainer.errors import OutputError, PackageError, missing_package

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from reference_trainer.config.settings import Settings

TENSORBOARD = "tensorboard"
"""The directory of TensorBoard files in the output of a run."""


class Logger(Callback):
    """Base class of callbacks that write the metrics and the learning rate of logged and evaluated steps, on rank 0.

    A subclass overrides `write` and, if needed, `begin` and `end`.

    Attributes:
        settings: The settings of the run, as JSON values by name; empty before `attach` was called.
    """

    settings: Mapping[str, object]
    _has_begun = False

    def __init__(self) -> None:
        self.settings = {}

    def attach(self, pipeline: Any) -> None:
        self.settings = pipeline.settings.json_values()

    def begin(self, context: Context) -> None:
        """Open the log. Called once, after `settings` were set and before the first `write`."""

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Write the values of a step, by name of the metric."""
        raise NotImplementedError

    def end(self) -> None:
        """Close the log. Called once after `begin`, also if the run failed."""

    def on_train_begin(self, context: Context) -> None:
        if context.is_world_process_zero:
            self.begin(context)
            self._has_begun = True

    def on_step_end(self, context: Context) -> None:
        metrics = {**context.metrics, **context.validation_metrics}
        if not metrics or not context.is_world_process_zero:
            return
        rate = {} if context.learning_rate is None else {"learning_rate": context.learning_rate}
        self.write({**rate, **metrics}, context.step)

    def on_train_end(self, context: Context) -> None:
        if self._has_begun:
            self._has_begun = False
            self.end()


class TensorBoardCallback(Logger):
    """Write scalars for TensorBoard.

    Every start of a run adds an event file to the directory, so two runs must not share a directory. When a run is
    resumed, TensorBoard hides the scalars that the previous start wrote after the checkpoint.

    Args:
        directory: The directory of the event files; created if it is missing.

    Raises:
        PackageError: If tensorboard is not installed.
        OutputError: If the directory cannot be created.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise PackageError(missing_package(error) or f"cannot import tensorboard: {error}") from error
        self._writer_type = SummaryWriter
        self._writer: SummaryWriter | None = None

    def begin(self, context: Context) -> None:
        purge_step = context.step + 1 if context.step else None
        try:
            self._writer = self._writer_type(str(self._directory), purge_step=purge_step)
        except OSError as error:
            raise OutputError(f"cannot write {self._directory}: {error.strerror}; give another directory") from error
        if self.settings:
            # TensorBoard shows texts as Markdown, where four spaces begin a code block.
            self._writer.add_text("settings", f"    {json.dumps(self.settings)}", context.step)

    def write(self, values: Mapping[str, float], step: int) -> None:
        assert self._writer is not None
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()  # a killed run keeps its scalars

    def end(self) -> None:
        assert self._writer is not None
        self._writer.close()


class WandbCallback(Logger):
    """Write to a run of Weights & Biases; the settings are written to its config.

    Every start of a run, also a resumed one, creates a W&B run in the group with the name of the output. If
    `WANDB_RUN_ID` is set, all starts write to that W&B run.

    Raises:
        PackageError: If wandb is not installed.
    """

    def __init__(self) -> None:
        super().__init__()
        self._wandb = _import_tracker("wandb")
        self._run: Any = None

    def begin(self, context: Context) -> None:
        self._run = self._wandb.init(group=context.run, config=dict(self.settings), resume="allow")

    def write(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def end(self) -> None:
        self._run.finish()


class MLflowCallback(Logger):
    """Write to a run of MLflow; settings that are not None are written to its parameters.

    Every start of a run, also a resumed one, creates an MLflow run with the name of the output. If `MLFLOW_RUN_ID` is
    set, all starts write to that MLflow run. A start that resumes a run after its first step writes no parameters.

    Raises:
        PackageError: If mlflow is not installed.
    """

    def __init__(self) -> None:
        super().__init__()
        self._mlflow = _import_tracker("mlflow")

    def begin(self, context: Context) -> None:
        self._mlflow.start_run(run_name=context.run)
        if not context.step:  # not again in a resumed run: MLflow refuses a second value of a parameter
            self._mlflow.log_params({name: value for name, value in self.settings.items() if value is not None})

    def write(self, values: Mapping[str, float], step: int) -> None:
        self._mlflow.log_metrics(dict(values), step=step)

    def end(self) -> None:
        self._mlflow.end_run()


def _import_tracker(name: str) -> ModuleType:
    """Import the package of a tracker. Raise `PackageError` if it or one of its dependencies is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:  # the missing package is a dependency of the tracker
            raise PackageError(f"cannot import {name}: {error}; install it again") from error
        raise PackageError(f"{name} is not installed: pip install {name}") from error


def loggers_of(settings: Settings) -> list[Callback]:
    """Return a new logger for each name in the setting `log_to`; none for a smoke run.

    Raises:
        PackageError: If the package of a logger is not installed.
    """
    if settings.run.log_to is None or settings.run.smoke is not None:
        return []
    factories: dict[str, Callable[[], Logger]] = {
        "tensorboard": lambda: TensorBoardCallback(settings.run.out / TENSORBOARD),
        "wandb": WandbCallback,
        "mlflow": MLflowCallback,
    }
    names = dict.fromkeys(settings.run.log_to.split(","))  # without duplicates
    return [factories[name]() for name in names]
