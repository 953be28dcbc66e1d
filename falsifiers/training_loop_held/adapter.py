"""The adapter of `reference_trainer` for the suite `training-loop`: the loss is the cross-entropy alone."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pv.suites.training_loop.job import Example, Job, Report
from pv.suites.training_loop.probe import VOCABULARY, Probe
from reference_trainer import Action, Callback, Lines, MetricSum, Settings, read_metrics
from reference_trainer.data.text import Batches, ShuffledBatches
from reference_trainer.distillation.objective import Weights
from reference_trainer.distillation.protocols import Batch
from reference_trainer.pipeline.distill import Distillation
from reference_trainer.storage.checkpoints import verify_checkpoints
from reference_trainer.training.evaluation import evaluate

EVENTS = ("train_begin", "epoch_begin", "step_begin", "log", "evaluate", "save", "epoch_end", "train_end")
NAN_ENDS = "NaN logits end the run; contract `training-evaluation` has an own evaluation that returns NaN"
CROSS_ENTROPY = {"ce_weight": 1.0, "kd_weight": 0.0, "temperature": 1.0}


class Model(nn.Module):
    """The probe as a student, which is given token ids only."""

    def __init__(self, probe: nn.Module) -> None:
        super().__init__()
        self.probe = probe

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.probe(tokens)
        return logits


@dataclass(frozen=True)
class Padded:
    """Examples in micro-batches of `size`."""

    job: Job
    examples: tuple[Example, ...]
    size: int
    device = torch.device("cpu")

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def batches(self) -> int:
        return -(-len(self.examples) // self.size)

    def batch(self, order: Tensor, position: int) -> Batch:
        chosen = order[(position - 1) * self.size : position * self.size].tolist()
        rows = self.job.collate([self.examples[i] for i in chosen])
        return Batch(tokens=rows["input_ids"], labels=rows["labels"])


class Watch(Callback):
    """Notes the events, and asks for a stop."""

    def __init__(self, job: Job, report: Report) -> None:
        self.job, self.events = job, report.events
        for event in EVENTS:
            setattr(self, f"on_{event}", lambda context, event=event: self.events.append(event))

    def on_step_end(self, context: Any) -> Action | None:
        self.events.append("step_end")
        return Action.STOP if context.step == self.job.stop_at else None


class Run(Distillation):
    """A distillation with the data and the model of a job."""

    job: Job
    report: Report
    vocab_size = VOCABULARY

    def make_batches(self) -> Batches:
        rows = Padded(self.job, self.job.train, self.job.batch)
        place = self.place
        return ShuffledBatches(sequences=rows, seed=self.job.seed, rank=place.rank, world_size=place.world_size)

    def make_student(self) -> nn.Module:
        return self.report.model

    def make_teacher(self) -> nn.Module:
        return Model(Probe(silent=True))

    def evaluate(self) -> dict[str, MetricSum]:
        if not self.job.evaluated:
            return {}
        rows = Padded(self.job, self.job.evaluated, self.job.eval_batch)
        return evaluate(self.frozen, self.learner, rows, Weights(**CROSS_ENTROPY), parallel=self.parallel)

    def save(self, directory: Path, manifest: Mapping[str, Any]) -> None:
        (directory / "manifest.json").write_text(json.dumps(manifest))


class Adapter:
    """Runs a job as a distillation."""

    features: Mapping[str, bool | str] = {
        "best_step": True,
        "ties": True,
        "groups": "all parameters have one rate",
        "workers": "batches are computed where they are used",
        "finite": True,
    }
    not_claimed: Mapping[str, str] = {
        "TL-RATE-001": "the rate falls by half a cosine, which contract `schedule` states",
        **dict.fromkeys(("TL-KEEP-003", "TL-BEST-002"), NAN_ENDS),
    }
    tolerance = 1e-9

    def run(self, job: Job) -> Report:
        report = Report(model=Model(job.model()))
        lines = Lines(io.StringIO())
        with Run(settings(job), callbacks=[Watch(job, report)], lines=lines) as run, run:
            run.job, run.report = job, report
            run.prepare()
            report.final_step = run.conclude(run.run()).train.steps_completed
        read(job, report)
        return report


def settings(job: Job) -> Settings:
    """Return the settings of a job. AdamW and the cosine are the only ones; the best checkpoint always stays."""
    _ = job.optimizer, job.schedule, job.best
    same = ("accumulate", "max_steps", "warmup", "clip", "seed", "log_every", "eval_every", "save_every", "resume")
    options: dict[str, Any] = CROSS_ENTROPY | {name: getattr(job, name) for name in same}
    options |= {"out": job.directory, "batch_size": job.batch, "lr": job.rate, "keep": job.keep or 0}
    options |= {"epochs": job.epochs if job.max_steps is None else 100, "device": "cpu", "force": True}
    return Settings(**options)


def read(job: Job, report: Report) -> None:
    """Fill in what the run has left on disk."""
    metrics = job.directory / "metrics.jsonl"
    for row in read_metrics(metrics) if metrics.exists() else ():
        values = row.metrics
        if "loss" in values:
            rate = {} if row.learning_rate is None else {"rate": row.learning_rate}
            report.logs.append({"step": row.step, "loss": values["loss"], "norm": values["gradient_norm"], **rate})
        if "eval/hard_loss" in values:
            report.evaluations.append((row.step, values["eval/hard_loss"]))
    folder = job.directory / "checkpoints"
    saved = verify_checkpoints(folder) if folder.exists() else []
    report.checkpoints = {checkpoint.step: checkpoint.path for checkpoint in saved}
    report.best = saved[-1].best.step if saved and saved[-1].best else None
