"""Attacks on the supervision of a run, for `contracts/supervision.yaml`."""
