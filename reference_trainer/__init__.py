"""A knowledge-distillation trainer whose loss, training, callbacks, settings and files are tested by contracts.

The command line, signals, processes, plots, TensorBoard and the output on a terminal are covered by tests alone.
The names below are imported from their modules at first use, so `import reference_trainer` imports neither torch nor
pydantic.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reference_trainer.callbacks.base import Callback, Context
    from reference_trainer.callbacks.dispatch import Callbacks, Observer
    from reference_trainer.callbacks.loggers import MLflowCallback, TensorBoardCallback, WandbCallback
    from reference_trainer.callbacks.metrics_file import (
        EventLog,
        MetricsCallback,
        MetricsLine,
        ResourceLog,
        read_metrics,
    )
    from reference_trainer.callbacks.progress import Lines, ProgressCallback
    from reference_trainer.callbacks.stopping import EarlyStopping
    from reference_trainer.callbacks.trace import TraceCallback
    from reference_trainer.config.settings import Settings
    from reference_trainer.config.sources import gather
    from reference_trainer.data.documents import (
        Document,
        create_labels,
        first_fit,
        pack_documents,
        pack_sizes,
        pad_documents,
        prefix_mask,
        rows_of_documents,
        split_document,
    )
    from reference_trainer.data.streams import StreamedBatches
    from reference_trainer.data.text import Batches, Rows, Sequences, ShuffledBatches, Text, epoch_order, read_text
    from reference_trainer.distillation.features import feature_loss
    from reference_trainer.distillation.gradcheck import relative_difference
    from reference_trainer.distillation.losses import LossSum, kd_logit_gradient, kd_loss
    from reference_trainer.distillation.objective import Weights
    from reference_trainer.distillation.protocols import Batch
    from reference_trainer.distillation.step import MetricSum
    from reference_trainer.distillation.vocabulary import share_vocabulary
    from reference_trainer.errors import (
        CallbackError,
        CheckpointError,
        DataError,
        DriftError,
        LabelError,
        LogitsError,
        LostRankError,
        ModelFileError,
        OutputError,
        PackageError,
        PassConsumedError,
        ProviderError,
        RankError,
        SettingError,
        ShapeError,
        SmokeError,
        StopRequestedError,
        TrainerError,
        VocabularyError,
    )
    from reference_trainer.huggingface.parts import HuggingFace
    from reference_trainer.pipeline.distill import Distillation, distill
    from reference_trainer.pipeline.report import DistillResult
    from reference_trainer.pipeline.smoke import Check
    from reference_trainer.plan.objective import Annealed
    from reference_trainer.plan.rates import learning_rate
    from reference_trainer.plan.schedule import Action, Schedule
    from reference_trainer.storage.export import load_decoder
    from reference_trainer.training.evaluation import evaluate
    from reference_trainer.training.state import ResumePoint, RunIdentity, RunServices, TrainResult, UpdateOptions

__all__ = [
    "Action",
    "Annealed",
    "Batch",
    "Batches",
    "Callback",
    "CallbackError",
    "Callbacks",
    "Check",
    "CheckpointError",
    "Context",
    "DataError",
    "DistillResult",
    "Distillation",
    "Document",
    "DriftError",
    "EarlyStopping",
    "EventLog",
    "HuggingFace",
    "LabelError",
    "Lines",
    "LogitsError",
    "LossSum",
    "LostRankError",
    "MLflowCallback",
    "MetricSum",
    "MetricsCallback",
    "MetricsLine",
    "ModelFileError",
    "Observer",
    "OutputError",
    "PackageError",
    "PassConsumedError",
    "ProgressCallback",
    "ProviderError",
    "RankError",
    "ResourceLog",
    "ResumePoint",
    "Rows",
    "RunIdentity",
    "RunServices",
    "Schedule",
    "Sequences",
    "SettingError",
    "Settings",
    "ShapeError",
    "ShuffledBatches",
    "SmokeError",
    "StopRequestedError",
    "StreamedBatches",
    "TensorBoardCallback",
    "Text",
    "TraceCallback",
    "TrainResult",
    "TrainerError",
    "UpdateOptions",
    "VocabularyError",
    "WandbCallback",
    "Weights",
    "create_labels",
    "distill",
    "epoch_order",
    "evaluate",
    "feature_loss",
    "first_fit",
    "gather",
    "kd_logit_gradient",
    "kd_loss",
    "learning_rate",
    "load_decoder",
    "pack_documents",
    "pack_sizes",
    "pad_documents",
    "prefix_mask",
    "read_metrics",
    "read_text",
    "relative_difference",
    "rows_of_documents",
    "share_vocabulary",
    "split_document",
]
__version__ = "0.3.0"

# The public names of each module. Public names that are not listed here are classes of `errors`.
_NAMES = {
    "config.settings": "Settings",
    "config.sources": "gather",
    "data.documents": "Document first_fit pack_sizes pack_documents pad_documents "
    "split_document rows_of_documents create_labels prefix_mask",
    "data.streams": "StreamedBatches",
    "data.text": "Batches ShuffledBatches Rows Sequences Text epoch_order read_text",
    "distillation.features": "feature_loss",
    "distillation.gradcheck": "relative_difference",
    "distillation.losses": "LossSum kd_logit_gradient kd_loss",
    "distillation.objective": "Weights",
    "distillation.protocols": "Batch",
    "distillation.step": "MetricSum",
    "distillation.vocabulary": "share_vocabulary",
    "huggingface.parts": "HuggingFace",
    "pipeline.distill": "Distillation distill",
    "pipeline.report": "DistillResult",
    "pipeline.smoke": "Check",
    "storage.export": "load_decoder",
    "plan.objective": "Annealed",
    "callbacks.base": "Callback Context",
    "callbacks.dispatch": "Callbacks Observer",
    "callbacks.metrics_file": "EventLog ResourceLog MetricsCallback MetricsLine read_metrics",
    "callbacks.progress": "Lines ProgressCallback",
    "training.state": "ResumePoint RunIdentity RunServices UpdateOptions TrainResult",
    "training.evaluation": "evaluate",
    "plan.rates": "learning_rate",
    "plan.schedule": "Action Schedule",
    "callbacks.stopping": "EarlyStopping",
    "callbacks.loggers": "MLflowCallback TensorBoardCallback WandbCallback",
    "callbacks.trace": "TraceCallback",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import a public name at its first use. Raise `AttributeError` for other names."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    """Return the names that are defined here, and the public names that are not imported yet."""
    return sorted({*globals(), *__all__})
