"""Record the state of a run, and derive from it contexts, metrics and the result.

The sums of several steps stay on the device and are read together, in one transfer and one reduction over ranks.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from reference_trainer.callbacks.base import Context
from reference_trainer.distillation.losses import raise_fault
from reference_trainer.distillation.metrics import complete_sums, derive_metrics, rates
from reference_trainer.distillation.step import MetricSum
from reference_trainer.errors import LabelError, LogitsError
from reference_trainer.plan.schedule import Event
from reference_trainer.ranks.parallel import Parallel
from reference_trainer.training.state import ResumePoint, RunIdentity, RunServices, TrainResult, initial_state
from reference_trainer.training.update import Update
from reference_trainer.training.window import WindowSums, naming_micro_batch


class Pending:
    """The sums of the steps since the last `read`. All ranks must add and read at the same steps."""

    def __init__(self, parallel: Parallel) -> None:
        self._parallel = parallel
        self._steps: list[tuple[WindowSums, Tensor | None]] = []

    def __bool__(self) -> bool:
        return bool(self._steps)

    def add(self, window: WindowSums, gradient_norm: Tensor | None) -> None:
        """Append the sums of a step, and the norm of its gradient or None."""
        self._steps.append((window, gradient_norm))

    def read(self) -> Iterator[tuple[dict[str, MetricSum], int]]:
        """Read and remove all steps. Yield for every step the sums over all ranks by name, and the number of sequences.

        If a step has a deferred error, raise the error instead.
        """
        steps, self._steps = self._steps, []
        if not steps:
            return
        # All values are concatenated to one float64 tensor, so that one transfer reads them. Only the sums are reduced
        # over ranks: counts and norms are equal on all ranks.
        sums_K = torch.stack([summed for window, _ in steps for summed in window.sums.values()])
        counts_K = torch.stack([count for window, _ in steps for count in (window.total, window.sequences)])
        norms = [norm for _, norm in steps if norm is not None]
        faults = [fault for window, _ in steps for fault, _ in window.faults]
        parts = [self._parallel.sum_metrics(sums_K), counts_K, *norms, *faults]
        numbers = iter(torch.cat([part.to(sums_K).flatten() for part in parts]).tolist())
        # Take the numbers in the order of `parts`: first the sums of all steps, then all counts, norms and faults.
        sums = [{name: next(numbers) for name in window.sums} for window, _ in steps]
        counts = [(int(next(numbers)), int(next(numbers))) for _ in steps]
        read_norms = [None if norm is None else next(numbers) for _, norm in steps]
        for (window, _), step_sums, (total, sequences), norm in zip(steps, sums, counts, read_norms, strict=True):
            for micro_batch, (_, labels_BT) in enumerate(window.faults):
                with naming_micro_batch(micro_batch, len(window.faults)):
                    raise_fault(int(next(numbers)), labels_BT, window.vocabulary)
            totals = {name: MetricSum(summed, total) for name, summed in step_sums.items()}
            if norm is not None:
                totals["gradient_norm"] = MetricSum(norm, 1)
            yield totals, sequences


_STATM = Path("/proc/self/statm")


def memory_bytes(device: torch.device) -> int | None:
    """Return the bytes that PyTorch has allocated on a GPU, or the resident bytes of the process; None if unknown."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


_BEFORE_UPDATE = (Event.STEP_BEGIN, Event.BEFORE_FORWARD, Event.AFTER_BACKWARD, Event.PRE_OPTIMIZER_STEP)
_WITHIN_STEP = (*_BEFORE_UPDATE, Event.OPTIMIZER_STEP, Event.LOG, Event.EVALUATE, Event.SAVE, Event.STEP_END)


