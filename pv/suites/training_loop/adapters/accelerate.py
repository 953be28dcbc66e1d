"""Adapters for training loops with `accelerate` that follow its guides. The user writes all other code of a loop."""

import contextlib
import itertools
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch import Tensor

from pv.suites.training_loop.adapters.usual import loader_of, optimizer_of, scheduler_of
from pv.suites.training_loop.features import OldLacks
from pv.suites.training_loop.job import IGNORED, Job, Report
from pv.suites.training_loop.probe import token_loss

# Reasons for missing features and for claims that are not made.
GUIDE = "https://huggingface.co/docs/accelerate/usage_guides/gradient_accumulation"
OTHER_LOOP = f"the guide has another loop for samples of variable size, see {GUIDE}"
TOKEN_MEAN_CLAIMS = ("TL-GRAD-002", "TL-GRAD-004", "TL-MASK-001", "TL-RANKS-001")
USER = "the feature is left to the user's code"


class Accelerate:
    """An adapter for a loop with `accumulate()` that resumes with `load_state` and `skip_first_batches`.

    Attributes:
        stateful: Whether the loop uses `use_stateful_dataloader`.
    """

    features: Mapping[str, bool | str] = dict.fromkeys(
        ("events", "step_events", "keep", "best", "stop", "loss", "norm", "rate", "history", "groups"), USER
    )
    lacks = OldLacks()
    not_claimed: Mapping[str, str] = dict.fromkeys(TOKEN_MEAN_CLAIMS, OTHER_LOOP)
    tolerance = 1e-9
    stateful = False

    def run(self, job: Job) -> Report:
        """Run a job, and return its report."""
        return self.loop(job).run()

    def loop(self, job: Job) -> "Loop":
        """Return the loop that runs a job."""
        return Loop(job, stateful=self.stateful)


class StatefulAccelerate(Accelerate):
    """An adapter for the same loop with `use_stateful_dataloader`, which makes `skip_first_batches` unnecessary."""

    stateful = True


class TokensAccelerate(Accelerate):
    """An adapter for the guide's loop for samples of variable size, which divides by the tokens of a window."""

    not_claimed: Mapping[str, str] = {}

    def loop(self, job: Job) -> "Loop":
        return TokenLoop(job, stateful=self.stateful)


