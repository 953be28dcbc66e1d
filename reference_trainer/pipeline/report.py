"""The lines that end a run: what ran, the held-back metrics, and where the model is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from reference_trainer.distillation.metrics import derived
from reference_trainer.distillation.step import MetricSum
from reference_trainer.training.evaluation import EVALUATED_SUMS, SHARES
from reference_trainer.training.loop import TrainResult

__all__ = ["result_lines"]


def result_lines(
    train: TrainResult, held_back: Mapping[str, MetricSum], output: Path | None, unit: str = "byte"
) -> tuple[str, ...]:
    """Return the line of the run, one line for each held-back metric, and the line of the output directory.

    A run of zero seconds counts as one nanosecond. The losses of `training.evaluation.evaluate` are in nats per `unit`
    of the data; perplexities, shares and the metrics of an own evaluation have no unit.
    """
    first, last = train.initial_loss, train.final_loss
    losses = "no token was scored" if first is None else f"distillation loss {first:.4f} to {last:.4f}"
    ended = ", stopped by a callback" if train.stopped else ""
    return (
        f"{train.steps_completed} steps in {train.elapsed_s:.1f}s ({train.steps_per_s:.2f} step/s, "
        f"{train.tokens / max(train.elapsed_s, 1e-9):,.0f} {unit}s/s): {losses}{ended}",
        *(f"held-back {name}: {value:.4f}{_unit(name, held_back, unit)}" for name, value in derived(held_back).items()),
        f"wrote {output}",
    )


def _unit(name: str, held_back: Mapping[str, MetricSum], unit: str) -> str:
    if name not in held_back:  # a perplexity
        return ""
    count = held_back[name].count
    if name not in EVALUATED_SUMS:
        return f" over {count}"
    over = f" over {count} {unit}s"
    return over if name in SHARES else f" nats per {unit}{over}"
