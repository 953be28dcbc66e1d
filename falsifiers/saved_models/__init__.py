"""Attacks on the evaluation of saved models, for `contracts/saved-models.yaml`."""
