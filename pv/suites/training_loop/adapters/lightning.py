"""The adapter of `lightning.Trainer`, for a simple module or for a LightningModule of the user."""

import functools
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers.logger import Logger
from torch import Tensor
from torchdata.stateful_dataloader import StatefulDataLoader

from pv.suites.training_loop.adapters.usual import loader_of, optimizer_of, scheduler_of
from pv.suites.training_loop.features import OldLacks
from pv.suites.training_loop.job import IGNORED, Example, Job, Report
from pv.suites.training_loop.probe import token_loss

DOCS = "https://lightning.ai/docs/pytorch/stable"
# The reasons why claims are not made.
MEANS = f"the loss is a mean per batch, and accumulation averages batches, see {DOCS}/advanced/training_tricks.html"
VALUE = f"a value logged with on_step is the value of one batch, see {DOCS}/extensions/logging.html"
STATES = f"a checkpoint does not contain random states, see {DOCS}/common/checkpointing_basic.html"
REPEATS = f"an evaluation in two processes repeats examples, see {DOCS}/common/evaluation_intermediate.html"
ORDER = "after a restore or with workers, the loader of torchdata has another order, see docs/released-trainers.md"
USER = "the feature is left to the user's code"


class ProbeModule(lightning.LightningModule):
    """A module whose loss is the mean over the scored tokens of a batch, logged as Lightning's documentation shows."""

    def __init__(self, job: Job, planned: int) -> None:
        super().__init__()
        self.job, self.planned, self.probe = job, planned, job.model()

    def training_step(self, batch: dict[str, Tensor], index: int) -> Tensor:
        loss = token_loss(self.probe(batch["input_ids"]), batch["labels"])
        self.log("loss", loss, on_step=True, on_epoch=False)
        return loss

    def validation_step(self, batch: dict[str, Tensor], index: int) -> None:
        scored = int((batch["labels"][:, 1:] != IGNORED).sum())
        loss = token_loss(self.probe(batch["input_ids"]), batch["labels"])
        self.log("eval_loss", loss, batch_size=scored)

    def configure_optimizers(self) -> dict[str, object]:
        optimizer = optimizer_of(self.job, self.parameters())
        scheduler = scheduler_of(self.job, optimizer, self.planned)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class Lightning:
    """An adapter that runs jobs with `lightning.Trainer`. Override `module` to test your own LightningModule.

    Args:
        settings: Arguments of `lightning.Trainer` that override the settings of the job.
        callbacks: Functions or classes that every run calls without arguments to get new callbacks.
    """

    features: Mapping[str, bool | str] = {
        **dict.fromkeys(("rate", "norm", "groups", "decay", "average", "network"), USER),
        "history": "a logger does not keep the logs of earlier runs",
        "step_events": "callbacks are called for batches, not for steps",
        "scaler": "there is no gradient scaler on the CPU",
        "best_step": "a callback names the best file, not its step",
        "finite": "only settings that are off by default, such as `detect_anomaly`, refuse a loss that is not finite",
    }
    lacks = OldLacks()
    not_claimed: Mapping[str, str] = {
        **dict.fromkeys(("TL-GRAD-002", "TL-GRAD-004", "TL-MASK-001", "TL-MASK-002", "TL-RANKS-001"), MEANS),
        **dict.fromkeys(("TL-LOG-002", "TL-LOG-003", "TL-LOG-004", "TL-LOG-005"), VALUE),
        **dict.fromkeys(("TL-RESUME-004", "TL-RESUME-007"), STATES),
        **dict.fromkeys(("TL-DATA-006", "TL-RESUME-009"), ORDER),
        "TL-RANKS-005": REPEATS,
    }
    tolerance = 1e-9
    names: Mapping[str, str] = {"loss": "loss", "eval_loss": "eval_loss"}
    """Names under which the module logs its loss in training and in validation."""

    def __init__(
        self, *, settings: Mapping[str, object] | None = None, callbacks: Iterable[Callable[[], Callback]] = ()
    ) -> None:
        self.settings, self.callbacks = dict(settings or {}), tuple(callbacks)

    def module(self, job: Job) -> lightning.LightningModule:
        """Return the module to train, with `job.model()` as its network."""
        # `trainer.estimated_stepping_batches` is known only inside `fit`, so the planned steps are computed here.
        batches = math.ceil(len(job.train) / (job.batch * _world_size()))
        planned = job.max_steps or job.epochs * math.ceil(batches / job.accumulate)
        return ProbeModule(job, planned)

    def collate(self, job: Job, examples: list[Example]) -> object:
        """Return a batch of examples in the form that the module takes."""
        return job.collate(examples)

    def run(self, job: Job) -> Report:
        """Run a job with `Trainer.fit`, and return its report."""
        lightning.seed_everything(job.seed, workers=True, verbose=False)
        report = Report(model=self.module(job))
        trainer = lightning.Trainer(**_settings(job) | self.recorders(job, report) | self.settings)
        evaluated = self.loader(job, job.evaluated, job.eval_batch, 0) if job.eval_every and job.evaluated else None
        train = self.loader(job, job.train, job.batch, job.seed, shuffle=True)
        trainer.fit(report.model, train, evaluated, ckpt_path=str(job.resume) if job.resume else None)
        report.final_step = trainer.global_step
        report.checkpoints = {_step(path): path for path in sorted(Path(job.directory).glob("*step=*.ckpt"))}
        return report

    def recorders(self, job: Job, report: Report) -> dict[str, object]:
        """Return the arguments `logger` and `callbacks` of the trainer, which record the run in its report."""
        callbacks = [
            *(make() for make in self.callbacks),
            Watch(job, report),
            *_checkpoint_callbacks(job, self.names["eval_loss"]),
        ]
        return {"logger": ReportLogger(report, self.names), "callbacks": callbacks}

    def loader(self, job: Job, examples: tuple[Example, ...], size: int, seed: int, *, shuffle: bool = False) -> Any:
        """Return a loader with its own random generator. Checkpoints include the state of the loader."""
        collate = functools.partial(self.collate, job)
        return loader_of(job, examples, size, seed, shuffle=shuffle, collate=collate, kind=StatefulDataLoader)


