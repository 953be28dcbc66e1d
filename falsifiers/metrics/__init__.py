"""Attacks on the aggregation of metrics, for `contracts/metrics.yaml`."""
