"""Attacks on what feature matching depends on and refuses, for `contracts/feature-isolation.yaml`."""
