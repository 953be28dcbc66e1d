"""Attacks on feature matching in a step, a run and a distillation, for `contracts/feature-training.yaml`."""
