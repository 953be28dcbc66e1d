"""Attacks on the states of a run in one process, for `contracts/run-states.yaml`."""
