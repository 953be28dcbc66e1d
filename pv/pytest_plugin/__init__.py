"""Runs falsifiers and harnesses as pytest tests."""
