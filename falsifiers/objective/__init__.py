"""Attacks on what a step minimises, and on its values that change, for `contracts/objective.yaml`."""
