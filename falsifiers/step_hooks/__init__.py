"""Attacks on what the hooks within a step report, for `contracts/step-hooks.yaml`."""
