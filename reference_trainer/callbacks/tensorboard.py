"""Metrics of a run as scalars for TensorBoard; needs the extra `tensorboard`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reference_trainer.callbacks.base import Callback, Context
from reference_trainer.errors import OutputError, PackageError, missing_package

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoardCallback(Callback):
    """Callback that writes metrics and learning rate of each logged or evaluated step, at that step, on rank 0.

    Every call adds an event file to the directory, so runs need directories of their own. Raise `PackageError` if
    tensorboard is not installed, `OutputError` if the directory cannot be created.
    """

    def __init__(self, directory: Path) -> None:
        self._writer = _writer(directory)

    def on_step_end(self, context: Context) -> None:
        metrics = {**context.metrics, **context.validation_metrics}
        if not metrics or not context.is_world_process_zero:
            return
        rate = {} if context.learning_rate is None else {"learning_rate": context.learning_rate}
        for name, value in {**rate, **metrics}.items():
            self._writer.add_scalar(name, value, context.step)
        self._writer.flush()  # a killed run keeps its scalars

    def on_train_end(self, context: Context) -> None:
        self._writer.close()


def _writer(directory: Path) -> SummaryWriter:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise PackageError(missing_package(error) or f"cannot import tensorboard: {error}") from error
    try:
        return SummaryWriter(str(directory))
    except OSError as error:
        raise OutputError(f"cannot write {directory}: {error.strerror}; give another directory") from error
