"""The manifest of a run whose numbers are not finite."""

import json
import math

import torch

from reference_trainer import MetricSum, Settings, TrainResult
from reference_trainer.pipeline.manifest import manifest

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


def written(result: TrainResult) -> dict:
    made = manifest(Settings(), torch.device("cpu"), result, {"kl_at_1": MetricSum(math.inf, 3)}, data_sha256="0")
    return json.loads(json.dumps(made, allow_nan=False))


def test_numbers_that_are_not_finite_are_strings() -> None:
    read = written(RESULT)
    result = read["result"]
    assert (result["initial_loss"], result["final_loss"], result["best_loss"]) == ("NaN", "Infinity", None)
    assert result["metrics"] == {"loss": "-Infinity", "hard_loss": 2.0}
    assert read["held_back"] == {"kl_at_1": {"sum": "Infinity", "count": 3}}
