"""Attacks on values that change during a run, for `contracts/annealing.yaml`."""
