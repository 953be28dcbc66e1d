"""Attacks on the isolation of a distillation loss, for `contracts/kd-isolation.yaml`."""
