"""Supervision of a run: attempts one after another until it has reached a step."""
