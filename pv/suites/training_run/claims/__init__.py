"""The claims of the suite, a module a topic. Importing a topic registers its claims."""

from pv.suites.training_run.claims import (
    against,
    checkpoints,
    clipping,
    data,
    gradients,
    losses,
    modes,
    parameters,
    precision,
    ranks,
    reported,
    resume,
    schedules,
    tokens,
    weights,
)
from pv.suites.training_run.record import CLAIMS, Finding, Record, judge
from pv.suites.training_run.run import Comparison, Run, run_of

__all__ = [
    "CLAIMS",
    "Comparison",
    "Finding",
    "Record",
    "Run",
    "against",
    "checkpoints",
    "clipping",
    "data",
    "gradients",
    "judge",
    "losses",
    "modes",
    "parameters",
    "precision",
    "ranks",
    "reported",
    "resume",
    "run_of",
    "schedules",
    "tokens",
    "weights",
]
