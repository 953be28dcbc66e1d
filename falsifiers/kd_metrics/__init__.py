"""Attacks on the result and metrics of a distillation step, for `contracts/kd-metrics.yaml`."""
