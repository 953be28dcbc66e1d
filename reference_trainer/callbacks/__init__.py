"""Callbacks of a run: hooks and their context, observers, progress lines, files of events and metrics."""
