"""Attacks on the end of an observer, for `contracts/observer-end.yaml`."""
