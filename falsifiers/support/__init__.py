"""Shared parts of the falsifiers: strategies, float64 oracles, and tools for processes, signals and callbacks."""
