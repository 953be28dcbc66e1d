"""Attacks on the shutdown of observers, for `contracts/observer-end.yaml`."""
