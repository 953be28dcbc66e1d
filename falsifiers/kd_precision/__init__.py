"""Attacks on the sums and counts of a distillation loss, for `contracts/kd-precision.yaml`."""
