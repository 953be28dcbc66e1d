"""Wrong plans."""


def without_limit(original, epochs, per_epoch, limit=None):
    """Return the steps of a run without a limit."""
    return original(epochs, per_epoch)