class Record:
    """The record of a run. With `resume_from`, the record starts from a saved state.

    Attributes:
        state: The state of the run, without the steps that have not been read yet.
        pending: The sums of the steps that have not been read yet.
        rate: Learning rate of the last step; None before the first step.
        flops: Floating-point operations of a step; None before the first logged step, and if they are not counted.
        gradient_norm, metrics, validation, checkpoint: Values of the current step.
        unread: Contexts without the losses of their step, because the step has not been read yet, by step.
        logged: Seconds, steps and tokens at the last logged step, or at the start of this process.
        began: Clock time minus elapsed seconds: the time at which the run would have begun without interruptions.
        identity: Name, attempt and rank of the run, as `Context` has them.
    """

    gradient_norm: Tensor | None
    metrics: Mapping[str, float]
    validation: Mapping[str, float]
    checkpoint: Path | None

    def __init__(
        self,
        update: Update,
        learning_rate: Callable[[int], float],
        services: RunServices,
        resume_from: ResumePoint | None,
        identity: RunIdentity,
    ) -> None:
        self.update, self.schedule, self.learning_rate = update, update.schedule, learning_rate
        self.clock, self.step_flops = services.clock, services.step_flops
        self.state = initial_state() if resume_from is None else copy.deepcopy(resume_from.state)
        self.pending = Pending(update.parallel)
        self.rate = learning_rate(self.state.position.step) if self.state.position.step else None
        self.flops: int | None = None
        self.unread: dict[int, list[Context]] = {}
        self.logged = (self.state.elapsed_s, self.state.steps, self.state.tokens)
        self.began = self.clock() - self.state.elapsed_s
        parallel = update.parallel
        self.identity = {
            **asdict(identity),
            "rank": parallel.rank,
            "local_rank": parallel.local_rank,
            "world_size": parallel.world_size,
        }
        self.begin_step()
        self.checkpoint = None if resume_from is None else resume_from.checkpoint
        if self.state.position.event is Event.SAVE:  # the run resumes within a step; the state has the step's metrics
            step = self.state.position.step
            self.metrics = self.state.metrics if self.state.logged_step == step else {}
            self.validation = self.state.validation if self.state.evaluated_step == step else {}

    def begin_step(self) -> None:
        """Reset the values of the previous step."""
        self.gradient_norm = self.checkpoint = None
        self.metrics = self.validation = {}

    def note_time(self) -> None:
        """Update the elapsed time of the state."""
        self.state.elapsed_s = self.clock() - self.began

    def note_evaluation(self, metrics: Mapping[str, float]) -> None:
        """Set the metrics of an evaluation at the current step."""
        self.validation = self.state.validation = dict(metrics)
        self.state.evaluated_step = self.state.position.step

    def read(self) -> None:
        """Read all pending steps into the state, and complete the contexts that were made since the last read."""
        unread, self.unread = self.unread, {}
        try:
            for sums, sequences in self.pending.read():
                self.state.add_step(sums, sequences)
                for context in unread.get(self.state.steps, ()):
                    context.complete(self._losses())
        except (LabelError, LogitsError) as error:
            error.add_note(f"in step {self.state.steps + 1}, whose update was skipped")
            raise

    def log(self) -> None:
        """Set `metrics` to the metrics of the steps since the last logged step."""
        state, schedule = self.state, self.schedule
        sums, state.interval = state.interval, {}
        state.logged_step = state.position.step
        weights = self.update.objective.weights(state.position.step, schedule.planned_steps)
        last_elapsed, last_steps, last_tokens = self.logged
        elapsed = self.clock() - self.began
        self.logged = (elapsed, state.steps, state.tokens)
        steps = state.steps - last_steps
        amounts = {"steps": steps, "tokens": state.tokens - last_tokens}
        if self.step_flops is not None:  # count the operations at the first logged step only
            start = self.clock()
            self.flops = self.step_flops()
            self.step_flops = None
            self.began += self.clock() - start  # exclude the time of counting from the elapsed time
        if self.flops is not None:
            amounts["flops"] = self.flops * steps
        self.metrics = state.metrics = {
            **derive_metrics(complete_sums(sums)),
            "temperature": weights.temperature,
            "ce_weight": weights.ce_weight,
            "kd_weight": weights.kd_weight,
            **({"feature_weight": weights.feature_weight} if weights.feature_weight else {}),
            **rates(elapsed - last_elapsed, **amounts),
        }

    def context(
        self, event: Event, micro_batch: int | None = None, batch: Callable[[], object] | None = None
    ) -> Context:
        """Return the context of an event. batch: returns the metrics of `micro_batch`.

        Values on the device are read when a callback uses them. On several ranks, the losses are as of the last read
        by all ranks, because a read on one rank would wait for the other ranks.
        """
        self.note_time()
        position = self.state.position
        values: dict[str, object] = {
            **self.identity,
            **self._step_values(event),
            "hook": event.value,
            # `position.step` is the last step whose update was made.
            "step": position.step + 1 if event in _BEFORE_UPDATE else position.step,
            "epoch": position.epoch,
            "micro_batch": micro_batch,
            "learning_rate": self.rate,
            "elapsed_s": self.state.elapsed_s,
            "epochs": self.schedule.epochs,
            "steps_per_epoch": self.schedule.steps_per_epoch,
            "total_steps": self.schedule.total_steps,
        }
        norm = self.gradient_norm if event in _WITHIN_STEP else None
        lazy: dict[str, Callable[[], object]] = {
            "batch_metrics": batch or dict,
            "gradient_norm": lambda: None if norm is None else float(norm),
            "memory": lambda: memory_bytes(self.update.device),
        }
        if self.pending and self.update.parallel.world_size == 1:
            # `read` adds the losses of the step to this context, even if a callback uses the context later.
            context = Context.incomplete(values, lazy, self.read)
            self.unread.setdefault(position.step, []).append(context)
            return context
        losses = self._losses()
        if event is Event.EPOCH_END:
            epoch = self.state.epoch
            losses["loss"] = epoch.sum / epoch.count if epoch.count else None
        return Context.incomplete({**values, **losses}, lazy)

    def _step_values(self, event: Event) -> dict[str, object]:
        """Return the values of the current step that a context has; empty values for an event outside a step."""
        if event not in _WITHIN_STEP:
            return {"metrics": {}, "validation_metrics": {}, "checkpoint_path": None}
        return {
            "metrics": self.metrics,
            "validation_metrics": self.validation,
            "checkpoint_path": None if self.checkpoint is None else str(self.checkpoint),
        }

    def _losses(self) -> dict[str, object]:
        """Return the values of a context that depend on the sums of its step."""
        state = self.state
        return {
            "loss": state.loss,
            "best_loss": state.best_loss,
            "tokens": state.tokens,
            "sequences": state.sequences,
        }

    def result(self) -> TrainResult:
        """Return the result of the run so far."""
        state = self.state
        return TrainResult(
            initial_loss=state.initial_loss,
            final_loss=state.final_loss,
            best_loss=state.best_loss,
            finite=state.finite,
            steps_completed=state.position.step,
            tokens=state.tokens,
            elapsed_s=self.clock() - self.began,
            stopped=state.position.stopping,
            metrics=state.metrics,
            validation=state.validation,
        )
