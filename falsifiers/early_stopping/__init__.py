"""Attacks on early stopping, for `contracts/early-stopping.yaml`."""
