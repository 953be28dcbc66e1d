"""The plan of a training run."""


def steps(epochs, per_epoch, limit=None):
    """Return how many steps a run takes."""
    return epochs * per_epoch if limit is None else min(limit, epochs * per_epoch)


def rate(step, warmup, peak):
    """Return the learning rate of a step, which rises to the peak over the warm-up."""
    return peak * min(step / warmup, 1.0)


def is_kept(step, written, keep):
    """Return whether the checkpoint of a step is among the last `keep` of `written` ones."""
    return written - keep < step <= written


def train(epochs, per_epoch, on_step):
    """Call `on_step` with each step, from 1, and its rate. Return the last rate."""
    last = 0.0
    for step in range(1, steps(epochs, per_epoch) + 1):
        last = rate(step, 4, 0.5)
        on_step(step, last)
    return last
