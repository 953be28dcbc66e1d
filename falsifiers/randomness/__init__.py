"""Attacks on the random numbers of a run, for `contracts/randomness.yaml`."""
