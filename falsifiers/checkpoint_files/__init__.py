"""Attacks on the files of checkpoints, for `contracts/checkpoint-files.yaml`."""
