"""Falsifiers of the contract `checkpoint-list`."""
