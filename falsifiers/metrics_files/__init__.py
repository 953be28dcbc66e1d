"""Attacks on the metrics file of a run, for `contracts/metrics-files.yaml`."""
