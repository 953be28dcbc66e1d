"""Attacks on distillations of several ranks, for `contracts/rank-runs.yaml`."""
