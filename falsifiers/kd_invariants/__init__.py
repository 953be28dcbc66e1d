"""Attacks on the symmetries of a distillation loss and on its divergence, for `contracts/kd-invariants.yaml`."""
