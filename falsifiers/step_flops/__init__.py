"""Attacks on the count of floating-point operations, for `contracts/step-flops.yaml`."""
