"""Attacks on the input checks of a distillation loss, for `contracts/kd-refusals.yaml`."""
