"""Distillation losses of other libraries as subjects of `kd-loss` and `kd-domain`: one module for each library."""
