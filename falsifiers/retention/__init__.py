"""Attacks on names, rotation and choice of checkpoints, for `contracts/retention.yaml`."""
