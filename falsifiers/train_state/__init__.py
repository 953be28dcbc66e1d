"""Attacks on the state of a run, for `contracts/train-state.yaml`."""
