"""Attacks on the divergences of a distillation loss, for `contracts/kd-divergences.yaml`."""
