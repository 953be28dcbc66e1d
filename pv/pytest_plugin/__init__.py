"""Run falsifiers and harnesses as pytest tests."""
