"""Attacks on what a run reads from its device, for `contracts/run-reads.yaml`."""
