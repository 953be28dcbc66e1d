"""Attacks on the state of modules and optimizer between two steps, for `contracts/snapshot.yaml`."""
