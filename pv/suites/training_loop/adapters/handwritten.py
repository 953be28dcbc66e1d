"""The base class of adapters of hand-written loops. An adapter calls the existing parts of a loop."""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast
from unittest import SkipTest

from torch import nn

from pv.suites.training_loop.adapters.usual import number, part
from pv.suites.training_loop.features import LOGGED, OldLacks, has_feature
from pv.suites.training_loop.job import Job, Report
from pv.suites.training_loop.probe import Probe


class Placeholder(SkipTest):
    """Raised by a part of an adapter that is not written yet. Claims that need the part are undecided."""


def fill_in(description: str, *values: object) -> object:
    """Mark a part of an adapter that only the author of the loop can write.

    Args:
        description: What to write instead of this call.
        values: Values that help the author; the message shows them after the description.

    Raises:
        Placeholder: Always, with the file and line to fill in.
    """
    frame = sys._getframe(1)
    place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
    shown = f": {', '.join(map(repr, values))}" if values else ""
    raise Placeholder(f"{place}: fill in {description}{shown}")


class HandWritten:
    """Runs jobs with the parts of a loop. The methods call the code under test.

    `build` sets `self.loop`; `self.job` is the job. If `windows`, `update`, `evaluate`, `save` or `load` is not
    overridden, it calls the method of the loop that has a usual name for this part, such as `train_step(window)` or
    `save_checkpoint(path)`. The logged numbers and the count of steps are read from attributes with usual names, such
    as `last_loss` or `iteration`. `build` must be overridden; `best`, `best_model` and `average` must be overridden if
    the loop has the feature.

    This class calls `update` for each window, and logs, evaluates and saves at the cadences of the job. The loop itself
    determines order, epochs, the end of the run, accumulation, clipping, schedule, and the content of a checkpoint.

    Attributes:
        features: The features of a subclass extend the features of this class. Write True for

            * the numbers among `loss`, `rate` and `norm` that `log` returns;
            * features that are missing by default: the names in `OPT_IN` (`pv.suites.training_loop.job`), and the
              names with a reason in the default below, such as `groups`.

            Write a reason, or False, for features that the loop does not have:

            * `masks` if the loop scores every token;
            * `gaps` if the loop can leave out only the first tokens, such as a prompt, from the loss;
            * `lengths` if all rows have the same length;
            * `epochs` if the loop counts only steps (`job.max_steps` is then always set);
            * `max_steps` if the loop counts only epochs;
            * `accumulate` if the loop takes a step on each batch (`job.batch` is then the size of a window);
            * `short_windows` if a window may have examples of two epochs.
    """

    job: Job
    loop: object = None
    features: Mapping[str, bool | str] = {
        **dict.fromkeys(
            (
                "events",
                "step_events",
                "stop",
                "keep",
                "best",
                "history",
                "ranks",
                "noise",
                "padding",
                "groups",
                "workers",
            ),
            "a hand-written loop may not have it",
        ),
        **dict.fromkeys(LOGGED, "log() does not return this number; set it to True in `features` if log() does"),
    }
    lacks = OldLacks()
    not_claimed: Mapping[str, str] = {}
    tolerance = 1e-6

    def build(self, job: Job, model: Probe) -> None:
        """Set `self.loop` to a new loop, with optimizer, schedule and data, seeded by the loop's own code."""
        raise self._placeholder("build")

    def windows(self) -> Iterable[object]:
        """Return the windows of the run, which ends by `job.epochs` or `job.max_steps`. `update` takes one window.

        After `load`, start at the position where the loop would resume.
        """
        return cast("Iterable[Any]", self._part("windows")())

    def update(self, window: Any) -> None:
        """Take one optimizer step on a window (its micro-batches)."""
        self._part("update")(window)

    def log(self) -> Mapping[str, float]:
        """Return the numbers that the loop logs after an update."""
        return {name: self._number(name, "log") for name in LOGGED if has_feature(self, name)}

    def evaluate(self) -> float:
        """Return the loss on the examples `job.evaluated`. The default calls a method only if it needs no arguments."""
        method = self._part("evaluate")
        try:
            inspect.signature(method).bind()
        except TypeError as error:
            raise self._placeholder("evaluate") from error
        return float(method())

    def save(self, path: Path) -> None:
        """Write a checkpoint to a path, as a file or a directory.

        The path does not exist yet, except if the job is run in the folder of an earlier run.
        """
        self._part("save")(path)

    def load(self, path: Path) -> int:
        """Restore the loop from a checkpoint; return the number of steps before the checkpoint was saved."""
        self._part("load")(path)
        return int(self._number("steps", "load"))

    def best(self) -> int | None:
        """Return the step of the best checkpoint, as the loop reports it."""
        raise self._placeholder("best")

    def best_model(self) -> nn.Module:
        """Return a model with the weights of the best checkpoint."""
        raise self._placeholder("best_model")

    def average(self) -> nn.Module:
        """Return a model with the running average of the weights."""
        raise self._placeholder("average")

    def run(self, job: Job) -> Report:
        """Run a job by calling the parts of the loop in order, and return its report."""
        self.job, model = job, job.model()
        self._logs = any(has_feature(self, name) for name in LOGGED)
        report = Report(model=model)
        self.build(job, model)
        step = self.load(job.resume) if job.resume else 0
        for window in self.windows():
            self.update(window)
            step += 1
            self._log_evaluate_save(job, report, step)
        report.final_step = step
        report.best = self.best() if job.best and has_feature(self, "best_step") else None
        report.best_model = self.best_model() if job.best and has_feature(self, "best_model") else None
        report.average = self.average() if job.average is not None else None
        return report

    def _log_evaluate_save(self, job: Job, report: Report, step: int) -> None:
        """Log, evaluate and save after a step, if the job asks for it at this step."""
        if self._logs and job.log_every and step % job.log_every == 0:
            report.logs.append({"step": step, **self.log()})
        if job.eval_every and step % job.eval_every == 0:
            report.evaluations.append((step, self.evaluate()))
        if job.save_every and step % job.save_every == 0:
            path = job.directory / f"step-{step}"
            self.save(path)
            report.checkpoints[step] = path

    def _part(self, role: str) -> Callable[..., Any]:
        """Return the method of the loop for a role. Raise `Placeholder` if there is none, or several."""
        method = part(self.loop, role)
        if method is None:
            raise self._placeholder(role)
        return method

    def _number(self, name: str, method: str) -> float:
        """Return a number from an attribute of the loop. Raise `Placeholder` if there is none, or several."""
        value = number(self.loop, name)
        if value is None:
            raise self._placeholder(method)
        return float(value)

    def _placeholder(self, method: str) -> Placeholder:
        """Return the error for a method that must be overridden."""
        return Placeholder(f"{type(self).__qualname__}.{method}() is a placeholder: call the loop's own code in it")
