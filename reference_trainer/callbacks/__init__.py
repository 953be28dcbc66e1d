"""Callbacks of a run: hooks and their context, observers, progress lines, files of events and metrics.

base           the hooks and their context
dispatch       the order of callbacks, and the call of a hook in all of them
from_file      callbacks that a user names in a TOML file
stopping, watchdog   early stopping; a run that hangs
metrics_file, trace, loggers, progress   what a run writes: metrics, events, trackers, the terminal
"""
