"""Attacks on a distillation loss at the limits of its domain, for `contracts/kd-domain.yaml`."""
