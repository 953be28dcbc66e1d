"""Hypothesis tests of a subject."""