def _world_size() -> int:
    """Return the number of processes, which the launcher sets in the environment."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def _step(path: Path) -> int:
    """Return the step S in the name of a checkpoint, such as `step=S.ckpt` or `best-step=S-v1.ckpt`."""
    return int(path.stem.split("step=")[1].split("-")[0])


def _settings(job: Job) -> dict[str, object]:
    """Return the arguments of `lightning.Trainer` for a job."""
    evaluates = bool(job.eval_every and job.evaluated)
    # Lightning counts batches between evaluations, not steps.
    validation = {"val_check_interval": job.eval_every * job.accumulate, "check_val_every_n_epoch": None}
    return {
        "accelerator": "cpu",
        "devices": _world_size(),
        "strategy": "ddp" if _world_size() > 1 else "auto",
        # -1 means no limit. If both limits were set, the smaller one would end the run.
        "max_epochs": -1 if job.max_steps else job.epochs,
        "max_steps": job.max_steps or -1,
        "accumulate_grad_batches": job.accumulate,
        "gradient_clip_val": job.clip,
        "log_every_n_steps": job.log_every or 10**6,
        "deterministic": True,
        "default_root_dir": job.directory,
        "enable_checkpointing": bool(job.save_every),
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,  # no evaluation before the first step
        **(validation if evaluates else {"limit_val_batches": 0}),
    }


def _checkpoint_callbacks(job: Job, monitored: str) -> list[Callback]:
    """Return the callbacks that save the newest checkpoints and, if `job.best` is set, the best checkpoint.

    All checkpoints are kept if `job.keep` is None. There is no callback if the job saves no checkpoints.

    Args:
        job: The job.
        monitored: The name of the evaluation loss that determines the best checkpoint.
    """
    if not job.save_every:
        return []
    # Lightning keeps the checkpoints with the best values of a metric. For the metric `step`, these are the newest.
    rotation: dict[str, object] = {"save_top_k": -1}  # keep all checkpoints
    if job.keep is not None:
        rotation = {"save_top_k": job.keep, "monitor": "step", "mode": "max"}
    newest = ModelCheckpoint(job.directory, "{step}", every_n_train_steps=job.save_every, **rotation)
    best = ModelCheckpoint(job.directory, "best-{step}", monitor=monitored, save_top_k=1)
    return [best, newest] if job.best else [newest]


class ReportLogger(Logger):
    """A logger that adds the logged losses to a report."""

    name = version = "logs"  # Lightning requires both attributes

    def __init__(self, report: Report, names: Mapping[str, str]) -> None:
        super().__init__()
        self.report, self.names = report, names

    def log_hyperparams(self, *_: object, **__: object) -> None:
        pass

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        number = (step or 0) + 1  # Lightning counts steps from 0, a report counts them from 1
        if self.names["loss"] in metrics:
            self.report.logs.append({"step": number, "loss": metrics[self.names["loss"]]})
        if self.names["eval_loss"] in metrics:
            self.report.evaluations.append((number, metrics[self.names["eval_loss"]]))


class Watch(Callback):
    """A callback that records the events of a run in its report, and stops the run after the step `job.stop_at`."""

    def __init__(self, job: Job, report: Report) -> None:
        self.job, self.report = job, report

    def on_train_start(self, *_: object) -> None:
        self.report.events.append("train_begin")

    def on_train_epoch_start(self, *_: object) -> None:
        self.report.events.append("epoch_begin")

    def on_train_epoch_end(self, *_: object) -> None:
        self.report.events.append("epoch_end")

    def on_train_end(self, *_: object) -> None:
        self.report.events.append("train_end")

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: object) -> None:
        if trainer.global_step == self.job.stop_at:
            trainer.should_stop = True
