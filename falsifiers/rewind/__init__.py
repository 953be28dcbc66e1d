"""Falsifiers of the contract `rewind`."""
