"""The claims of the suite, a module a topic. Importing a topic registers its claims."""

from pv.suites.training_run.claims import (
    averages,
    checkpoints,
    clipping,
    gradients,
    losses,
    modes,
    normalization,
    parameters,
    ranks,
    schedules,
    weights,
)
from pv.suites.training_run.record import CLAIMS, Finding, Record, judge
from pv.suites.training_run.run import run_of

__all__ = [
    "CLAIMS",
    "Finding",
    "Record",
    "averages",
    "checkpoints",
    "clipping",
    "gradients",
    "judge",
    "losses",
    "modes",
    "normalization",
    "parameters",
    "ranks",
    "run_of",
    "schedules",
    "weights",
]
