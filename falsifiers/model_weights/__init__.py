"""Falsifiers of the contract `model-weights`."""
