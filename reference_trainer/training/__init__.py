"""Schedule, training loop, callbacks, progress lines, trace and evaluation."""
