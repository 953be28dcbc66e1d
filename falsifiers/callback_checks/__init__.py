"""Attacks on the checks of callbacks, for `contracts/callback-checks.yaml`."""
