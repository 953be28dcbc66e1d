"""Attacks on the distance between hidden states of student and teacher, for `contracts/feature-matching.yaml`."""
