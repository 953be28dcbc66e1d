"""Lines about what trains less than it seems to ask for, and the manifest of numbers that are not finite."""

import json
import math
from typing import Any

import pytest
import torch
from torch import nn

from reference_trainer import MetricSum, TrainResult
from reference_trainer.config.settings import Settings
from reference_trainer.pipeline.report import find_unreachable, manifest, resume_note, student_notes
from reference_trainer.plan.schedule import Event, Position, Schedule
from reference_trainer.training.state import initial_state

SCHEDULE = Schedule(epochs=3, steps_per_epoch=114, micro_batches=114)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"warmup": 5000, "lr": 1.0}, ["warmup is 5000 and the run has 342 steps: the learning rate reaches 0.0684"]),
        ({"warmup": 342}, []),
        ({"max_steps": 1000}, ["max_steps is 1000 and the run has 342 steps: the run ends before; set epochs"]),
        ({"eval_every": 343}, ["eval_every is 343 and the run has 342 steps: nothing is evaluated"]),
        ({"smoke": 5, "eval_every": 100}, []),
        ({"accumulate": 115}, ["accumulate is 115 and the run has 114 batches in an epoch"]),
        ({}, []),
    ],
)
def test_settings_beyond_the_run_have_one_line_each(settings: dict[str, Any], says: list[str]) -> None:
    lines = find_unreachable(Settings(**settings), SCHEDULE)
    assert len(lines) == len(says)
    assert all(words in line for words, line in zip(says, lines, strict=True))


@pytest.mark.parametrize(
    ("dtype", "rate", "remedy"),
    [(torch.bfloat16, 1e-5, "return model.float()"), (torch.bfloat16, 3e-3, ""), (torch.float32, 1e-5, "")],
)
def test_weights_that_a_step_cannot_move_have_a_line(dtype: torch.dtype, rate: float, remedy: str) -> None:
    student = nn.Sequential(nn.Linear(100, 100).to(dtype), nn.Linear(1, 1).double())
    lines = student_notes(Settings(lr=rate), student)
    assert bool(lines) is bool(remedy)
    kind = str(dtype).removeprefix("torch.")
    assert all(f"of the weights unchanged by rounding ({kind})" in line and remedy in line for line in lines)


@pytest.mark.parametrize(
    ("position", "says"),
    [
        (Position(event=Event.SAVE, epoch=1, step=30, epoch_step=30, stopping=True), "stopped the run at step 30"),
        (Position(event=Event.SAVE, epoch=3, step=342, epoch_step=114), "ended with step 342"),
        (Position(event=Event.SAVE, epoch=1, step=30, epoch_step=30), None),
    ],
)
def test_resumed_run_that_takes_no_step_says_why(position: Position, says: str | None) -> None:
    state = initial_state()
    state.position = position
    note = resume_note(state, SCHEDULE)
    assert note is None if says is None else note is not None and says in note


RESULT = TrainResult(
    initial_loss=math.nan,
    final_loss=math.inf,
    best_loss=None,
    finite=False,
    steps_completed=2,
    tokens=7,
    elapsed_s=1.0,
    stopped=False,
    metrics={"loss": -math.inf, "hard_loss": 2.0},
)


def test_numbers_that_are_not_finite_are_strings() -> None:
    content = manifest(Settings(), torch.device("cpu"), RESULT, {"kl_at_1": MetricSum(math.inf, 3)}, data_sha256="0")
    read = json.loads(json.dumps(content, allow_nan=False))
    result = read["result"]
    assert (result["initial_loss"], result["final_loss"], result["best_loss"]) == ("NaN", "Infinity", None)
    assert result["metrics"] == {"loss": "-Infinity", "hard_loss": 2.0}
    assert read["held_back"] == {"kl_at_1": {"sum": "Infinity", "count": 3}}