class Loop:
    """The loop with `accumulate()`.

    Args:
        job: The job.
        stateful: Whether loaders are stateful, so that `load_state` restores their position.
    """

    def __init__(self, job: Job, *, stateful: bool) -> None:
        set_seed(job.seed)
        self.job, self.stateful, self.step = job, stateful, 0
        data = DataLoaderConfiguration(use_seedable_sampler=True, data_seed=job.seed, use_stateful_dataloader=stateful)
        self.accelerator = Accelerator(cpu=True, gradient_accumulation_steps=job.accumulate, dataloader_config=data)
        self.prepare()

    def prepare(self) -> None:
        """Create model, optimizer, loaders and schedule, and prepare them with the accelerator."""
        job, model = self.job, self.job.model()
        self.report = Report(model=model)
        optimizer = optimizer_of(job, model.parameters())
        train = loader_of(job, job.train, job.batch, job.seed, shuffle=True)
        evaluated = loader_of(job, job.evaluated, job.eval_batch, 0) if job.evaluated else None
        prepared = self.accelerator.prepare(model, optimizer, train, evaluated)
        self.model, self.optimizer, self.train, self.evaluated = prepared
        self.per_epoch = math.ceil(len(self.train) / job.accumulate)
        self.planned = job.max_steps or job.epochs * self.per_epoch
        # For each optimizer step, a prepared scheduler takes as many steps as there are processes.
        ranks = self.accelerator.num_processes
        self.scheduler = self.accelerator.prepare(scheduler_of(job, optimizer, self.planned, ranks))

    def run(self) -> Report:
        """Train until the planned number of steps, and return the report."""
        first, skip = self.restore() if self.job.resume else (0, 0)
        for epoch in itertools.count(first) if self.job.max_steps else range(first, self.job.epochs):
            if self.step >= self.planned:
                break
            self.model.train()
            # A stateful loader continues at its restored position, so nothing is skipped here.
            skipped = skip if epoch == first and not self.stateful else 0
            self.train_epoch(self.accelerator.skip_first_batches(self.train, skipped) if skipped else self.train)
        self.report.final_step = self.step
        return self.report

    def restore(self) -> tuple[int, int]:
        """Load the checkpoint, and return the epoch to continue and the number of batches to skip in this epoch.

        See examples/by_feature/checkpointing.py.
        """
        self.accelerator.load_state(str(self.job.resume))
        self.step = int(Path(self.job.resume or "").name.removeprefix("step_"))
        epoch, steps = divmod(self.step, self.per_epoch)
        return epoch, steps * self.job.accumulate

    def train_epoch(self, batches: Iterable[dict[str, Tensor]]) -> None:
        """Train on the batches of an epoch, or on its remaining batches after a resume."""
        for batch in batches:
            with self.accelerator.accumulate(self.model):
                loss = token_loss(self.model(batch["input_ids"]), batch["labels"])
                self.accelerator.backward(loss)
                if self.accelerator.sync_gradients:
                    self.clip()
                # The next three calls have an effect only after the last micro-batch of a window.
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()
            if self.accelerator.sync_gradients and self.after_step():
                break

    def clip(self) -> None:
        """Clip the gradient of a window, if the job has a limit."""
        if self.job.clip:
            self.accelerator.clip_grad_norm_(self.model.parameters(), self.job.clip)

    def after_step(self) -> bool:
        """Count a step, and evaluate and save if due. Return whether the run has ended."""
        job = self.job
        self.step += 1
        if job.eval_every and self.step % job.eval_every == 0:
            self.report.evaluations.append((self.step, self.evaluate()))
        if job.save_every and self.step % job.save_every == 0:
            path = job.directory / f"step_{self.step}"
            self.accelerator.save_state(str(path))
            self.report.checkpoints[self.step] = path
        return self.step >= self.planned

    def evaluate(self) -> float:
        """Return the loss per token over the predictions of all processes.

        The predictions are padded to the same length and gathered. See examples/by_feature/checkpointing.py.
        """
        self.model.eval()
        nats, tokens = 0.0, 0
        for batch in self.evaluated:
            with torch.no_grad():
                logits = self.model(batch["input_ids"])
            labels = self.accelerator.pad_across_processes(batch["labels"], dim=1, pad_index=IGNORED)
            logits = self.accelerator.pad_across_processes(logits, dim=1)
            logits, labels = self.accelerator.gather_for_metrics((logits, labels))
            nats += float(token_loss(logits, labels, "sum"))
            tokens += int((labels[:, 1:] != IGNORED).sum())
        self.model.train()
        return nats / tokens


class TokenLoop(Loop):
    """The loop that divides by the tokens of a window: "training samples of variable size" in the guide."""

    def train_epoch(self, batches: Any) -> None:
        """Train on the windows of an epoch, or on its remaining windows after a resume."""
        iterator, count, size = iter(batches), len(batches), self.job.accumulate
        for first in range(0, count, size):
            self.train_window([next(iterator) for _ in range(min(size, count - first))])
            if self.after_step():
                break

    def train_window(self, batches: list[dict[str, Tensor]]) -> None:
        """Take a step on the micro-batches of a window."""
        ranks = self.accelerator.num_processes
        tokens: Any = sum(batch["labels"].ne(IGNORED).sum() for batch in batches)
        tokens = self.accelerator.gather(tokens).sum().item()
        for index, batch in enumerate(batches):
            # DDP reduces gradients only in the backward of the last micro-batch of a window.
            defers_sync = index < len(batches) - 1 and ranks > 1
            with self.model.no_sync() if defers_sync else contextlib.nullcontext():
                loss = token_loss(self.model(batch["input_ids"]), batch["labels"], "sum")
                # `backward` divides by `accumulate`, and DDP by the number of ranks. Undo both, as the guide does.
                self.accelerator.backward(loss * self.job.accumulate * ranks / tokens)
        self.clip()
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
