"""Comparison of code with executable equations."""
