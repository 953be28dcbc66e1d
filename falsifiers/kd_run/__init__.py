"""Attacks on the teachers and students of a distillation, for `contracts/kd-run.yaml`."""
