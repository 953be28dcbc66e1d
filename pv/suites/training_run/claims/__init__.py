"""The claims of the suite, a module a topic. Importing a topic registers its claims."""

from pv.suites.training_run.claims import (
    checkpoints,
    clipping,
    data,
    gradients,
    losses,
    modes,
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
    "checkpoints",
    "clipping",
    "data",
    "gradients",
    "judge",
    "losses",
    "modes",
    "parameters",
    "ranks",
    "run_of",
    "schedules",
    "weights",
]
