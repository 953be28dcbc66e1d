"""Attacks on the closed-form gradient of a distillation loss, for `contracts/kd-gradient.yaml`."""
