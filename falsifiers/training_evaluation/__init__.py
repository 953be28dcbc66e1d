"""Falsifiers of the contract `training-evaluation`."""
