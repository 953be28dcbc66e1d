"""Attacks on a distillation run on real text, for `contracts/kd-run.yaml`."""
