"""Attacks on callbacks that a file names, for `contracts/callbacks-file.yaml`."""
