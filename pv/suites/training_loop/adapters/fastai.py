"""The adapter of fastai's `Learner` with loaders and optimizers of PyTorch, as in its tutorial on migration."""

from collections.abc import Mapping
from functools import partial
from unittest import SkipTest

from fastai.callback.core import Callback, CancelFitException
from fastai.callback.schedule import ParamScheduler, SchedLin, SchedNo, combine_scheds
from fastai.callback.tracker import SaveModelCallback
from fastai.callback.training import GradientAccumulation, GradientClip
from fastai.data.core import DataLoaders
from fastai.learner import Learner
from fastai.optimizer import OptimWrapper
from fastai.torch_core import set_seed
from torch.optim import SGD, AdamW

from pv.suites.training_loop.adapters.usual import pairs_of
from pv.suites.training_loop.features import OldLacks
from pv.suites.training_loop.job import Job, Report
from pv.suites.training_loop.probe import token_loss

# Reasons for missing features and for claims that are not made.
DOCS = "https://docs.fast.ai"
EPOCHS = f"`fit` takes a number of epochs, see {DOCS}/learner.html#learner.fit"
RATES = f"`ParamScheduler` sets the rate of each batch, see {DOCS}/callback.schedule.html#paramscheduler"
USER = "the feature is left to the user's code"
MEANS = f"the loss of a batch is left to the user's code, see {DOCS}/learner.html"
STATES = f"the model and the optimizer are saved, but no random state, see {DOCS}/learner.html#learner.save"
EVENTS = {
    "before_fit": "train_begin",
    "before_epoch": "epoch_begin",
    "after_epoch": "epoch_end",
    "after_fit": "train_end",
}


class Fastai:
    """An adapter that runs jobs with `Learner.fit`."""

    features: Mapping[str, bool | str] = {
        **dict.fromkeys(("groups", "decay", "average", "network"), USER),
        "cadence": "a learner evaluates and saves only at the end of an epoch",
        "loss": f"the logged loss is a smoothed average of batches, see {DOCS}/learner.html#recorder",
        **dict.fromkeys(("rate", "norm"), "the rate is recorded for each batch, and the norm is not recorded"),
        "history": "a recorder does not keep the logs of earlier runs",
        "short_windows": "`GradientAccumulation` counts rows, and continues its count in the next epoch",
        "step_events": "a step may contain batches of two epochs",
        **dict.fromkeys(("keep", "best"), "a callback keeps every checkpoint, or only the best"),
        "ranks": "loaders for several processes need a GPU",
        "scaler": "there is no gradient scaler on the CPU",
    }
    lacks = OldLacks()
    not_claimed: Mapping[str, str] = {
        **dict.fromkeys(("TL-GRAD-002", "TL-GRAD-004", "TL-MASK-001", "TL-MASK-002"), MEANS),
        **dict.fromkeys(("TL-RESUME-003", "TL-RESUME-004", "TL-RESUME-007", "TL-RESUME-009"), STATES),
        "TL-DATA-004": "`GradientAccumulation` counts rows",
        **dict.fromkeys(("TL-RATE-001", "TL-RATE-005"), RATES),
        "TL-STEP-002": EPOCHS,
        "TL-STEP-003": "the learner counts batches",
    }
    tolerance = 1e-6

    def run(self, job: Job) -> Report:
        """Run a job with `Learner.fit`, and return its report. Raise SkipTest for a job with `max_steps`."""
        if job.max_steps:
            raise SkipTest(EPOCHS)
        set_seed(job.seed)
        report = Report(model=job.model())
        train = pairs_of(job, job.train, job.batch, job.seed, shuffle=True)
        evaluated = pairs_of(job, job.evaluated, job.eval_batch, 0) if job.eval_every and job.evaluated else None
        learner = Learner(
            DataLoaders(train, evaluated or []),
            report.model,
            loss_func=lambda logits, labels: token_loss(logits, labels).float(),  # the recorder averages in float32
            opt_func=partial(OptimWrapper, opt={"sgd": SGD, "adamw": AdamW}[job.optimizer]),
            lr=job.rate,
            path=job.directory,
        )
        # A checkpoint `model_K` is saved at the end of epoch K.
        start = int(job.resume.stem.split("_")[1]) + 1 if job.resume else 0
        if job.resume:
            learner.load(job.resume.stem)
        events = Callback(**{hook: lambda _, name=name: report.events.append(name) for hook, name in EVENTS.items()})
        callbacks = [*_callbacks(job, len(train)), events, Watch(job, report, start)]
        with learner.no_bar(), learner.no_logging():
            learner.fit(job.epochs, cbs=callbacks, start_epoch=start)
        return report


def _callbacks(job: Job, batches: int) -> list[Callback]:
    """Return the callbacks of a job that accumulate, clip, save and schedule.

    Args:
        job: The job.
        batches: The number of batches of an epoch.
    """
    callbacks = [GradientAccumulation(job.batch * job.accumulate)] if job.accumulate > 1 else []
    callbacks += [GradientClip(job.clip)] if job.clip else []
    callbacks += [SaveModelCallback(every_epoch=True, with_opt=True)] if job.save_every else []
    decay = SchedLin(job.rate, 0) if job.schedule == "linear" else SchedNo(job.rate, job.rate)
    # `combine_scheds` takes fractions of the run, not numbers of batches.
    warmup = job.warmup * job.accumulate / (job.epochs * batches)
    rates = combine_scheds([warmup, 1 - warmup], [SchedLin(0, job.rate), decay]) if job.warmup else decay
    return [*callbacks, ParamScheduler({"lr": rates})]


class Watch(Callback):
    """A callback that records evaluations and checkpoints in a report, and ends the run after the step `job.stop_at`.

    Args:
        job: The job.
        report: The report that gets the evaluations and checkpoints.
        start: The number of epochs before the resume.
    """

    order = 90  # fastai calls callbacks by `order`: this one after the recorder (50) and the saving callback (61)

    def __init__(self, job: Job, report: Report, start: int) -> None:
        self.job, self.report, self.start, self.steps = job, report, start, 0

    def after_step(self) -> None:
        """Count the steps, and end the run after the step `job.stop_at`."""
        self.steps += 1
        if self.steps == self.job.stop_at:
            raise CancelFitException

    def after_epoch(self) -> None:
        """Record the evaluation and the checkpoint of the epoch. Ignore the epochs before the resume."""
        if self.epoch < self.start:
            return
        step = self.steps + self.start * len(self.dls.train) // self.job.accumulate
        if len(self.dls.valid):
            self.report.evaluations.append((step, self.recorder.values[-1][1]))
        path = self.path / self.model_dir / f"model_{self.epoch}.pth"
        if path.exists():
            self.report.checkpoints[step] = path
