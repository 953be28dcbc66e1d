"""A plan without limits: another subject of the contract `schedule`."""

from schedule import is_kept as is_kept
from schedule import rate as rate
from schedule import train as train


def steps(epochs, per_epoch, limit=None):
    """Return how many steps a run takes, whatever the limit."""
    return epochs * per_epoch
