"""Distillation losses of other libraries as subjects of `contracts/kd-loss.yaml`: one module for each library."""
