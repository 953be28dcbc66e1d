"""Attacks on observers and on the callbacks of a run together, for `contracts/observers.yaml`."""
