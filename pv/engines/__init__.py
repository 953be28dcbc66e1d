"""Engines try a falsifier inside a worker and say what came back; none of them says "pass"."""
