"""The adapter of `create_supervised_trainer` of pytorch-ignite, with the handlers of its examples."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver, LRScheduler, global_step_from_engine
from ignite.metrics import Loss
from ignite.utils import manual_seed

from pv.suites.training_loop.adapters.usual import optimizer_of, pairs_of, scheduler_of
from pv.suites.training_loop.features import OldLacks
from pv.suites.training_loop.job import IGNORED, Job, Report
from pv.suites.training_loop.probe import token_loss

# Reasons for missing features and for claims that are not made.
DOCS = "https://docs.pytorch.org/ignite"
USER = "the feature is left to the user's code"
TRAINER = f"{DOCS}/generated/ignite.engine.create_supervised_trainer.html"
MEANS = f"the loss of a batch is left to the user's code, see {TRAINER}"
BATCH = f"the output of the trainer is the loss of a batch, see {TRAINER}"
NOISE = f"random augmentations are not synchronized within an epoch, see {DOCS}/engine.html#dataflow-synchronization"
EVENTS = {
    "train_begin": Events.STARTED,
    "epoch_begin": Events.EPOCH_STARTED,
    "epoch_end": Events.EPOCH_COMPLETED,
    "train_end": Events.COMPLETED,
}


class Ignite:
    """An adapter that runs jobs with the deterministic trainer, as in examples/mnist/mnist_save_resume_engine.py."""

    features: Mapping[str, bool | str] = {
        **dict.fromkeys(("clip", "norm", "groups", "decay", "average", "network"), USER),
        "ranks": "the user's code starts the processes, for example with `ignite.distributed`",
        "short_windows": f"the count of iterations does not start again with an epoch, see {TRAINER}",
        "step_events": "handlers are called for batches, not for steps",
        "history": "a trainer does not keep the logs of earlier runs",
        "scaler": "there is no gradient scaler on the CPU",
        "best_step": "a handler names the best file, not its step",
    }
    lacks = OldLacks()
    not_claimed: Mapping[str, str] = {
        **dict.fromkeys(("TL-GRAD-002", "TL-GRAD-004", "TL-MASK-001", "TL-MASK-002"), MEANS),
        **dict.fromkeys(("TL-LOG-002", "TL-LOG-003", "TL-LOG-004", "TL-LOG-005"), BATCH),
        "TL-STEP-003": f"the trainer counts batches, see {DOCS}/generated/ignite.engine.events.State.html",
        "TL-RESUME-007": NOISE,
    }
    tolerance = 1e-9

    def run(self, job: Job) -> Report:
        """Run a job, and return its report."""
        report = Report(model=job.model())
        optimizer = optimizer_of(job, report.model.parameters())
        train = pairs_of(job, job.train, job.batch, None, shuffle=True)  # the deterministic trainer seeds the loader
        # A window may contain batches of two epochs. Only the last window of a run may be incomplete; it takes no step.
        planned = job.max_steps or job.epochs * len(train) // job.accumulate
        scheduler = LRScheduler(scheduler_of(job, optimizer, planned))
        trainer = create_supervised_trainer(
            report.model, optimizer, token_loss, deterministic=True, gradient_accumulation_steps=job.accumulate
        )
        trainer.add_event_handler(Events.ITERATION_STARTED(every=job.accumulate), scheduler)
        objects = {"trainer": trainer, "model": report.model, "optimizer": optimizer, "lr_scheduler": scheduler}
        _attach(job, report, objects)
        if job.resume:
            Checkpoint.load_objects(objects, torch.load(job.resume, weights_only=False))
        manual_seed(job.seed)
        trainer.run(train, **({"max_iters": planned * job.accumulate} if job.max_steps else {"max_epochs": job.epochs}))
        paths = sorted(job.directory.glob("*checkpoint_*.pt"))
        report.checkpoints = {int(path.stem.split("_")[-1]) // job.accumulate: path for path in paths}
        return report


def _attach(job: Job, report: Report, objects: dict[str, Any]) -> None:
    """Attach the handlers that record events, log, evaluate, save and stop.

    Args:
        job: The job. A step consists of `job.accumulate` iterations.
        report: The report that gets the events, logs and evaluations.
        objects: The objects that a checkpoint saves, by name, including the trainer.
    """
    trainer, evaluated = objects["trainer"], pairs_of(job, job.evaluated, job.eval_batch, 0)
    tokens = Loss(token_loss, batch_size=lambda labels: int((labels[:, 1:] != IGNORED).sum()))
    evaluator = create_supervised_evaluator(report.model, {"loss": tokens})

    def on_step(every: int, handler: Callable[..., object]) -> None:
        """Call a handler after every `every` steps; never if `every` is 0."""
        if every:
            trainer.add_event_handler(Events.ITERATION_COMPLETED(every=every * job.accumulate), handler)

    def step() -> int:
        return int(trainer.state.iteration // job.accumulate)

    def log() -> None:
        rate = objects["optimizer"].param_groups[0]["lr"]
        report.logs.append({"step": step(), "loss": trainer.state.output, "rate": rate})

    def evaluate() -> None:
        report.evaluations.append((step(), evaluator.run(evaluated).metrics["loss"]))

    for name, event in EVENTS.items():
        trainer.add_event_handler(event, report.events.append, name)
    on_step(job.log_every, log)
    on_step(job.eval_every if job.evaluated else 0, evaluate)
    on_step(job.stop_at or 0, trainer.terminate)
    disk = DiskSaver(job.directory, require_empty=False)
    on_step(job.save_every, Checkpoint(objects, disk, n_saved=job.keep))
    if job.best:
        settings = {"filename_prefix": "best", "filename_pattern": "{filename_prefix}_{name}_{global_step}.{ext}"}
        settings |= {"global_step_transform": global_step_from_engine(trainer, Events.ITERATION_COMPLETED)}
        score = Checkpoint.get_default_score_fn("loss", -1.0)
        evaluator.add_event_handler(Events.COMPLETED, Checkpoint(objects, disk, score_function=score, **settings))
