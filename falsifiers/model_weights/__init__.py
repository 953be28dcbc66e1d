"""Falsifiers of the contract `initial-weights`."""
